"""`OffsetMap`: the last offset of every key in the dirty part of a log, within a limit of memory.

Source: Kafka's ``OffsetMap`` and ``SkimpyOffsetMap``. As there, a key is represented by a hash of 16 bytes.
"""

from __future__ import annotations

KEY_MEMORY_BYTES = 160
"""Bytes of memory that one key takes at most: a bytes object of 16, an integer, and its share of the
dictionary."""

LOAD_FACTOR = 0.9
"""Share of the memory that the map may use (Kafka's ``log.cleaner.io.buffer.load.factor``)."""

DIGEST_BYTES = 16

NOT_FOUND = -1


class OffsetMap:
    """``latest_offset``: the last offset of the log that the map covers. ``offsets``: the last offset by
    `key_hash`."""

    __slots__ = ("keys_max", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int) -> None:
        self.keys_max = max(1, int(memory_bytes * LOAD_FACTOR) // KEY_MEMORY_BYTES)
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = NOT_FOUND

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self.keys_max


def key_hash(key: bytes) -> bytes:
    """The hash of a key. A key shorter than a hash stands for itself, and so never collides."""
    if len(key) < DIGEST_BYTES:
        return key
    from hashlib import blake2b  # imported late: a broker without compacted topics never needs it

    return blake2b(key, digest_size=DIGEST_BYTES).digest()
