"""What a broker says that it serves: all that oncelog serves, or what an earlier release of Kafka does."""
