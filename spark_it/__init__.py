"""Spark's Kafka connector tested unmodified, a PySpark pipeline over topics and a lake, and an exactly-once sink."""
