"""Groups of the consumer protocol: the broker assigns partitions, and members reconcile step by step (KIP-848)."""
