"""read_committed reads over all kinds of gaps that transactions leave: Spark must not hang, miss or repeat records."""

import json
from typing import Any

import pytest

from spark_it.tests.queries import Query, kafka_batch, kafka_stream, running, sorted_rows
from spark_it.tests.topics import Topics, _produce, numbered

COMMITTED = {"kafka.isolation.level": "read_committed"}
NOW = {"availableNow": True}


@pytest.fixture
def gaps(topics: Topics, name: str) -> str:
    """A topic whose partitions have different gaps.

    0: aborted transactions at the start, in the middle and at the end (each transaction ends with a marker)
    1: only an aborted transaction
    2: a committed transaction; tests add an open one
    3: two committed transactions with other records between them
    """
    topics.make(name, 4)
    for commit in (False, True, False, True, False):
        topics.transaction(name, numbered(3), commit=commit)  # offsets 0-2 and a marker at 3, 4-6 and 7, …
    topics.transaction(name, numbered(3), commit=False, partition=1)
    topics.transaction(name, numbered(3), commit=True, partition=2)
    topics.transaction(name, numbered(2), commit=True, partition=3)
    topics.produce(name, numbered(2, 2), 3)
    topics.transaction(name, numbered(2, 4), commit=True, partition=3)
    return name


GOOD = (
    [(0, one) for one in (4, 5, 6, 12, 13, 14)]
    + [(2, 0), (2, 1), (2, 2)]
    + [(3, one) for one in (0, 1, 3, 4, 5, 6)]
)
ENDS = {0: 20, 1: 4, 2: 4, 3: 8}


def places(frame: Any) -> list[tuple[Any, ...]]:
    return [row[:2] for row in sorted_rows(frame)]


def test_batch_over_gaps(spark: Any, topics: Topics, gaps: str) -> None:
    """Whole partitions, and ranges that begin or end at each kind of offset."""
    with topics.transactional(f"{gaps}open") as producer:
        producer.begin_transaction()
        _produce(producer, gaps, numbered(3, 3), 2)
        assert places(kafka_batch(spark, topics.bootstrap, subscribe=gaps, **COMMITTED)) == GOOD
        dirty = kafka_batch(
            spark, topics.bootstrap, subscribe=gaps, **{"kafka.isolation.level": "read_uncommitted"}
        )
        assert dirty.where("partition = 0").count() == 15
        assert dirty.where("partition = 2").count() == 6
        # Ranges of partition 0: in the aborted start, only a marker, a marker at either end, in the aborted tail.
        for start, end in (
            (0, 2),
            (3, 4),
            (0, 5),
            (2, 12),
            (7, 13),
            (6, 8),
            (14, 20),
            (16, 20),
            (15, 16),
            (19, 20),
        ):
            ranges = {
                "assign": json.dumps({gaps: [0]}),
                "startingOffsets": json.dumps({gaps: {"0": start}}),
                "endingOffsets": json.dumps({gaps: {"0": end}}),
            }
            expected = [place for place in GOOD if place[0] == 0 and start <= place[1] < end]
            assert places(kafka_batch(spark, topics.bootstrap, **ranges, **COMMITTED)) == expected, (
                start,
                end,
            )
        split = kafka_batch(spark, topics.bootstrap, subscribe=gaps, minPartitions=12, **COMMITTED)
        assert places(split) == GOOD
        producer.abort_transaction(60)


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_streaming_over_gaps(spark: Any, topics: Topics, gaps: str, checkpoint: str, most: int) -> None:
    """Batches of several sizes, so that they end at markers and at aborted records."""
    if most == 1:  # a batch per offset of all partitions would take too long
        options: dict[str, Any] = {"assign": json.dumps({gaps: [1]}), "maxOffsetsPerTrigger": 1}
        expected: list[tuple[int, int]] = []
    else:
        options = {"subscribe": gaps, "maxOffsetsPerTrigger": 5 * most}
        expected = GOOD
    stream = kafka_stream(spark, topics.bootstrap, **options, **COMMITTED)
    query = Query(stream, checkpoint, **NOW).end()
    assert [row[:2] for row in query.rows] == expected


def test_a_transaction_under_a_running_query(spark: Any, topics: Topics, gaps: str, checkpoint: str) -> None:
    """An open transaction and the records after it are read once after its commit, and only the latter after an
    abort."""
    stream = kafka_stream(spark, topics.bootstrap, assign=json.dumps({gaps: [2]}), **COMMITTED)
    with running(stream, checkpoint, processingTime="0 seconds") as query:
        query.wait_for(lambda query: len(query.rows) == 3, "the first transaction")
        with topics.transactional(f"{gaps}open") as producer:
            producer.begin_transaction()
            _produce(producer, gaps, numbered(2, 10), 2)  # 4, 5
            topics.produce(gaps, numbered(1, 20), 2)  # 6: behind what is open
            query.wait_for(lambda query: query.has_new_progress(), "progress past the open transaction")
            assert len(query.rows) == 3
            producer.commit_transaction(60)
            query.wait_for(lambda query: len(query.rows) == 6, "what was committed, and behind it")
            producer.begin_transaction()
            _produce(producer, gaps, numbered(2, 30), 2)  # 8, 9
            producer.abort_transaction(60)
        topics.produce(gaps, numbered(1, 40), 2)  # 11
        query.wait_for(lambda query: len(query.rows) == 7, "what follows the aborted ones")
        assert [row[3] for row in query.rows] == ["v0", "v1", "v2", "v10", "v11", "v20", "v40"]
