"""Compacted logs that tests clean explicitly, and that kafka-python reads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

from oncelog.broker.log.cleaner.cleaner import Cleaner
from oncelog.broker.log.manager import LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.wire.batch_builder import BatchBuilder
from tests.harness.log_manager import START_MS, LogManagerHarness

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
    from kafka.record import MemoryRecords


DAY_MS = 86_400_000


COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Read(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


def batches_in(log: PartitionLog) -> Iterator[object]:
    for segment in log.segments:
        records = MemoryRecords(segment.file.pread(segment.size, 0))
        while records.has_next():
            found = records.next_batch()
            assert found.validate_crc()
            yield found


def read_all(log: PartitionLog) -> list[Read]:
    """Return the records of a log as kafka-python reads them, without control records."""
    return [
        Read(record.offset, record.key, record.value, record.timestamp, tuple(record.headers))
        for found in batches_in(log)
        if not found.is_control_batch  # type: ignore[attr-defined]
        for record in found  # type: ignore[attr-defined]
    ]


def keyed(
    log: PartitionLog, key: bytes, value: bytes | None, timestamp: int = START_MS, **fields: int
) -> int:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    builder.append(timestamp, key, value)
    log.append(memoryview(builder.build()), leader_epoch=0)
    return log.log_end_offset - 1


def without_cleaner(seed: int = 0, keys: dict[str, str] | None = None) -> LogManagerHarness:
    """Return a log manager without a cleaner in the background. Tests call `clean`."""
    return LogManagerHarness(seed, keys={"log.cleaner.enable": "false", **(keys or {})})


async def clean(manager: LogManager) -> bool:
    """Run the cleaner once, as its background task does."""
    return await Cleaner(manager).clean_filthiest()


def shown(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log)]


# --- interruptions of the cleaner


def fill(manager: LogManager, segments: int = 3, batches: int = 40) -> PartitionLog:
    log = manager.get("t", 0)
    for segment in range(segments):
        for number in range(batches):
            keyed(log, b"key-%d" % (number % 7), b"%d-%d" % (segment, number))
        log.roll()
    return log
