"""Ours and a real Apache Kafka in turn on this machine, under the same stock client, as ratios."""
