"""The directories of three nodes and their controller: Kafka starts on what oncelog wrote, and oncelog on Kafka's."""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.oncelog_cluster import ServedCluster
from compat_tests.nodes.topic import create_topic
from compat_tests.nodes.waiting import wait_until
from tests.common import exchanges
from tests.common.jars import RealPartMissing, require

TIMEOUT_S = 60
RECORDS = 5
GROUP = "readers"
PARTITIONS = 2
Served = KafkaCluster | ServedCluster


def fill(cluster: Served, name: str) -> None:
    """Create a topic with records, a committed and an aborted transaction; commit offsets; move its leaders."""
    topic = create_topic(cluster, name, (1, 2, 3), (2, 3, 1), configs={"retention.ms": "-1"})
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    write(plain, name, "before")
    topic.reassign([3, 1], 1)
    topic.wait_for(lambda row: set(row.isr) == {1, 3} == set(row.replicas), 1)
    cluster.move_leader(name, 0, to=2)
    producer = transactional(cluster, name)
    read_to = TopicPartition(name, 0, RECORDS)
    for end in ("abort", "commit"):
        producer.begin_transaction()
        write(producer, name, end)
        group = consumer_of(cluster)
        producer.send_offsets_to_transaction([read_to], group.consumer_group_metadata(), TIMEOUT_S)
        group.close()
        getattr(producer, f"{end}_transaction")(TIMEOUT_S)
    write(plain, name, "after")
    group = consumer_of(cluster)
    group.commit(offsets=[TopicPartition(name, 1, 3, metadata=name)], asynchronous=False)
    group.close()


def leave_open(cluster: Served, name: str) -> None:
    """Begin a transaction that nobody ends."""
    topic = create_topic(cluster, f"open-{name}", (1, 2, 3), (2, 3, 1))
    producer = transactional(cluster, topic.name)
    producer.begin_transaction()
    write(producer, topic.name, "abort")


def finish(cluster: Served, name: str) -> None:
    """A producer of the same transactional id ends it, and commits one of its own."""
    producer = transactional(cluster, f"open-{name}")
    producer.begin_transaction()
    write(producer, f"open-{name}", "commit")
    producer.commit_transaction(TIMEOUT_S)
    expected = [f"commit-{number}".encode() for number in range(RECORDS)]
    for partition in range(PARTITIONS):
        assert [value for _, value in read(cluster, f"open-{name}", partition, "read_committed")] == expected


def transactional(cluster: Served, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"id-{name}"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, name: str, what: str) -> None:
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(name, f"{what}-{number}", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def consumer_of(cluster: Served, isolation: str = "read_committed") -> Consumer:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": GROUP,
        "isolation.level": isolation,
    }
    return Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})


def contents(cluster: Served, name: str) -> dict[str, Any]:
    """Everything that `fill` wrote, as a stock client reads it."""
    rows = cluster.topic(name).wait_until_in_sync()
    found: dict[str, Any] = {"replicas": [row.replicas for row in rows]}
    for isolation in ("read_uncommitted", "read_committed"):
        for partition in range(PARTITIONS):
            found[f"{isolation} {partition}"] = read(cluster, name, partition, isolation)
            found[f"ends {partition}"] = same_ends(cluster, name, partition)
    group = consumer_of(cluster)
    asked = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
    found["offsets"] = [(one.offset, one.metadata or "") for one in group.committed(asked, TIMEOUT_S)]
    group.close()
    found["epochs"] = [row.epoch for row in rows]
    return found


def same_ends(cluster: Served, name: str, partition: int) -> dict[int, int]:
    """The end of each replica's log, once they are the same."""
    topic = cluster.topic(name)
    return wait_until(lambda: topic.ends(partition), lambda ends: len({*ends.values()}) == 1, "the copies")


def read(cluster: Served, name: str, partition: int, isolation: str) -> list[tuple[int, bytes]]:
    """The offset and value of each record that a consumer gets, to the end."""
    with contextlib.closing(consumer_of(cluster, isolation)) as consumer:
        consumer.assign([TopicPartition(name, partition, 0)])
        found: list[tuple[int, bytes]] = []
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            assert error is None, error
            found.append((message.offset() or 0, message.value() or b""))


def visit(cluster: Served, name: str, before: dict[str, dict[str, Any]], *, kill: bool) -> None:
    """Start the cluster on the directories: what was written before is there, and `name` is written."""
    with cluster:
        for topic, expected in before.items():
            found = contents(cluster, topic)
            assert all(new >= old for new, old in zip(found["epochs"], expected["epochs"], strict=True))
            assert {**found, "epochs": []} == {**expected, "epochs": []}, topic
            before[topic] = found
        if before:
            finish(cluster, [*before][-1])
        fill(cluster, name)
        before[name] = contents(cluster, name)
        assert [row[1] for row in before[name]["read_committed 0"]] == [
            f"{what}-{number}".encode() for what in ("before", "commit", "after") for number in range(RECORDS)
        ]
        assert before[name]["offsets"] == [(RECORDS, ""), (3, name)]
        leave_open(cluster, name)
        end: Callable[[], object]
        if isinstance(cluster, KafkaCluster):
            end = cluster.kill_all if kill else cluster.stop_all
        else:
            end = cluster.kill if kill else cluster.stop
        end()


@exchanges.EVERYTHING
@pytest.mark.slow
def test_kafka_and_oncelog_serve_them_in_turn(tmp_path: pathlib.Path) -> None:
    """Each of them after the other, when that was stopped, and when it was killed."""
    # Records that are in no snapshot of oncelog's would be lost.
    often = {"metadata.log.max.record.bytes.between.snapshots": "100"}
    ours, kafka = ServedCluster(often, tmp_path), KafkaCluster(data_dir=tmp_path)
    before: dict[str, dict[str, Any]] = {}
    visits: list[tuple[Served, bool]] = [
        *((ours, False), (kafka, False)),
        *((ours, True), (kafka, True)),
        (ours, False),
    ]
    try:
        for number, (cluster, kill) in enumerate(visits):
            visit(cluster, f"visit-{number}", before, kill=kill)
    except RealPartMissing as missing:
        require(str(missing))
    assert ours.tracebacks == 0
