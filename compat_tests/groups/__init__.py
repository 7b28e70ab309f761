"""Consumer groups with stock clients and Kafka's own tools: the same assertions on oncelog and on a real Kafka."""
