"""Spark's Kafka source and sink, unmodified, while each of three nodes is restarted in its turn, and one is killed."""

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.oncelog_cluster import OncelogCluster
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import create_topic
from spark_it.tests.queries import kafka_stream
from spark_it.tests.topics import DEADLINE_S, Topics, numbered, wait_until
from tests.common.jars import RealPartMissing, require

CLUSTERS: dict[str, type[KafkaCluster] | type[OncelogCluster]] = {
    "kafka": KafkaCluster,
    "oncelog": OncelogCluster,
}
PARTITIONS = 2
RECORDS = 40


@pytest.fixture
def kafka(target: str) -> Iterator[Cluster]:
    """Three nodes."""
    try:
        with CLUSTERS[target]() as cluster:
            yield cluster
    except RealPartMissing as missing:
        require(str(missing))


def test_exact_results(spark: Any, kafka: Cluster, name: str, checkpoint: str) -> None:
    topics = Topics(kafka.bootstrap_servers)
    source, sink = f"{name}in", f"{name}out"
    for topic in (source, sink):
        create_topic(kafka, topic, (1, 2, 3), (2, 3, 1))
    stream = kafka_stream(spark, kafka.bootstrap_servers, subscribe=source)
    writer = stream.selectExpr("key", "value", "partition").writeStream.format("kafka")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": sink,
        "checkpointLocation": checkpoint,
    }
    query = writer.options(**options).trigger(processingTime="0 seconds").start()
    count = 0

    def write() -> None:
        nonlocal count
        for partition in range(PARTITIONS):
            topics.produce(source, numbered(RECORDS, count), partition)
        count += RECORDS

    def written() -> bool:
        if (error := query.exception()) is not None:
            raise error
        return all(topics.ends(sink, partition)[1] >= count for partition in range(PARTITIONS))

    try:
        for leave in [*(node.stop for node in kafka.nodes.values()), kafka.nodes[2].kill]:
            write()
            leave()
            write()
            wait_until(written, "all that was written before the node came back", 2 * DEADLINE_S)
            for node in kafka.nodes.values():
                node.start()
            write()
            for topic in (source, sink):
                kafka.topic(topic).wait_until_in_sync()
        wait_until(written, "everything", 2 * DEADLINE_S)
    finally:
        query.stop()
    expected = [(f"k{number}".encode(), f"v{number}".encode()) for number in range(count)]
    for partition in range(PARTITIONS):
        assert [(one.key(), one.value()) for one in topics.read(sink, partition)] == expected
    topics.close()
