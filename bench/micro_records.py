"""The CPU time of a batch before it is written: header, CRC, walk, validation; the best of several rounds.

python -m bench.micro_records
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from oncelog.wire.batch import HEADER_SIZE, crc_matches, read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from oncelog.wire.validate import read_produced_batch, validate
from oncelog.wire.validation_rules import ValidationRules
from oncelog.wire.walk import walk

ROUNDS = 15
ROUND_S = 0.02
NOW_MS = 1_800_000_000_000


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    call()
    count = 1
    while (spent := _round(call, count)) < ROUND_S / 4:
        count *= 2
    count = max(1, round(count * ROUND_S / spent))
    return min(_round(call, count) for _ in range(ROUNDS)) / count


def _round(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - start


def batch(
    count: int, size: int, *, spread: float = 0, key: bytes | None = None, headers: int = 0, codec: int = NONE
) -> bytes:
    """A batch of ``count`` records, ten per millisecond, of ``size`` bytes more or less a share ``spread`` of it."""
    rng = random.Random(1)
    noise = rng.randbytes(2 * size)
    builder = BatchBuilder(codec=codec)
    for index in range(count):
        length = round(size * (1 + spread * rng.uniform(-1, 1)))
        # A third of each value is random, so that codecs have work to do.
        start = rng.randrange(size)
        value = noise[start : start + length // 3]
        traces = [("trace", rng.randbytes(16))] * headers
        builder.append(NOW_MS + index // 10, key, value + bytes(length - len(value)), traces)
    return bytes(builder.build())


WALKS = {
    "100 B, one size, 16 kB batch": batch(150, 100),
    "100 B, one size, 1 MB batch": batch(10_000, 100),
    "100 B, mixed sizes, 16 kB batch": batch(150, 100, spread=0.3),
    "100 B, mixed sizes, 16-byte key": batch(150, 100, spread=0.3, key=b"k" * 16),
    "100 B, one size, two headers": batch(150, 100, headers=2),
    "100 B, mixed sizes, two headers": batch(150, 100, spread=0.3, headers=2),
    "1 kB, one size, 16 kB batch": batch(16, 1000),
    "1 kB, one size, 1 MB batch": batch(1000, 1000),
    "1 kB, mixed sizes, 16 kB batch": batch(16, 1000, spread=0.3),
    "100 B, a batch of one": batch(1, 100),
}
CODEC_NAMES = {NONE: "not compressed", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}


def main() -> None:
    print("walk, nanoseconds a record")
    for name, data in WALKS.items():
        count = read_header(data).record_count
        records = memoryview(data)[HEADER_SIZE:]
        print(f"  {name:34} {seconds(partial(walk, records, count)) / count * 1e9:8.0f}")

    print("one batch, microseconds")
    small, large = WALKS["100 B, one size, 16 kB batch"], WALKS["100 B, one size, 1 MB batch"]
    print(f"  {'header':34} {seconds(partial(read_header, small)) * 1e6:8.2f}")
    for name, data in (("CRC of 16 kB", small), ("CRC of 1 MB", large)):
        header = read_header(data)
        print(f"  {name:34} {seconds(partial(crc_matches, data, 0, header)) * 1e6:8.2f}")
    rules = ValidationRules(max_message_bytes=1 << 24)
    for name, data in WALKS.items():
        print(f"  {'validate ' + name:43} {seconds(partial(validate_produced, data, rules)) * 1e6:8.2f}")
    for codec, name in CODEC_NAMES.items():
        data = batch(150, 100, codec=codec)
        line = f"  validate 150 of 100 B, {name:20} {seconds(partial(validate_produced, data, rules)) * 1e6:8.2f}"
        if codec:
            compressed = memoryview(data)[HEADER_SIZE:]
            decompression = seconds(partial(decompress, codec, compressed, 1 << 27)) * 1e6
            line += f", of which decompression {decompression:.2f}"
        print(line)


def validate_produced(data: bytes, rules: ValidationRules) -> object:
    records, header = read_produced_batch(data, rules)
    return validate(records, header, rules, NOW_MS)


if __name__ == "__main__":
    main()
