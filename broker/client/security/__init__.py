"""TLS and SASL of a client, set by Kafka's keys for clients."""
