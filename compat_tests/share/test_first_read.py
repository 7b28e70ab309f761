"""The first ShareFetch of share partitions that are not loaded yet: it gets the first that is loaded and has records,
and the next ShareFetch the others.
"""

from __future__ import annotations

import pytest

from compat_tests.batches import batch, now_ms
from compat_tests.differential import Pair, Session
from compat_tests.share.readers import DEADLINE_MS, VERSION, Reader, share_topic
from compat_tests.share.stock_reader import reading

pytestmark = pytest.mark.slow

PARTITIONS = 4
RECORDS = 5


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
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, partitions=PARTITIONS)
        for partition in filled:
            assert session.produce(name, batch(RECORDS), partition=partition)["error_code"] == 0
        reader = Reader(session, topic_id, "one", name, PARTITIONS)
        first = _read(reader)
        # Kafka reads the first state alone, then several with one request: it may have two before it looks.
        session.observe("the first response", first if 0 in filled else first[:1])
        rest: list[int] = []
        deadline = now_ms() + DEADLINE_MS
        while len(first) + len(rest) < len(filled):
            assert now_ms() < deadline, (first, rest)
            rest += _read(reader)
        session.observe("all", sorted(first + rest))
        reader.leave()

    pair.compare(scenario)


def test_a_stock_consumer_gets_one_partition_first(bootstrap: str, name: str) -> None:
    """librdkafka's: a program that ends after its first poll leaves the records of the other partition to the group."""
    session = Session(bootstrap)
    share_topic(session, name, partitions=2)
    for partition in range(2):
        assert session.produce(name, batch(50), partition=partition)["error_code"] == 0
    gone = {"group_id": name, "member_id": "initializing-member", "member_epoch": -1}
    assert session.call_unobserved("ShareGroupHeartbeat", 1, gone)["error_code"] == 0
    session.close()
    with reading(bootstrap, name) as consumer:
        polls: list[list[int]] = []
        deadline = now_ms() + DEADLINE_MS
        while len(polls) < 2:
            assert now_ms() < deadline, polls
            if messages := [one for one in consumer.poll(1) if one.error() is None]:
                polls.append([one.partition() for one in messages])
                for one in messages:
                    consumer.acknowledge(one)
                consumer.commit_sync(30.0)
    assert [(len(one), len(set(one))) for one in polls] == [(50, 1), (50, 1)]
