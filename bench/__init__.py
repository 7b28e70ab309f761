"""Measurements of oncelog and of a real Apache Kafka, in turn, with the same stock clients; their ratios."""
