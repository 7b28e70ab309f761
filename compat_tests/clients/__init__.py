"""Stock clients, Kafka's tools and oncelog's own client: what they write, read and administer."""
