"""What OffsetCommit and OffsetDelete leave in ``__consumer_offsets``: the same batches and records as Kafka's."""

from collections.abc import Iterator
from typing import Any

from compat_tests.batches import Batch, read_batches
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.test_diff_committed_offsets import commit_body, wait_for_coordinator
from oncelog.wire.records import Record, iterate_records
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_key, encode_value
from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES

OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = 50


def batches_of(session: Session, group: str) -> Iterator[tuple[Batch, list[Record]]]:
    """The batches in which the group's records are, wherever those are."""
    rows = [{"partition_index": partition, "timestamp": -1} for partition in range(PARTITIONS)]
    listed = {"topics": [{"name": OFFSETS_TOPIC, "partitions": rows}]}
    ends = session.quiet("ListOffsets", 4, listed)["topics"][0]["partitions"]
    for row in ends:
        offset = 0
        while offset < row["offset"]:
            data = records(session, row["partition_index"], offset)
            at = 0
            for one in read_batches(data):
                found = list(iterate_records(data, offset=at))
                if any(group.encode() in (record.key or b"") for record in found):
                    yield one, found
                at += one.length + 12
                offset = one.base_offset + one.last_offset_delta + 1


def records(session: Session, partition: int, offset: int) -> bytes:
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body: Fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24}
    body["topics"] = [{"topic": OFFSETS_TOPIC, "partitions": [wanted]}]
    answer = session.quiet("Fetch", 12, body)
    return bytes(answer["responses"][0]["partitions"][0]["records"] or b"")


def seen(value: Any) -> Any:
    """A key or value as fields, whose times and ids `Session` knows how to compare."""
    return None if value is None else {name: getattr(value, name) for name in value.__slots__}


def test_the_records_of_commits(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        topic_id = session.topic(name, 3)
        rows = {0: (5, 2, "note"), 1: (6, -1, None)}
        for version in (2, 6, 9):
            session.quiet("OffsetCommit", version, commit_body(version, name, {name: rows}))
        session.quiet("OffsetCommit", 10, commit_body(10, name, {topic_id: {2: 7}}))
        kept = commit_body(3, name, {name: {0: 8}}) | {"retention_time_ms": 1_000_000}
        session.quiet("OffsetCommit", 3, kept)
        asked = [{"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 2}]}]
        session.quiet("OffsetDelete", 0, {"group_id": name, "topics": asked})
        left = list(batches_of(session, name))
        assert len(left) == 6
        for batch, found in left:
            session.remember("batch", {"attributes": batch.attributes, "leader_epoch": batch.leader_epoch})
            session.remember("producer", [batch.producer_id, batch.producer_epoch, batch.base_sequence])
            for record in found:
                assert record.key is not None
                key = decode_key(record.key, KEY_TYPES)
                assert key is not None
                assert encode_key(key) == record.key
                value = None
                if record.value is not None:
                    value = decode_value(record.value, VALUE_TYPES[key.API_KEY])
                    version = int.from_bytes(record.value[:2], "big")
                    assert encode_value(value, version) == record.value
                    session.remember("version", version)
                session.remember("record", [seen(key), seen(value), len(record.headers)])

    pair.compare(scenario)
