"""Groups of the consumer protocol: the broker assigns partitions, members reconcile step by step (KIP-848)."""
