"""Records that a test hands over to be written: checked, and assigned to partitions by Kafka's default partitioner.

Source: ``org.apache.kafka.clients.producer.internals.BuiltInPartitioner``, ``Utils.murmur2``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import no_partition
from oncelog.broker.control.types import UNIX_EPOCH, Headers, Record

FIELDS = ("value", "key", "headers", "timestamp", "partition")
TIMESTAMP_MAX = 2**63 - 1
LIKE_SECONDS = range(10**9, 10**10)
"""Timestamps that are of January to April 1970 as milliseconds, and of 2001 to 2286 as seconds."""


class NewRecord(NamedTuple):
    """A record to be written."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp: int | None
    """In milliseconds; None: broker time."""
    partition: int | None
    """None: the partitioner chooses."""


def checked_record(given: object) -> NewRecord:
    """Return a record: given as its value, as (key, value), as a dictionary of `FIELDS`, or as a `Record` to be copied.

    Raises InvalidArgumentError.
    """
    if isinstance(given, Record):
        return NewRecord(given.value, given.key, given.headers, given.timestamp, None)
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in FIELDS]
        if unknown:
            raise InvalidArgumentError(
                f"record {given!r}: there is no field {unknown[0]!r} (expected: {', '.join(FIELDS)})"
            )
        fields: Mapping[str, Any] = given
    elif isinstance(given, tuple):
        if len(given) != 2:
            raise InvalidArgumentError(f"record {given!r}: expected (key, value)")
        fields = {"key": given[0], "value": given[1]}
    else:
        fields = {"value": given}
    partition = fields.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise InvalidArgumentError(f"partition={partition!r}: expected a number")
    return NewRecord(
        as_bytes("value", fields.get("value")),
        as_bytes("key", fields.get("key")),
        _headers(fields.get("headers")),
        as_timestamp(fields.get("timestamp")),
        partition,
    )


def as_bytes(what: str, value: object) -> bytes | None:
    """Return bytes as they are, and a text in UTF-8. Raises InvalidArgumentError for another type."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgumentError(
        f"{what}={value!r}: expected bytes, a text or None; encode it first, for example with json.dumps"
    )


def as_timestamp(value: object) -> int | None:
    """Return milliseconds; None stays. Raises InvalidArgumentError for a value that is no time, and for a datetime
    without a zone.
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgumentError(
                f"timestamp={value!r}: has no time zone; use datetime(..., tzinfo=datetime.UTC)"
            )
        return (value - UNIX_EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= TIMESTAMP_MAX:
        return value
    raise InvalidArgumentError(f"timestamp={value!r}: expected milliseconds since 1970, or a datetime")


def warn_of_seconds(records: Iterable[object]) -> None:
    """Warn the caller's caller of a timestamp in seconds: it would be 1970, and retention would delete the record."""
    for record in records:
        given = record.get("timestamp") if isinstance(record, Mapping) else None
        if isinstance(given, int) and given in LIKE_SECONDS:
            when = (UNIX_EPOCH + timedelta(milliseconds=given)).date()
            warnings.warn(
                f"timestamp={given} is in milliseconds, and so of {when}: if it is in seconds, say {given * 1000}",
                stacklevel=3,
            )
            return


def _headers(given: object) -> Headers:
    if given is None:
        return ()
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given  # type: ignore[assignment]
    if isinstance(given, str | bytes) or not isinstance(pairs, Iterable):
        raise InvalidArgumentError(f"headers={given!r}: expected {{name: value}}, or a list of (name, value)")
    headers = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidArgumentError(f"header {pair!r}: expected (name, value), the name as a text")
        headers.append((pair[0], as_bytes(f"header {pair[0]}", pair[1])))
    return tuple(headers)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner takes for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit hash of ``data``, unsigned."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = found * multiplier & mask ^ word
    if len(data) > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15


def assign_partitions(topic: str, records: list[NewRecord], end_offsets: list[int]) -> list[int]:
    """Return the partition of each record: the one it names, else that of its key, else the shortest one.

    ``end_offsets``: how long each partition is. Raises NotFoundError for a partition that does not exist.
    """
    lengths = list(end_offsets)
    partitions = []
    for record in records:
        partition = record.partition
        if partition is None:
            if record.key is not None:
                partition = partition_for_key(record.key, len(lengths))
            else:
                partition = lengths.index(min(lengths))
        elif not 0 <= partition < len(lengths):
            raise no_partition(topic, partition, len(lengths))
        lengths[partition] += 1
        partitions.append(partition)
    return partitions
