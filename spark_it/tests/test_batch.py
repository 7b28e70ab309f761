"""Spark's Kafka connector, unmodified: batch reads and writes."""

from typing import Any

from spark_it.tests.topics import Record, Topics


def kafka(spark: Any, bootstrap: str, **options: Any) -> Any:
    """A batch read."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def test_every_column(spark: Any, topics: Topics, name: str) -> None:
    topics.make(name, 2)
    records = [
        Record(None, b"no key", timestamp=1000),
        Record(b"key", None, timestamp=2000),
        Record(b"", b"", (("h", b"1"), ("h", None), ("", b"")), 3000),
    ]
    topics.produce(name, records, 1)
    frame = kafka(spark, topics.bootstrap, subscribe=name, includeHeaders="true")
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    found = frame.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("offset").collect()
    assert [(row.key, row.value, row.ms) for row in found] == [
        (None, b"no key", 1000),
        (b"key", None, 2000),
        (b"", b"", 3000),
    ]
    assert {(row.topic, row.partition, row.timestampType) for row in found} == {(name, 1, 0)}
    assert [row.offset for row in found] == [0, 1, 2]
    assert found[0].headers is None
    assert [tuple(one) for one in found[2].headers] == [("h", b"1"), ("h", None), ("", b"")]
