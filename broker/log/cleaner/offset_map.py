"""The last offset of every key in the dirty part of a log, within a limit of memory.

Source: Kafka's ``OffsetMap`` and ``SkimpyOffsetMap``. As there, a key is known by a hash of 16 bytes.
"""

from __future__ import annotations

KEY_MEMORY_BYTES = 160
"""Memory that one key takes at most: a bytes object of 16, an integer, and its share of the dictionary."""

LOAD_FACTOR = 0.9
"""Share of the memory that is used (Kafka's ``log.cleaner.io.buffer.load.factor``)."""

DIGEST_BYTES = 16

NOT_FOUND = -1


class OffsetMap:
    """``latest_offset``: up to where the log is in it. ``offsets``: of each key's `identity` the last offset."""

    __slots__ = ("keys_max", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int) -> None:
        self.keys_max = max(1, int(memory_bytes * LOAD_FACTOR) // KEY_MEMORY_BYTES)
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = NOT_FOUND

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self.keys_max


def identity(key: bytes) -> bytes:
    """What a key is known by: itself where it is shorter than the hash, which then cannot be another's."""
    if len(key) < DIGEST_BYTES:
        return key
    from hashlib import blake2b  # costs more to import than a broker without compacted topics has to pay

    return blake2b(key, digest_size=DIGEST_BYTES).digest()
