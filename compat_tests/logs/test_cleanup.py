"""Retention, compaction and rolling on both targets: which records are left after the broker's cleanup."""

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.differential import Session
from tests.common.batches import GZIP, batch, now_ms, read_batches, record

WAIT_MS = 40_000
FREQUENT_CLEANUP = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "1000",
}
HOUR_MS = 3_600_000


@pytest.fixture
def session(own_broker: Callable[..., Broker]) -> Any:
    opened = Session(own_broker(FREQUENT_CLEANUP).bootstrap)
    yield opened
    opened.close()


def first_offset(session: Session, name: str) -> int:
    rows = {"topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}]}
    return int(session.call_unobserved("ListOffsets", 4, rows)["topics"][0]["partitions"][0]["offset"])


def wait_until(check: Callable[[], bool]) -> None:
    """Call `check` until it is true."""
    deadline = now_ms() + WAIT_MS
    while not check():
        assert now_ms() < deadline


def stored_batches(session: Session, name: str) -> list[tuple[int, int]]:
    """The base offset and record count of every batch."""
    found: list[tuple[int, int]] = []
    offset = first_offset(session, name)
    while True:  # a response has records of one segment only
        row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 24}
        values = {"max_wait_ms": 0, "max_bytes": 1 << 24, "topics": [{"topic": name, "partitions": [row]}]}
        response = session.call_unobserved("Fetch", 12, values)["responses"][0]["partitions"][0]
        batches = list(read_batches(response["records"]))
        if not batches:
            return found
        found += [(one.base_offset, one.record_count) for one in batches]
        offset = batches[-1].base_offset + batches[-1].last_offset_delta + 1


def test_retention_by_time(session: Session, name: str) -> None:
    """Only whole segments are deleted; the active one may be rolled first; the log end offset stays."""
    session.topic(name, configs={"retention.ms": str(HOUR_MS)})
    for _ in range(3):
        assert session.produce(name, batch(2, base_timestamp=now_ms() - 2 * HOUR_MS))["error_code"] == 0
    wait_until(lambda: first_offset(session, name) == 6)
    assert session.produce(name, batch(1))["base_offset"] == 6
    assert stored_batches(session, name) == [(6, 1)]


def test_an_old_record_stays_with_a_young_one_of_its_segment(session: Session, name: str) -> None:
    def two_records(topic: str, **configs: str) -> None:
        session.topic(topic, configs={"retention.ms": str(HOUR_MS), **configs})
        for age_ms in (2 * HOUR_MS, 0):
            rows = batch(1, base_timestamp=now_ms() - age_ms)
            assert session.produce(topic, rows)["error_code"] == 0

    two_records(name)
    for others in (
        "first",
        "second",
    ):  # the first one's end may come before `name` was looked at, the second one's not
        apart = f"{name}-{others}"
        two_records(apart, **{"segment.ms": str(HOUR_MS)})
        wait_until(lambda topic=apart: first_offset(session, topic) == 1)  # type: ignore[misc]
        assert stored_batches(session, apart) == [(1, 1)]
    assert stored_batches(session, name) == [(0, 1), (1, 1)]


def test_retention_by_size(session: Session, name: str) -> None:
    session.topic(name, configs={"retention.bytes": "1500000", "segment.bytes": "1048576"})
    for _ in range(40):
        assert session.produce(name, batch([record(b"k", b"x" * 100_000)]))["error_code"] == 0
    # Ten batches fill a segment. Of the four, those are deleted whose removal leaves at least retention.bytes.
    wait_until(lambda: first_offset(session, name) == 20)
    assert first_offset(session, name) == 20
    assert stored_batches(session, name)[0] == (20, 1)


def test_compaction(session: Session, name: str) -> None:
    """The last value of each key stays at its offset; a tombstone too, until delete.retention.ms has passed."""
    configs = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    session.topic(name, configs={**configs, "delete.retention.ms": str(HOUR_MS)})
    for round_ in range(3):
        rows = [record(b"k%d" % key, b"%d" % round_, offset_delta=key) for key in range(5)]
        assert session.produce(name, batch(rows, codec=GZIP * (round_ % 2)))["error_code"] == 0
    assert session.produce(name, batch([record(b"k1", None)]))["base_offset"] == 15
    expected = [(b"k0", b"2"), (b"k2", b"2"), (b"k3", b"2"), (b"k4", b"2"), (b"k1", None)]

    def compacted() -> bool:
        # The active segment is never cleaned: a record with another key rolls it when it is old enough.
        session.produce(name, batch([record(b"other", b"x")]))
        batches = stored_batches(session, name)
        return sum(count for base, count in batches if base <= 15) == len(expected)

    wait_until(compacted)
    found = read_from_start(session.bootstrap, name, len(expected))
    assert found[: len(expected)] == [
        (10, *expected[0]),
        *((12 + n, *one) for n, one in enumerate(expected[1:4])),
        (15, *expected[4]),
    ]


def read_from_start(bootstrap: str, name: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of `count` records or more, from the start of the log."""
    from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        where = TopicPartition(name, 0)
        consumer.assign([where])
        consumer.seek(where, 0)
        found: list[tuple[int, bytes | None, bytes | None]] = []
        deadline = now_ms() + WAIT_MS
        while len(found) < count:
            assert now_ms() < deadline, found
            found += [(one.offset, one.key, one.value) for one in consumer.poll(1000).get(where, [])]
        return found
    finally:
        consumer.close()
