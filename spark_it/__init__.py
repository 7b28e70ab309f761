"""Tests of Spark's unmodified Kafka connector, a PySpark pipeline over topics and a lake, and an exactly-once sink."""
