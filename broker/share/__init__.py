"""Share partitions: records that the members of a share group read side by side (KIP-932)."""
