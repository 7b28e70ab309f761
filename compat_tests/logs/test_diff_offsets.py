"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords on both targets."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common.batches import GZIP, LOG_APPEND_TIME, batch, record
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

BASE_MS = 1_790_000_000_000
SPECIALS = {
    "latest": -1,
    "earliest": -2,
    "max timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "pending upload": -6,
}


def list_offsets(
    session: Session, version: int, name: str, timestamps: list[int], note: str = "", **fields: Any
) -> Any:
    """A ListOffsets response, observed; the timestamps are for partitions 0, 1, and so on."""
    rows = [{"partition_index": index, "timestamp": timestamp} for index, timestamp in enumerate(timestamps)]
    response = session.call_unobserved(
        "ListOffsets", version, {"topics": [{"name": name, "partitions": rows}], **fields}
    )
    for topic in response["topics"]:  # Kafka's order is a hash map's
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    session.observe(f"ListOffsets v{version} {note}", response)
    return response


def first_row(response: Any) -> Any:
    """The response's row of its first partition."""
    return response["topics"][0]["partitions"][0]


def produce_with_timestamps(session: Session, name: str, codec: int = 0) -> None:
    """Three batches of two records, with timestamps 0, 10; 5, 40; and 20, 30 ms after BASE_MS."""
    for first, second in ((0, 10), (5, 40), (20, 30)):
        rows = [record(b"a"), record(b"b", offset_delta=1, timestamp_delta=second - first)]
        records = batch(rows, codec=codec, base_timestamp=BASE_MS + first, max_timestamp=BASE_MS + second)
        assert session.produce(name, records)["error_code"] == 0


@pytest.mark.parametrize("version", versions_of("ListOffsets"))
def test_special_timestamps(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        for case in ("empty", "filled"):
            topic = f"{name}-{case}"
            session.topic(topic)
            if case == "filled":
                produce_with_timestamps(session, topic)
                session.delete_records(topic, 1)
            for special, timestamp in (
                *SPECIALS.items(),
                ("unknown special", -7),
                ("very negative", -(1 << 62)),
            ):
                for isolation_level in (0, 1) if version >= 2 else (0,):
                    fields = {"isolation_level": isolation_level} if version >= 2 else {}
                    list_offsets(session, version, topic, [timestamp], f"{special} of {case}", **fields)

    pair.compare(scenario)


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("version", [1, 4, 7, 11])
def test_by_time(pair: Pair, name: str, version: int, codec: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        produce_with_timestamps(session, name, codec)
        for after in (-1, 0, 1, 5, 6, 10, 11, 20, 30, 31, 40, 41, 1 << 50):
            list_offsets(session, version, name, [BASE_MS + after], f"{after} ms")
        list_offsets(session, version, name, [0], "time 0")

    pair.compare(scenario)


def test_by_time_with_log_append_time(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, configs={"message.timestamp.type": "LogAppendTime"})
        for _ in range(3):
            session.produce(name, batch(2, base_timestamp=BASE_MS, attributes=LOG_APPEND_TIME))
        list_offsets(session, 7, name, [BASE_MS])
        list_offsets(session, 7, name, [-3], "max timestamp")

    # Two batches may be appended in the same millisecond, and then the earlier one has the maximum.
    pair.compare(scenario, known=("max timestamp: .*offset",))


@pytest.mark.parametrize("version", [1, 4, 6, 11])
def test_errors(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        list_offsets(session, version, f"{name}-unknown", [-1])
        list_offsets(session, version, "a b", [-1])
        list_offsets(session, version, name, [-1, -2, -1], "a partition too many")
        session.call("ListOffsets", version, {"topics": []}, "no topics")
        session.call("ListOffsets", version, {"topics": [{"name": name, "partitions": []}]}, "no partitions")
        row = {"partition_index": 0, "timestamp": -1}
        session.call("ListOffsets", version, {"topics": [{"name": name, "partitions": [row, row]}]}, "twice")
        list_offsets(session, version, name, [-1], "as a replica", replica_id=5)
        list_offsets(session, version, name, [-1], "as a debugger", replica_id=-2)
        if version >= 4:
            for epoch, error in ((-1, 0), (0, 0), (1, 75), (-2, 74)):  # a Fetch takes -2 for none
                row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
                values = {"topics": [{"name": name, "partitions": [row]}]}
                response = session.call("ListOffsets", version, values, f"epoch {epoch}")
                assert first_row(response)["error_code"] == error

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("OffsetForLeaderEpoch"))
def test_offset_for_leader_epoch(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        session.topic(f"{name}-empty")
        produce_with_timestamps(session, name)

        def ask(topic: str, epoch: int, current: int = -1, partition: int = 0, **fields: Any) -> Any:
            row = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
            values: Fields = {"topics": [{"topic": topic, "partitions": [row]}], **fields}
            return session.call("OffsetForLeaderEpoch", version, values, f"{topic} {epoch} {current}")

        for topic in (name, f"{name}-empty"):
            for epoch in (-2, -1, 0, 1, 7):
                ask(topic, epoch)
        for current in (-2, 0, 1):
            ask(name, 0, current)
        ask(f"{name}-unknown", 0)
        ask(name, 0, partition=3)
        ask(name, 0, partition=-1)
        if version >= 3:
            ask(name, 0, replica_id=5)
            ask(name, 0, replica_id=-2)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DeleteRecords"))
def test_delete_records(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        session.topic(f"{name}-compacted", configs={"cleanup.policy": "compact"})
        # Kafka's cleaner, which nothing delays, would delete its old records.
        session.topic(f"{name}-both", configs={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
        for topic in (name, f"{name}-compacted", f"{name}-both"):
            produce_with_timestamps(session, topic)

        def delete(topic: str, offset: int, note: str = "", partition: int = 0) -> Any:
            row = {"partition_index": partition, "offset": offset}
            values: Fields = {"topics": [{"name": topic, "partitions": [row]}], "timeout_ms": 15000}
            return session.call("DeleteRecords", version, values, f"{topic} before {offset} {note}")

        delete(name, 3)
        delete(name, 3, "again")
        delete(name, 1, "less")
        delete(name, 7, "beyond the end")
        delete(name, -2)
        list_offsets(session, 5, name, [-2], "then")
        values: Fields = {"max_wait_ms": 0, "topics": [{"topic_id": topic_id, "partitions": []}]}
        for offset in (2, 3):
            values["topics"][0]["partitions"] = [
                {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 9999}
            ]
            session.call("Fetch", 16, values, f"from {offset}")
        delete(name, -1, "all")
        list_offsets(session, 5, name, [-2], "after all")
        session.produce(name, batch(1))
        list_offsets(session, 5, name, [-1], "end")
        delete(f"{name}-compacted", 1)
        delete(f"{name}-both", 1)
        delete(f"{name}-unknown", 1)
        delete(name, 1, partition=9)
        session.call("DeleteRecords", version, {"topics": [], "timeout_ms": 1000}, "nothing")

    pair.compare(scenario)


def test_by_time_after_a_segments_latest_record_was_deleted(bootstrap: str, target: str, name: str) -> None:
    """Kafka searches only the first segment with a late enough timestamp, and finds nothing if that was deleted.

    oncelog goes on to the next segment, and finds the record there.
    """
    session = Session(bootstrap)
    session.topic(name, configs={"segment.bytes": "1048576"})
    for after, size in ((1000, 10), (10, 10), (20, 800_000), (1000, 500_000)):
        records = batch([record(b"k", b"x" * size)], base_timestamp=BASE_MS + after)
        assert session.produce(name, records)["error_code"] == 0
    session.delete_records(name, 1)
    response = list_offsets(session, 7, name, [BASE_MS + 500])
    assert first_row(response)["offset"] == (3 if target.endswith("oncelog") else -1)
    session.close()
