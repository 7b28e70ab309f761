"""The sink's rows, and the digest of a batch's rows."""

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

BUCKET = "_bucket"
ORDER = "_order"  # followed by a number
COLUMNS = ("key", "value", "headers", "topic", "partition")
Headers = Sequence[tuple[str, bytes | None]]
MODULUS = 1 << 128


class SinkRow(NamedTuple):
    """A row: the number of the task that must write it, and the stock sink's columns."""

    bucket: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    topic: str
    partition: int | None


class Digest:
    """The number of rows and the sum of their hashes, which do not depend on the rows' order."""

    __slots__ = ("rows", "sum")

    def __init__(self) -> None:
        self.rows = 0
        self.sum = 0

    def add(self, row: SinkRow) -> None:
        hashed = hashlib.blake2b(_encoded(row), digest_size=16).digest()
        self.sum = (self.sum + int.from_bytes(hashed, "big")) % MODULUS
        self.rows += 1

    def text(self) -> str:
        return f"{self.sum:032x}"


def _encoded(row: SinkRow) -> bytes:
    """An encoding that differs for different rows."""
    parts = [row.key, row.value, row.topic.encode(), None if row.partition is None else b"%d" % row.partition]
    if row.headers is not None:
        for name, content in row.headers:
            parts += [name.encode(), content]
    out = bytearray(b"\0" if row.headers is None else b"\1")
    for part in parts:
        out += struct.pack(">q", -1 if part is None else len(part))
        out += part or b""
    return bytes(out)
