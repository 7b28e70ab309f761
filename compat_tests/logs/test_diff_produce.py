"""Produce on both targets: which records are accepted, which are refused, and with which error."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers import SharedBrokers
from compat_tests.differential import Pair, Session, produce_request
from tests.common import facts
from tests.common.batches import (
    CONTROL,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    batch,
    now_ms,
    record,
)
from tests.common.definitions import ZERO_UUID, Fields, versions_of
from tests.common.frames import CLOSED

pytestmark = pytest.mark.also_on("proxy")

DAY_MS = 86_400_000


def read_back(session: Session, topic_id: bytes, partition: int = 0, start: int = 0) -> Any:
    """Fetch everything in the partition; the batches are compared."""
    row = {"partition": partition, "fetch_offset": start, "partition_max_bytes": 1 << 24}
    values: Fields = {
        "max_wait_ms": 0,
        "max_bytes": 1 << 25,
        "topics": [{"topic_id": topic_id, "partitions": [row]}],
    }
    return session.call("Fetch", 16, values, "read back")


@pytest.mark.parametrize("version", versions_of("Produce"))
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_all_versions_and_codecs(pair: Pair, name: str, version: int, codec: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        for acks in (-1, 1):
            key = topic_id if version >= 13 else name
            response = session.call(
                "Produce", version, produce_request(key, batch(3, codec=codec), acks=acks)
            )
            row = response["responses"][0]["partition_responses"][0]
            assert row["error_code"] == (76 if codec == ZSTD and version < 7 else 0)
        read_back(session, topic_id)

    pair.compare(scenario)


def wrong_max_timestamp() -> bytes:
    """A batch whose header has a later max timestamp than its record."""
    return batch(1, base_timestamp=now_ms(), max_timestamp=now_ms() + 5)


def two_records(**fields: Any) -> bytes:
    return batch([record(b"k", b"v"), record(b"l", b"w", offset_delta=1)], **fields)


# Records, most of them invalid, with the error for a plain topic (or two: of version 3, and of later ones).
RECORDS: dict[str, tuple[Callable[[], bytes], int | tuple[int, int]]] = {
    "right": (lambda: batch(2), 0),
    "nothing": (lambda: b"", 87),
    "less than a header": (lambda: batch(1)[:40], 87),
    "cut": (lambda: batch(1)[:-1], 87),
    "two batches": (lambda: batch(1) + batch(1), 87),
    "bytes after the batch": (lambda: batch(1) + b"\0" * 5, 0),
    "bad crc": (lambda: batch(1, crc=12345), 2),
    "magic 3": (lambda: batch(1, magic=3), 2),
    "magic -1": (lambda: batch(1, magic=-1), 2),
    "magic 0": (lambda: batch(1, magic=0), 87),
    "magic 1": (lambda: batch(1, magic=1), 87),
    "length too small": (lambda: batch(1, length=10), 2),
    "length negative": (lambda: batch(1, length=-5), 2),
    "length too large": (lambda: batch(1, length=4000), 87),
    "length smaller than the records": (lambda: two_records(length=52), 2),
    "fewer records than counted": (lambda: two_records(count=3), 87),
    "more records than counted": (lambda: two_records(count=1), 87),
    "count and last delta too large": (lambda: two_records(count=3, last_offset_delta=2), 87),
    "count and last delta too small": (lambda: two_records(count=1, last_offset_delta=0), 87),
    "last delta too large": (lambda: two_records(last_offset_delta=5), 87),
    "last delta too small": (lambda: two_records(last_offset_delta=0), 87),
    "count 0": (lambda: batch([], count=0, last_offset_delta=-1), 87),
    "count 0, delta 0": (lambda: batch([], count=0, last_offset_delta=0), 87),
    "count negative": (lambda: two_records(count=-1), 87),
    "deltas not in sequence": (lambda: batch([record(), record(offset_delta=2)], last_offset_delta=1), 0),
    "deltas start at 1": (lambda: batch([record(offset_delta=1), record(offset_delta=2)]), 0),
    "deltas alike": (lambda: batch([record(), record()]), 0),
    "bytes after a record": (lambda: batch([record(extra=b"x"), record(offset_delta=1)]), 87),
    "bytes after the records": (lambda: two_records(trailing=b"abc"), 87),
    "negative key length": (lambda: batch([b"\x0e\0\0\0\x03\x01\0\0"]), 87),
    "not a record": (lambda: batch([b"\x7f" * 12]), 87),
    "timestamp a day ahead": (lambda: batch(1, base_timestamp=now_ms() + DAY_MS), 32),
    "second timestamp a day ahead": (
        lambda: batch(
            [record(), record(offset_delta=1, timestamp_delta=DAY_MS)], max_timestamp=now_ms() + DAY_MS
        ),
        32,
    ),
    "timestamp -1": (lambda: batch(1, base_timestamp=-1), 0),
    "timestamp -2": (lambda: batch(1, base_timestamp=-2), 0),
    "timestamp 0": (lambda: batch(1, base_timestamp=0), 0),
    "max timestamp too large": (wrong_max_timestamp, 0),
    "max timestamp -1": (lambda: batch(1, max_timestamp=-1), 0),
    "codec 5": (lambda: batch(1, attributes=5), -1),
    "codec 7": (lambda: batch(1, attributes=7), -1),
    "invalid gzip": (lambda: batch(1, attributes=GZIP), -1),
    "invalid snappy": (lambda: batch(1, attributes=SNAPPY), -1),
    "invalid lz4": (lambda: batch(1, attributes=LZ4), -1),
    "invalid zstd": (lambda: batch(1, attributes=ZSTD), (76, -1)),
    "gzip, fewer records": (lambda: two_records(codec=GZIP, count=3, last_offset_delta=2), 87),
    "gzip, more records": (lambda: two_records(codec=GZIP, count=1, last_offset_delta=0), 87),
    "lz4, bytes after": (lambda: two_records(codec=LZ4, trailing=b"abc"), 0),
    "zstd, deltas alike": (lambda: batch([record(), record()], codec=ZSTD), (76, -1)),
    "control": (lambda: batch(1, attributes=CONTROL), 87),
    "control of a producer": (lambda: batch(1, attributes=CONTROL, producer=(9, 0, 0)), 87),
    "log append time": (lambda: batch(1, attributes=LOG_APPEND_TIME), 0),
    "delete horizon": (lambda: batch(1, attributes=64), 0),
    "unused attributes": (lambda: batch(1, attributes=0x4000), 0),
    "record attributes": (lambda: batch([b"\x10\x55\0\0\x02a\x02b\0"]), 0),
    "base offset and epoch set": (lambda: batch(2, base_offset=77, leader_epoch=3), 87),
    "base offset negative": (lambda: batch(2, base_offset=-9), 87),
    "no key, no value": (lambda: batch([record(None, None)]), 0),
    "header with null value": (lambda: batch([record(headers=[("h", None), ("h", b""), ("", b"x")])]), 0),
    "producer without sequence": (lambda: batch(1, producer=(5, 0, -1)), 87),
    "producer without epoch": (lambda: batch(1, producer=(5, -1, 0)), 0),
    "sequence without producer": (lambda: batch(1, producer=(-1, -1, 0)), 0),
    "producer id -2": (lambda: batch(1, producer=(-2, 0, 0)), 0),
}


@pytest.mark.parametrize("case", RECORDS)
def test_records(pair: Pair, name: str, case: str) -> None:
    make, errors = RECORDS[case]
    in_version_3, later = errors if isinstance(errors, tuple) else (errors, errors)

    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        for version in (3, 7, 9, 13):
            response = session.call(
                "Produce", version, produce_request(topic_id if version >= 13 else name, make())
            )
            row = response["responses"][0]["partition_responses"][0]
            assert row["error_code"] == (in_version_3 if version == 3 else later), (version, response)
        read_back(session, topic_id)

    pair.compare(scenario)


def test_null_records(brokers: SharedBrokers, name: str) -> None:
    """oncelog responds or closes the connection; Kafka, with a NullPointerException, never responds."""
    session = Session(brokers["oncelog"].bootstrap)
    topic_id = session.topic(name)
    for version in (3, 9, 13):
        response = session.call_unobserved(
            "Produce", version, produce_request(topic_id if version >= 13 else name, None)
        )
        assert response == CLOSED or response["responses"][0]["partition_responses"][0]["error_code"] == 87
    session.close()


@pytest.mark.parametrize("version", [7, 8, 9, 13])
def test_errors_of_single_records(pair: Pair, name: str, version: int) -> None:
    """KIP-467: which records of the batch were refused."""
    rows = [
        record(b"a"),
        record(None, offset_delta=1),
        record(b"b", offset_delta=2),
        record(None, offset_delta=3),
    ]
    late = [record(b"a"), record(b"b", offset_delta=1, timestamp_delta=-DAY_MS), record(b"c", offset_delta=2)]

    def scenario(session: Session) -> None:
        compacted = session.topic(f"{name}-compacted", configs={"cleanup.policy": "compact"})
        bounded = session.topic(f"{name}-bounded", configs={"message.timestamp.before.max.ms": "3600000"})
        for codec in (NONE, GZIP):
            key: str | bytes = compacted if version >= 13 else f"{name}-compacted"
            response = session.call(
                "Produce", version, produce_request(key, batch(rows, codec=codec)), "no keys"
            )
            assert response["responses"][0]["partition_responses"][0]["error_code"] == 87
            key = bounded if version >= 13 else f"{name}-bounded"
            response = session.call(
                "Produce", version, produce_request(key, batch(late, codec=codec)), "too old"
            )
            assert response["responses"][0]["partition_responses"][0]["error_code"] == 32
        read_back(session, compacted)

    pair.compare(scenario)


TOPICS: dict[str, dict[str, str]] = {
    "log append time": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "compact and delete": {"cleanup.policy": "compact,delete"},
    "small messages": {"max.message.bytes": "200"},
    "timestamps of the last hour": {"message.timestamp.before.max.ms": "3600000"},
    "timestamps far ahead": {"message.timestamp.after.max.ms": "9223372036854775807"},
    **{
        f"recompressed {codec}": {"compression.type": codec}
        for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd")
    },
    "recompressed and log append time": {
        "compression.type": "gzip",
        "message.timestamp.type": "LogAppendTime",
    },
}


@pytest.mark.parametrize("config", TOPICS)
def test_topic_configurations(pair: Pair, name: str, config: str) -> None:
    batches = {
        "plain": batch(3),
        "timestamps": batch(
            [record(b"a"), record(b"b", offset_delta=1, timestamp_delta=7)], max_timestamp=now_ms() + 7
        ),
        "wrong max timestamp": wrong_max_timestamp(),
        "gzip": batch(3, codec=GZIP),
        "snappy": batch(3, codec=SNAPPY),
        "lz4": batch(3, codec=LZ4),
        "zstd": batch(3, codec=ZSTD),
        "no key": batch([record(None)]),
        "no key, zstd": batch([record(None)], codec=ZSTD),
        "large": batch([record(b"k", b"x" * 300)]),
        "large, but not compressed": batch([record(b"k", b"x" * 300)], codec=GZIP),
        "day old": batch(1, base_timestamp=now_ms() - DAY_MS),
        "day ahead": batch(1, base_timestamp=now_ms() + DAY_MS),
        "idempotent": batch(2, producer=(4711, 0, 0)),
        "marked as log append time": batch(2, attributes=LOG_APPEND_TIME),
    }

    def scenario(session: Session) -> None:
        topic_id = session.topic(name, configs=TOPICS[config])
        for case, records in batches.items():
            session.call("Produce", 9, produce_request(name, records), case)
        read_back(session, topic_id)

    # Two compressors may compress the same records to different bytes.
    pair.compare(scenario, known=(r"read back: .*\.length",) if "recompressed" in config else ())


@pytest.mark.parametrize("acks", [-2, 2, 127, 0, 1, -1])
def test_acks(pair: Pair, name: str, acks: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        if acks == 0:
            session.connection.send("Produce", 9, produce_request(name, batch(1), acks=0))
            session.connection.send(
                "Produce", 9, produce_request(f"{name}-unknown", batch(1), partition=7, acks=0)
            )
            # The first has no response. The second is an error, which only a closed connection can report.
            frame = session.connection.receive_frame()
            session.observe("after an error without acks", frame)
            session.close()
        else:
            session.call("Produce", 9, produce_request(name, batch(1), acks=acks))
        read_back(session, topic_id)

    pair.compare(scenario)


def test_rows(pair: Pair, name: str) -> None:
    """Unknown topics and partitions, several rows, repeated rows."""
    other = f"{name}-other"

    def scenario(session: Session) -> None:
        topic_id, other_id = session.topic(name, 2), session.topic(other)

        def rows(*rows: tuple[str | bytes, list[int]]) -> Fields:
            topics = []
            for key, partitions in rows:
                data = [{"index": index, "records": batch(1)} for index in partitions]
                topics.append({"topic_id" if isinstance(key, bytes) else "name": key, "partition_data": data})
            return {"acks": -1, "timeout_ms": 15000, "topic_data": topics}

        session.call("Produce", 9, rows())
        session.call("Produce", 9, rows((name, [])))
        session.call("Produce", 9, rows((f"{name}-unknown", [0])))
        session.call("Produce", 9, rows(("", [0])))
        session.call("Produce", 9, rows(("a b", [0])))
        for version in (3, 9, 12):
            for partition in (2, -1, 1 << 30):
                session.call("Produce", version, rows((name, [partition])), f"partition {partition}")
        unordered = session.call_unobserved("Produce", 9, rows((other, [0]), (name, [1, 0, 7])))
        for topic in unordered["responses"]:
            topic["partition_responses"].sort(key=lambda row: row["index"])
        session.observe("two topics", sorted(unordered["responses"], key=lambda topic: topic["name"]))
        session.call("Produce", 13, rows((bytes(range(16)), [0])))
        session.call("Produce", 13, rows((ZERO_UUID, [0])))
        session.call("Produce", 13, rows((topic_id, [5])))
        both = session.call_unobserved("Produce", 13, rows((other_id, [0]), (bytes(range(16)), [0])))
        session.observe(
            "known and unknown",
            sorted(row["partition_responses"][0]["error_code"] for row in both["responses"]),
        )
        for partition in (0, 1):
            read_back(session, topic_id, partition)
        read_back(session, other_id)

    pair.compare(scenario)


def test_transactional_fields(pair: Pair, name: str) -> None:
    """A transactional batch without a transaction, and a transactional id without one."""

    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        for version in (3, 9, 11):
            transactional = produce_request(name, batch(1, attributes=TRANSACTIONAL, producer=(5, 0, 0)))
            session.call("Produce", version, transactional, "no transactional id")
            plain = produce_request(name, batch(1, producer=(5, 0, 0)))
            session.call("Produce", version, {**plain, "transactional_id": "t"}, "a transactional id only")
            session.call(
                "Produce",
                version,
                {**produce_request(name, batch(1)), "transactional_id": "t"},
                "no producer",
            )
        read_back(session, topic_id)

    pair.compare(scenario)


def test_responses_to_pipelined_requests_are_in_order(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        sent = [session.connection.send("Produce", 9, produce_request(name, batch(1))) for _ in range(20)]
        responses = [session.connection.receive("Produce", 9, correlation_id) for correlation_id in sent]
        session.observe("responses", responses)
        read_back(session, topic_id)

    pair.compare(scenario)


def test_message_sets_of_old_clients(pair: Pair, name: str) -> None:
    """A message set of magic 1, as Kafka 0.10 wrote it, which current brokers refuse."""
    message = b"\x01\0" + struct.pack(">q", now_ms()) + struct.pack(">i", -1) + struct.pack(">i", 1) + b"x"
    whole = struct.pack(">I", zlib.crc32(message)) + message
    message_set = struct.pack(">qi", 0, len(whole)) + whole

    def scenario(session: Session) -> None:
        session.topic(name)
        for version in (3, 9):
            session.call("Produce", version, produce_request(name, message_set))

    pair.compare(scenario)


def record_of(size: int, **fields: Any) -> bytes:
    """A record whose body has so many bytes."""
    small = record(value=b"", **fields)
    value = bytes(size)
    while len(body := record(value=value, **fields)) > size + 2:  # the varint of the body's size
        value = value[: len(value) - (len(body) - size - 2)]
    assert len(small) < len(body) == size + 2
    return body


@facts.needs(facts.LIMITS_DECOMPRESSED_RECORDS, "limit of decompressed records")
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("compression", ["producer", "gzip", "uncompressed"])
def test_the_largest_record_of_a_compressed_batch(
    pair: Pair, name: str, codec: int, compression: str
) -> None:
    """It counts without the size before it. A record that is not compressed is not asked, whatever becomes of it."""
    limit = 1000

    def scenario(session: Session) -> None:
        keys = {"max.decompressed.message.bytes": str(limit), "compression.type": compression}
        topic_id = session.topic(name, configs=keys)
        for note, records in (
            ("as large as may be", [record_of(limit)]),
            ("too large", [record_of(limit + 1)]),
            ("all small", [record(value=bytes(400), offset_delta=delta) for delta in range(4)]),
            ("the second is too large", [record_of(limit), record_of(limit + 1, offset_delta=1)]),
            ("and a broken one behind it", [record_of(limit + 1), record(offset_delta=1, extra=b"x")]),
            ("a broken one before it", [record(extra=b"x"), record_of(limit + 1, offset_delta=1)]),
            ("and a wrong offset behind it", [record_of(limit + 1), record(offset_delta=7)]),
        ):
            session.call("Produce", 9, produce_request(name, batch(records, codec=codec)), note)
        read_back(session, topic_id)

    pair.compare(scenario)


@facts.needs(facts.LIMITS_DECOMPRESSED_RECORDS, "limit of decompressed records")
def test_a_record_that_was_accepted_before_the_limit(pair: Pair, name: str) -> None:
    """The search for a timestamp reads it and fails; in other batches, and by headers alone, it goes on."""

    def scenario(session: Session) -> None:
        session.topic(name)
        start = now_ms() - DAY_MS
        small, large = [record(), record(offset_delta=1, timestamp_delta=1)], [record_of(1001)]
        for at, records in enumerate((small, large, small)):
            one = batch(records, codec=GZIP, base_timestamp=start + 10 * at)
            assert session.produce(name, one)["error_code"] == 0
        set_limit(session, name, 1000)
        for timestamp in (
            start,
            start + 1,
            start + 2,
            start + 10,
            start + 11,
            start + 21,
            start + 30,
            -1,
            -2,
            -3,
        ):
            row = {"partition_index": 0, "timestamp": timestamp}
            values = {"topics": [{"name": name, "partitions": [row]}]}
            response = session.call_unobserved("ListOffsets", 7, values)
            (found,) = response["topics"][0]["partitions"]
            session.observe(
                f"{timestamp - start if timestamp > 0 else timestamp}", (found["error_code"], found["offset"])
            )

    pair.compare(scenario)


def set_limit(session: Session, name: str, limit: int) -> None:
    change = {"name": "max.decompressed.message.bytes", "config_operation": 0, "value": str(limit)}
    resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response
    session.wait_for_config(name, "max.decompressed.message.bytes", str(limit))
