"""A Kafka Streams application on both targets."""
