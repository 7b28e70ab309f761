"""The batches and records of ``__consumer_offsets``, read by a client and shown as plain fields."""

from collections.abc import Iterator
from typing import Any

from compat_tests.differential import Session
from oncelog.wire.records import Record, iterate_records
from tests.common.batches import Batch, read_batches
from tests.common.definitions import Fields
from tests.common.real_kafka import INTERNAL_PARTITIONS

OFFSETS_TOPIC = "__consumer_offsets"


def batches_of(session: Session, group: str) -> Iterator[tuple[Batch, list[Record]]]:
    """The batches that hold records of the group, with all their records; every partition is searched."""
    rows = [{"partition_index": partition, "timestamp": -1} for partition in range(INTERNAL_PARTITIONS)]
    listed = {"topics": [{"name": OFFSETS_TOPIC, "partitions": rows}]}
    ends = session.call_unobserved("ListOffsets", 4, listed)["topics"][0]["partitions"]
    for row in ends:
        offset = 0
        while offset < row["offset"]:
            data = fetch_records(session, row["partition_index"], offset)
            at = 0
            for one in read_batches(data):
                found = list(iterate_records(data, offset=at))
                if any(group.encode() in (record.key or b"") for record in found):
                    yield one, found
                at += one.length + 12
                offset = one.base_offset + one.last_offset_delta + 1


def fetch_records(session: Session, partition: int, offset: int) -> bytes:
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body: Fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24}
    body["topics"] = [{"topic": OFFSETS_TOPIC, "partitions": [row]}]
    response = session.call_unobserved("Fetch", 12, body)
    return bytes(response["responses"][0]["partitions"][0]["records"] or b"")


def as_fields(value: Any) -> Any:
    """A stored key or value as dictionaries, lists and plain values; a tombstone's value is None."""
    if isinstance(value, list):
        return [as_fields(element) for element in value]
    names = () if isinstance(value, str | bytes) else getattr(type(value), "__slots__", ())
    return {name: as_fields(getattr(value, name)) for name in names} if names else value
