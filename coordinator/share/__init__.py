"""The share coordinator: the state of share partitions (KIP-932)."""
