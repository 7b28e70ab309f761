"""The proxy: it stands before a Kafka cluster with the same interceptors, listeners and limits as the broker."""
