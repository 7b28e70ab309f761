"""What consumer groups and share groups have in common (Kafka: ``ModernGroup`` and its neighbours)."""
