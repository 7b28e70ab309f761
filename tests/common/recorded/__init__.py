"""What a real Kafka answered, kept, so that it is asked again only where its answer can have changed."""
