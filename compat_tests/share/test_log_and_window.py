"""A share group at its first offset, and at gaps of the log: deleted, compacted and aborted records. On both targets,
with a stock consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from compat_tests.conftest import OwnBrokers
from compat_tests.differential import Session
from compat_tests.logs.test_cleanup import FREQUENT_CLEANUP, stored_batches, wait_until
from compat_tests.share.readers import DEADLINE_MS, Reader, set_group_config, share_topic
from compat_tests.share.stock_reader import java_reading, read_until, reading, wait_until_done
from tests.common.batches import batch, now_ms, record

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
KEPT = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(1 << 62)}


@pytest.fixture
def session(bootstrap: str) -> Iterator[Session]:
    session = Session(bootstrap)
    yield session
    session.end()


def produce(session: Session, name: str, count: int, hours_ago: float = 0) -> int:
    row = session.produce(name, batch(count, base_timestamp=now_ms() - int(hours_ago * HOUR_MS)))
    assert row["error_code"] == 0, row
    return int(row["base_offset"])


def offsets(seen: list[tuple[int, int]]) -> list[int]:
    return [offset for offset, _ in seen]


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("earliest", range(6)),
        ("by_duration:PT1H30M", range(2, 6)),
        ("by_duration:P2D", range(6)),
        ("by_duration:PT0.5S", None),
        ("latest", None),
    ],
)
def test_where_a_group_begins(session: Session, name: str, reset: str, expected: range | None) -> None:
    """None: with records that come after it began."""
    session.topic(name, configs=KEPT)
    for hours in (24, 1, 0.5):
        produce(session, name, 2, hours)
    set_group_config(session, name, share_auto_offset_reset=reset)
    with reading(session.bootstrap, name) as consumer:
        if expected is not None:
            assert sorted(offsets(read_until(consumer, lambda seen: len(seen) >= len(expected)))) == list(
                expected
            )
        else:
            last = 6

            def has_new(seen: list[tuple[int, int]]) -> bool:
                nonlocal last
                if not seen:
                    last = produce(session, name, 1)
                return last in offsets(seen)

            assert min(offsets(read_until(consumer, has_new))) >= 6
    wait_until_done(session, name)


@pytest.mark.parametrize(("reset", "first"), [("by_duration:PT1H30M", 2), ("latest", 6)])
def test_where_javas_consumer_begins(session: Session, name: str, reset: str, first: int) -> None:
    session.topic(name, configs=KEPT)
    for hours in (24, 1, 0.5):
        produce(session, name, 2, hours)
    set_group_config(session, name, share_auto_offset_reset=reset)
    last = 5
    with java_reading(session.bootstrap, name) as consumer:
        while not consumer.has_begun(0.5):
            last = produce(session, name, 1)
        seen = consumer.wait_for(last)
        # After "latest", it begins at some record that came while it joined.
        assert seen[0] == (first, 1) if first < 6 else seen[0][0] >= first
        assert seen == [(offset, 1) for offset in range(seen[0][0], last + 1)]
    wait_until_done(session, name)


def delete_before(session: Session, name: str, offset: int) -> None:
    rows = [{"partition_index": 0, "offset": offset}]
    topics = {"topics": [{"name": name, "partitions": rows}], "timeout_ms": 15_000}
    response = session.call_unobserved("DeleteRecords", 2, topics)
    assert response["topics"][0]["partitions"][0]["error_code"] == 0, response


def first_poll(consumer: Any) -> list[Any]:
    while True:
        found = [message for message in consumer.poll(0.2) if message.error() is None]
        if found:
            return found


@pytest.mark.parametrize("what", ["accepted", "released"])
@pytest.mark.parametrize("deleted", [2, 6, 9])
def test_records_in_flight_are_deleted(session: Session, name: str, what: str, deleted: int) -> None:
    """The group goes on where the log begins, whatever becomes of what it holds."""
    session.topic(name)
    for _ in range(5):
        produce(session, name, 2)
    set_group_config(session, name, share_auto_offset_reset="earliest")
    with reading(session.bootstrap, name, max_poll_records=4) as consumer:
        held = first_poll(consumer)
        assert offsets([(one.offset(), 1) for one in held])[0] == 0
        delete_before(session, name, deleted)
        kind = confluent_kafka.AcknowledgeType.ACCEPT
        if what == "released":
            kind = confluent_kafka.AcknowledgeType.RELEASE
        for message in held:
            consumer.acknowledge(message, kind)
        consumer.commit_sync(30.0)
        first_new = deleted if what == "released" else max(deleted, held[-1].offset() + 1)
        produce(session, name, 1)
        expected = set(range(first_new, 11))
        seen = read_until(consumer, lambda seen: expected <= set(offsets(seen)))
    # A fetch may have been under way before the records were deleted.
    assert set(offsets(seen)) >= expected
    assert len(set(offsets(seen))) == len(seen)
    wait_until_done(session, name)


class Transactions:
    """A producer with transactions, and the offsets of its records."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._name = name
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0}
        )
        self._producer.init_transactions(30)
        self.committed: set[int] = set()
        self.aborted: set[int] = set()

    def run(self, count: int, *, commits: bool) -> None:
        into = self.committed if commits else self.aborted
        self._producer.begin_transaction()
        for number in range(count):
            self._producer.produce(
                self._name, str(number), on_delivery=lambda _, one: into.add(one.offset() or 0)
            )
            self._producer.flush(30)
        if commits:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(session: Session, name: str, level: str) -> None:
    """Markers, and with read_committed aborted records, are nobody's, and hold nobody up."""
    session.topic(name)
    set_group_config(session, name, share_auto_offset_reset="earliest", share_isolation_level=level)
    transactions = Transactions(session.bootstrap, name)
    for commits in (True, False, False, True, False):
        transactions.run(3, commits=commits)
    committed, aborted = transactions.committed, transactions.aborted
    expected = committed | aborted if level == "read_uncommitted" else committed
    with reading(session.bootstrap, name) as consumer:
        seen = read_until(consumer, lambda seen: len(seen) >= len(expected))
        assert set(seen) == {(offset, 1) for offset in expected}
        transactions.run(2, commits=True)
        assert len(read_until(consumer, lambda seen: len(seen) >= 2)) == 2
    # Nobody acquires the last marker before there is a record behind it.
    assert committed
    assert aborted


def test_java_reads_committed_records(session: Session, name: str) -> None:
    session.topic(name)
    set_group_config(
        session, name, share_auto_offset_reset="earliest", share_isolation_level="read_committed"
    )
    transactions = Transactions(session.bootstrap, name)
    with java_reading(session.bootstrap, name) as consumer:
        for commits in (True, False, True, False, True):
            transactions.run(3, commits=commits)
        seen = consumer.wait_for(max(transactions.committed))
        assert seen == [(offset, 1) for offset in sorted(transactions.committed)]
    assert len(transactions.aborted) == 6


def test_more_aborted_records_than_may_be_in_flight(session: Session, target: str, name: str) -> None:
    """Kafka's window is full of them, and stays so: nobody gets a record any more."""
    topic_id = share_topic(
        session, name, share_isolation_level="read_committed", share_partition_max_record_locks="100"
    )
    transactions = Transactions(session.bootstrap, name)
    transactions.run(110, commits=False)
    transactions.run(1, commits=True)
    reader = Reader(session, topic_id, "one", name)
    reader.begin(most=0)
    acquired: list[tuple[int, int, int]] = []
    deadline = now_ms() + (2_000 if target == "kafka" else DEADLINE_MS)
    while not acquired and now_ms() < deadline:
        acquired = reader.fetch(wait_ms=500)
    assert [
        offset in range(first, last + 1) for first, last, _ in acquired for offset in transactions.committed
    ] == ([] if target == "kafka" else [True])


def test_gaps_of_compaction(own_broker: OwnBrokers, name: str) -> None:
    session = Session(own_broker(FREQUENT_CLEANUP).bootstrap)
    configs = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    session.topic(name, configs=configs)
    set_group_config(session, name, share_auto_offset_reset="earliest")
    for value in range(6):
        rows = [record(b"k%d" % (key * value), b"v", offset_delta=key) for key in range(5)]
        assert session.produce(name, batch(rows))["error_code"] == 0
    last = {b"k%d" % (key * value): 5 * value + key for value in range(6) for key in range(5)}

    def compacted() -> bool:
        # The active segment is never cleaned: a record with another key rolls it when it is old enough.
        session.produce(name, batch([record(b"other", b"x")]))
        return sum(count for base, count in stored_batches(session, name) if base < 30) == len(last)

    wait_until(compacted)
    with reading(session.bootstrap, name) as consumer:
        seen = read_until(consumer, lambda seen: len([one for one in offsets(seen) if one < 30]) >= len(last))
        assert sorted(one for one in offsets(seen) if one < 30) == sorted(last.values())
        assert len(set(offsets(seen))) == len(seen)
        row = session.produce(name, batch(1))
        assert row["base_offset"] in offsets(
            read_until(consumer, lambda seen: row["base_offset"] in offsets(seen))
        )
    wait_until_done(session, name)
    session.close()
