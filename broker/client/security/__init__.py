"""How a client proves who it is, and whom it believes: TLS and SASL by Kafka's keys for clients."""
