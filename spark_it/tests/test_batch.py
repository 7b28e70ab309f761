"""Spark's Kafka connector, unmodified: batch reads and writes."""

import json
from typing import Any

import pytest

from spark_it.tests.queries import kafka_batch as kafka
from spark_it.tests.queries import sorted_rows
from spark_it.tests.topics import Record, Topics, numbered


def offsets_of(frame: Any) -> dict[int, list[int]]:
    """The offsets of the rows, by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset, _, _ in sorted_rows(frame):
        found.setdefault(partition, []).append(offset)
    return found


@pytest.mark.also_on("proxy")
def test_every_column(spark: Any, topics: Topics, name: str) -> None:
    topics.make(name, 2)
    records = [
        Record(None, b"no key", timestamp=1000),
        Record(b"key", None, timestamp=2000),
        Record(b"", b"", (("h", b"1"), ("h", None), ("", b"")), 3000),
    ]
    topics.produce(name, records, 1)
    frame = kafka(spark, topics.bootstrap, subscribe=name, includeHeaders="true")
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert frame.columns == columns
    found = frame.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("offset").collect()
    expected = [(None, b"no key", 1000), (b"key", None, 2000), (b"", b"", 3000)]
    assert [(row.key, row.value, row.ms) for row in found] == expected
    assert {(row.topic, row.partition, row.timestampType) for row in found} == {(name, 1, 0)}
    assert [row.offset for row in found] == [0, 1, 2]
    assert found[0].headers is None
    assert [tuple(one) for one in found[2].headers] == [("h", b"1"), ("h", None), ("", b"")]


@pytest.mark.also_on("proxy")
def test_ranges_by_offset(spark: Any, topics: Topics, name: str) -> None:
    topics.make(name, 3)
    for partition in range(2):
        topics.produce(name, numbered(10, 100 * partition), partition)
    start = json.dumps({name: {"0": 3, "1": -2, "2": 0}})
    end = json.dumps({name: {"0": 7, "1": -1, "2": -1}})
    ranges = {"startingOffsets": start, "endingOffsets": end}
    expected = {0: [3, 4, 5, 6], 1: list(range(10))}
    assert offsets_of(kafka(spark, topics.bootstrap, subscribe=name, **ranges)) == expected
    pattern = f"{name[:-1]}[^0-9].*"
    assert offsets_of(kafka(spark, topics.bootstrap, subscribePattern=pattern, **ranges)) == expected
    assigned = {"assign": json.dumps({name: [0]}), "startingOffsets": json.dumps({name: {"0": 3}})}
    frame = kafka(spark, topics.bootstrap, **assigned, groupIdPrefix="mine")
    assert sorted_rows(frame) == [(0, offset, f"k{offset}", f"v{offset}") for offset in range(3, 10)]
    whole = {"startingOffsets": "earliest", "endingOffsets": "latest", "kafka.group.id": "a-group"}
    frame = kafka(spark, topics.bootstrap, subscribe=name, **whole)
    assert offsets_of(frame) == {0: list(range(10)), 1: list(range(10))}


@pytest.mark.also_on("proxy")
def test_ranges_by_time(spark: Any, topics: Topics, name: str) -> None:
    topics.make(name, 2)
    topics.produce(name, [Record(b"k", b"v", timestamp=1000 * one) for one in range(1, 11)], 0)
    topics.produce(name, [Record(b"k", b"v", timestamp=500 * one) for one in range(1, 11)], 1)
    by_time = {
        "startingOffsetsByTimestamp": json.dumps({name: {"0": 2500, "1": 2500}}),
        "endingOffsetsByTimestamp": json.dumps({name: {"0": 6000, "1": 6000}}),  # no such time in 1: its end
    }
    assert offsets_of(kafka(spark, topics.bootstrap, subscribe=name, **by_time)) == {
        0: [2, 3, 4],
        1: [4, 5, 6, 7, 8, 9],
    }
    one_time = {"startingTimestamp": "4000", "endingTimestamp": "5000"}
    assert offsets_of(kafka(spark, topics.bootstrap, subscribe=name, **one_time)) == {0: [3], 1: [7, 8]}
    too_late = {"startingTimestamp": "9000"}  # no such time in 1
    with pytest.raises(Exception, match=r"(?s)No offset matched from request of topic-partition"):
        kafka(spark, topics.bootstrap, subscribe=name, **too_late).count()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets_of(kafka(spark, topics.bootstrap, subscribe=name, **too_late, **strategy)) == {0: [8, 9]}


def test_partitions_are_split(spark: Any, topics: Topics, name: str) -> None:
    topics.make(name, 2)
    topics.produce(name, numbered(90), 0)
    topics.produce(name, numbered(10), 1)
    expected = {0: list(range(90)), 1: list(range(10))}
    for minimum, tasks in ((1, 2), (10, 10)):
        frame = kafka(spark, topics.bootstrap, subscribe=name, minPartitions=minimum)
        assert frame.rdd.getNumPartitions() == tasks
        assert offsets_of(frame) == expected


@pytest.mark.also_on("proxy")
def test_the_sink(spark: Any, topics: Topics, name: str) -> None:
    other = topics.make(f"{name}other")
    topics.make(name, 3)
    frame = spark.range(30).selectExpr("id", "cast(concat('k', id) as binary) as key")
    frame = frame.selectExpr(
        "key",
        "if(id % 5 = 0, null, cast(id as string)) as value",
        "array(struct('h' as key, cast(cast(id as string) as binary) as value)) as headers",
        "cast(id % 3 as int) as partition",
        f"if(id < 27, '{name}', '{other}') as topic",
    )
    writer = frame.where(f"topic = '{name}'").write.format("kafka").option("includeHeaders", "true")
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap)
    writer.option("kafka.compression.type", "zstd").option("kafka.acks", "all").save()
    found = [(one.partition(), one) for partition in range(3) for one in topics.read(name, partition)]
    assert len(found) == 27
    for partition, message in found:
        number = int((message.key() or b"")[1:])
        assert partition == number % 3
        assert message.value() == (None if number % 5 == 0 else str(number).encode())
        assert message.headers() == [("h", str(number).encode())]
    # The option overrides the column, and a row without a partition is partitioned by its key.
    writer = frame.drop("partition", "headers").write.format("kafka")
    writer.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", other).save()
    assert sorted(topics.values(other), key=str) == sorted(
        [None if one % 5 == 0 else str(one).encode() for one in range(30)], key=str
    )
    assert sum(topics.ends(name, partition)[1] for partition in range(3)) == 27


def test_deleted_records(spark: Any, topics: Topics, name: str) -> None:
    """After DeleteRecords a read fails, or with failOnDataLoss=false returns the remaining records."""
    topics.make(name)
    topics.produce(name, numbered(10))
    topics.delete_records(name, 0, 6)
    ranges = {"startingOffsets": json.dumps({name: {"0": 2}}), "endingOffsets": "latest"}
    strict = kafka(spark, topics.bootstrap, subscribe=name, **ranges)
    with pytest.raises(
        Exception, match=r"(?si)data loss|data may have been (lost|missed)|failOnDataLoss|out of range"
    ):
        strict.count()
    lenient = kafka(spark, topics.bootstrap, subscribe=name, failOnDataLoss="false", **ranges)
    assert offsets_of(lenient) == {0: [6, 7, 8, 9]}
    assert offsets_of(kafka(spark, topics.bootstrap, subscribe=name)) == {0: [6, 7, 8, 9]}


def test_missing_and_empty_topics(spark: Any, topics: Topics, name: str) -> None:
    with pytest.raises(Exception, match=r"(?s)UnknownTopicOrPartition"):
        kafka(spark, topics.bootstrap, subscribe=name).count()
    topics.make(name)
    assert kafka(spark, topics.bootstrap, subscribe=name).count() == 0
