"""Spark's Kafka connector, unmodified: streaming reads and writes."""

import json
from typing import Any

import pytest

from compat_tests.brokers import Broker
from spark_it.tests.queries import Query, Rows, kafka_stream, running
from spark_it.tests.topics import Topics, numbered

AT_ONCE = {"processingTime": "0 seconds"}
NOW = {"availableNow": True}


def rows(count: int, start: int = 0, partition: int = 0, first_number: int | None = None) -> Rows:
    """The rows that a read of `numbered` records returns."""
    number = start if first_number is None else first_number
    return [(partition, start + one, f"k{number + one}", f"v{number + one}") for one in range(count)]


@pytest.mark.also_on("proxy")
def test_available_now_and_a_checkpoint(
    spark: Any, topics: Topics, broker: Broker, name: str, checkpoint: str
) -> None:
    """The largest allowed batches; each record once in three runs, with a restart of the broker between them."""
    topics.make(name, 2)
    topics.produce(name, numbered(10), 0)
    topics.produce(name, numbered(4), 1)
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name, maxOffsetsPerTrigger=7)
    query = Query(stream, checkpoint, **NOW).end()
    assert query.rows == rows(10) + rows(4, partition=1)
    assert query.sizes == [7, 7]
    assert Query(stream, checkpoint, **NOW).end().rows == []
    topics.produce(name, numbered(3, 10))
    broker.restart()
    whole = kafka_stream(spark, topics.bootstrap, subscribe=name, maxRecordsPerPartition=1)
    query = Query(whole, checkpoint, **NOW).end()
    assert query.rows == rows(3, 10)
    assert list(query.tasks.values()) == [3]


def test_starting_offsets(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """By offset and by time, per partition; a checkpoint overrides both."""
    topics.make(name, 2)
    for partition in range(2):
        timed = [one._replace(timestamp=1000 * number) for number, one in enumerate(numbered(6), 1)]
        topics.produce(name, timed, partition)
    for number, (options, first) in enumerate(
        (
            ({"startingOffsets": json.dumps({name: {"0": 4, "1": -2}})}, (4, 0)),
            ({"startingOffsetsByTimestamp": json.dumps({name: {"0": 2500, "1": 6000}})}, (2, 5)),
        )
    ):
        stream = kafka_stream(spark, topics.bootstrap, subscribe=name, **options)
        query = Query(stream, f"{checkpoint}{number}", **NOW).end()
        assert query.rows == rows(6 - first[0], first[0]) + rows(6 - first[1], first[1], partition=1)
    assert Query(stream, f"{checkpoint}0", **NOW).end().rows == []


@pytest.mark.also_on("proxy")
def test_while_it_runs(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """A running query gets new records, a new partition, and a new topic of its pattern; another has an assignment."""
    topics.make(name, 2)
    topics.produce(name, numbered(2))
    pattern = {"subscribePattern": f"{name}.*", "startingOffsets": "latest", "groupIdPrefix": "mine"}
    stream = kafka_stream(spark, topics.bootstrap, **pattern, **{"kafka.metadata.max.age.ms": "500"})
    assigned = kafka_stream(
        spark, topics.bootstrap, assign=json.dumps({name: [0]}), **{"kafka.group.id": "g"}
    )
    with running(stream, checkpoint, **AT_ONCE) as query, running(assigned, f"{checkpoint}-2") as other:
        query.wait_for(lambda query: query.has_new_progress(), "the first look")
        topics.produce(name, numbered(3, 2))
        query.wait_for(lambda query: query.rows == rows(3, 2), "new records")
        topics.add_partitions(name, 3)
        topics.produce(name, numbered(5), 2)
        query.wait_for(lambda query: query.rows == rows(3, 2) + rows(5, partition=2), "a new partition")
        topics.make(f"{name}late", 1)
        topics.produce(f"{name}late", numbered(1, 77))
        query.wait_for(lambda query: (0, 0, "k77", "v77") in query.rows, "a new topic")
        other.wait_for(lambda query: query.rows == rows(5), "what was assigned")


def test_at_least_so_many(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """minOffsetsPerTrigger holds a small batch back, until maxTriggerDelay has passed."""
    topics.make(name)
    topics.produce(name, numbered(1))
    patient = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name, **patient)
    with running(stream, checkpoint, **AT_ONCE) as query:
        query.wait_for(lambda query: query.sizes == [1], "the first batch waits for nothing")
        topics.produce(name, numbered(4, 1))
        query.wait_for(lambda query: query.has_new_progress(), "a look at the four")
        assert query.sizes == [1]
        topics.produce(name, numbered(8, 5))
        query.wait_for(lambda query: sum(query.sizes) == 13, "enough")
        assert query.sizes == [1, 12]
    topics.produce(name, numbered(2, 13))
    hasty = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "500ms"}
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name, **hasty)
    with running(stream, checkpoint, **AT_ONCE) as query:
        query.wait_for(lambda query: query.rows == rows(2, 13), "two records after the delay")


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
def test_a_recreated_topic(spark: Any, topics: Topics, name: str, checkpoint: str, lenient: bool) -> None:
    """A topic is recreated under a running query, which fails, or with failOnDataLoss=false continues."""
    topics.make(name)
    topics.produce(name, numbered(10))
    options = {"failOnDataLoss": "false"} if lenient else {}
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name, **options)
    with running(stream, checkpoint, **AT_ONCE) as query:
        query.wait_for(lambda query: query.rows == rows(10), "the old topic")
        topics.delete(name)
        topics.make(name)
        topics.produce(name, numbered(3, 50))
        if not lenient:
            with pytest.raises(
                Exception, match=r"(?s)data may have been missed|was changed from|failOnDataLoss"
            ):
                query.end()
            assert query.rows == rows(10)
            return
        query.wait_for(lambda query: query.has_new_progress(), "a look at the new topic")
        topics.produce(name, numbered(10, 53))
        query.wait_for(lambda query: "v62" in [row[3] for row in query.rows], "the new topic's last record")


def test_deleted_records(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """Between two runs retention and DeleteRecords remove records that were not read yet."""
    topics.make(name, 2, {"retention.ms": "-1"})
    ancient = [one._replace(timestamp=1000) for one in numbered(10)]
    topics.produce(name, numbered(5), 0)
    topics.produce(name, ancient[:5], 1)
    first = kafka_stream(spark, topics.bootstrap, subscribe=name)
    assert len(Query(first, checkpoint, **NOW).end().rows) == 10
    topics.produce(name, numbered(5, 5), 0)
    topics.produce(name, ancient[5:], 1)
    topics.delete_records(name, 0, 8)
    topics.configure(name, "retention.ms", "86400000")
    topics.wait_for_start(name, 1, 10)
    topics.produce(name, numbered(1, 10), 1)
    strict = kafka_stream(spark, topics.bootstrap, subscribe=name)
    with pytest.raises(Exception, match=r"(?s)data may have been lost"):
        Query(strict, checkpoint, **NOW).end()
    lenient = kafka_stream(spark, topics.bootstrap, subscribe=name, failOnDataLoss="false")
    query = Query(lenient, checkpoint, **NOW).end()
    assert query.rows == rows(2, 8) + rows(1, 10, partition=1)


@pytest.mark.also_on("proxy")
def test_from_topic_to_topic(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """The sink writes the source's records; a second run adds only new ones."""
    out = topics.make(f"{name}out", 2)
    topics.make(name)
    for start in (0, 20):
        topics.produce(name, numbered(20, start))
        stream = kafka_stream(
            spark, topics.bootstrap, subscribe=name, maxOffsetsPerTrigger=8, includeHeaders="true"
        )
        writer = stream.select("key", "value", "headers").writeStream.format("kafka").option("topic", out)
        writer = writer.option("kafka.bootstrap.servers", topics.bootstrap).option("includeHeaders", "true")
        query = writer.option("checkpointLocation", checkpoint).trigger(**NOW).start()
        assert query.awaitTermination(120)
        found = sorted(int((value or b"")[1:]) for value in topics.values(out, 2))
        assert found == list(range(start + 20))


def test_deprecated_offset_fetching(spark: Any, topics: Topics, name: str, checkpoint: str) -> None:
    """As before Spark 3.4, the driver is a member of a group with the given prefix or name."""
    topics.make(name)
    topics.produce(name, numbered(5))
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, "true")
    try:
        for number, options in enumerate(
            ({"groupIdPrefix": f"{name}prefix"}, {"kafka.group.id": f"{name}whole"})
        ):
            stream = kafka_stream(spark, topics.bootstrap, subscribe=name, **options)
            with running(stream, f"{checkpoint}{number}", **AT_ONCE) as query:
                query.wait_for(lambda query: query.rows == rows(5), "records")
                groups = [one.group_id for one in topics.admin.list_consumer_groups().result(60).valid]
                (group,) = options.values()
                assert any(one.startswith(group) for one in groups), groups
    finally:
        spark.conf.unset(key)
