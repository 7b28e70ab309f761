"""The records of fetched batches."""

from collections.abc import Iterator

from oncelog.wire.batch import LOG_OVERHEAD
from oncelog.wire.records import Record, iterate_records
from tests.common.batches import read_batches


def read_records(data: bytes) -> Iterator[Record]:
    """The records of fetched batches. Asserts every CRC."""
    at = 0
    for one in read_batches(data):
        yield from iterate_records(data, offset=at)
        at += LOG_OVERHEAD + one.length
