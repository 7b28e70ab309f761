"""The common part of consumer groups and share groups (Kafka: ``ModernGroup`` and its neighbours)."""
