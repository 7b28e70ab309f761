"""Logs of batches of equal size, whose files tests damage."""

from __future__ import annotations

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.segment import Segment
from tests.harness.partition_log import START_MS, batch, stamped

FIRST = "00000000000000000000"


def fill(log: PartitionLog, count: int = 12, size: int = 80) -> list[bytes]:
    """Append batches of one record, a millisecond apart. Returns their bytes in the log."""
    rows = []
    for _ in range(count):
        sent = batch((bytes(size),), timestamp=START_MS + log.log_end_offset)
        rows.append(stamped(sent, log.log_end_offset, log.latest_epoch))
        log.append(sent, leader_epoch=log.latest_epoch)
    return rows


def indexes_of(segment: Segment) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the entries of its offset index and of its time index."""
    return list(segment.offset_index.all()), list(segment.time_index.all())
