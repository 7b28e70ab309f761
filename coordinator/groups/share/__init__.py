"""Share groups: the broker assigns each partition to as many members as balance needs; nothing is revoked (KIP-932)."""
