"""The codecs of record batches."""

from __future__ import annotations

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    raise NotImplementedError
