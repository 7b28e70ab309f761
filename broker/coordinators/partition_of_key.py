"""The partition of an internal topic that stores a group or a transactional id."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, over UTF-16 code units."""
    value = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_of_key(key: str, partitions: int) -> int:
    """Return the partition, among ``partitions``, that stores a key (Kafka: ``Utils.abs(hash) % partitions``)."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
