"""The first ShareFetch of share partitions that are not loaded yet: it gets the first that is loaded and has records,
and the next ShareFetch the others.
"""

from __future__ import annotations

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.share.readers import DEADLINE_MS, VERSION, Reader, share_topic
from compat_tests.share.stock_reader import reading
from tests.common.batches import batch, now_ms

pytestmark = pytest.mark.slow

PARTITIONS = 4
RECORDS = 5
TRIES = 4


def _read(reader: Reader) -> list[int]:
    """Fetch once; return the partitions of which records came."""
    response = reader.connection.call("ShareFetch", VERSION, reader.body(wait_ms=DEADLINE_MS))
    assert response["error_code"] == 0, response
    reader.epoch += 1
    rows = [row for topic in response["responses"] for row in topic["partitions"]]
    assert all(row["error_code"] == 0 for row in rows), rows
    return sorted(row["partition_index"] for row in rows if row["acquired_records"])


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("filled", [(0, 1, 2, 3), (1, 3)], ids=["all have records", "the first is empty"])
def test_the_first_loaded_answers_first(pair: Pair, name: str, filled: tuple[int, ...]) -> None:
    """Kafka reads the first state alone, then those that came meanwhile. On a busy machine it may have several before
    its fetch looks, so there are some tries.
    """

    def scenario(session: Session) -> None:
        first: list[int] = []
        for one in range(TRIES):
            first = begin(session, f"{name}-{one}", filled)
            if len(first) == 1:
                break
        session.observe("the first response", first)

    pair.compare(scenario)


def begin(session: Session, name: str, filled: tuple[int, ...]) -> list[int]:
    """Read a topic with records in some partitions until all have come. Returns the first response's partitions."""
    topic_id = share_topic(session, name, partitions=PARTITIONS)
    for partition in filled:
        assert session.produce(name, batch(RECORDS), partition=partition)["error_code"] == 0
    reader = Reader(session, topic_id, "one", name, PARTITIONS)
    first = _read(reader)
    rest: list[int] = []
    deadline = now_ms() + DEADLINE_MS
    while len(first) + len(rest) < len(filled):
        assert now_ms() < deadline, (first, rest)
        rest += _read(reader)
    assert sorted(first + rest) == list(filled)
    return first


def test_a_stock_consumer_gets_one_partition_first(bootstrap: str, name: str) -> None:
    """librdkafka's: a program that ends after its first poll leaves the records of the other partition to the group."""
    seen = []
    for one in range(TRIES):
        seen.append(poll_all(bootstrap, f"{name}-{one}"))
        if seen[-1] == [(50, 1), (50, 1)]:
            return
    raise AssertionError(seen)


def poll_all(bootstrap: str, name: str) -> list[tuple[int, int]]:
    """Read 50 records of each of two partitions. Returns the numbers of records and of partitions of each poll."""
    session = Session(bootstrap)
    share_topic(session, name, partitions=2)
    for partition in range(2):
        assert session.produce(name, batch(50), partition=partition)["error_code"] == 0
    gone = {"group_id": name, "member_id": "initializing-member", "member_epoch": -1}
    assert session.call_unobserved("ShareGroupHeartbeat", 1, gone)["error_code"] == 0
    session.close()
    polls: list[list[int]] = []
    with reading(bootstrap, name) as consumer:
        deadline = now_ms() + DEADLINE_MS
        while sum(map(len, polls)) < 100:
            assert now_ms() < deadline, polls
            if messages := [one for one in consumer.poll(1) if one.error() is None]:
                polls.append([one.partition() for one in messages])
                for one in messages:
                    consumer.acknowledge(one)
                consumer.commit_sync(30.0)
    return [(len(one), len(set(one))) for one in polls]
