"""Consumers that fetch from the replica of their rack (KIP-392), and a follower that lags."""

import pytest
from confluent_kafka import Producer

from compat_tests.nodes.readers import Reader, reading
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import READ_COMMITTED, Topic, create_topic
from compat_tests.transactions.reader import FAST_RECONNECT
from tests.common.batches import WAIT_MS

REPLICAS = (1, 2, 3)
RACK, NODE = "c", 3
TELLS = ("confluent-kafka", "java")
"""The consumers that tell which node they fetch from."""


def preferred(topic: Topic, offset: int, rack: str) -> tuple[int, bool]:
    """What the leader says to a consumer of a rack: the replica to go to, and whether there are records."""
    row = topic.fetch(1, offset, rack=rack)
    assert row["error_code"] == 0
    return row["preferred_read_replica"], bool(row["records"])


def test_the_leader_names_the_replica_of_the_rack(kafka: Cluster, name: str) -> None:
    topic = create_topic(kafka, name, REPLICAS)
    topic.produce(1, b"one")
    topic.wait_for_ends(1)
    assert [preferred(topic, 0, rack) for rack in ("a", "b", "c", "", "d")] == [
        (-1, True), (2, False), (3, False), (-1, True), (-1, True),
    ]  # fmt: skip
    for rack in ("a", "b", "c", ""):
        row = topic.wait_for_watermark(3, 1, rack=rack)
        assert (row["preferred_read_replica"], bool(row["records"])) == (-1, True)


@pytest.mark.parametrize("rack", ["", RACK])
def test_transactions_from_a_follower(
    kafka: Cluster, name: str, readers: dict[str, Reader], rack: str
) -> None:
    topic = create_topic(kafka, name, REPLICAS)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, **FAST_RECONNECT}
    )
    producer.init_transactions(60)
    with reading(kafka.bootstrap_servers, name, readers, rack=rack) as found:
        for value in (b"committed", b"aborted", b"later"):
            producer.begin_transaction()
            producer.produce(name, value, partition=0)
            producer.flush(60)
            if value == b"aborted":
                producer.abort_transaction(60)
            elif value == b"committed":
                producer.commit_transaction(60)
        topic.wait_for_ends(5)
        for node in REPLICAS:
            row = topic.wait_for_watermark(node, 5, isolation=READ_COMMITTED)
            assert row["last_stable_offset"] == 4, node
            assert [one["first_offset"] for one in row["aborted_transactions"]] == [2], node
            assert topic.fetch(node, 4, isolation=READ_COMMITTED)["records"] == b"", node
        for one in found.values():
            one.wait_for(b"committed")
        if rack:
            for client in TELLS:
                found[client].wait_for_node(NODE)
        producer.commit_transaction(60)
        for one in found.values():
            one.wait_for(b"later")
    for client, one in found.items():
        assert [(row.offset, row.value) for row in one.records] == [(0, b"committed"), (4, b"later")], client


def test_a_follower_that_lags_leaves_the_isr_and_comes_back(
    kafka: Cluster, name: str, readers: dict[str, Reader]
) -> None:
    topic = create_topic(kafka, name, REPLICAS)
    with reading(kafka.bootstrap_servers, name, readers, rack=RACK) as found:
        topic.produce(1, b"before")
        for one in found.values():
            one.wait_for(b"before")
        for client in TELLS:
            found[client].wait_for_node(NODE)
        kafka.network.cut(1, 3)
        assert (
            topic.produce(1, b"meanwhile", timeout_ms=WAIT_MS)["error_code"] == 0
        )  # when the ISR has shrunk
        assert topic.partitions[0][:4] == (1, 0, REPLICAS, (1, 2))
        assert topic.ends() == {1: 2, 2: 2, 3: 1}
        # It is not named any more, and gives what it has to those who are there.
        assert preferred(topic, 0, RACK) == (-1, True)
        row = topic.fetch(NODE, 1)
        assert (row["error_code"], row["high_watermark"], row["records"]) == (0, 1, b"")
        kafka.network.heal()
        (back,) = topic.wait_until_in_sync()
        assert (back.leader, back.epoch) == (1, 0)
        assert preferred(topic, 0, RACK) == (NODE, False)
        for one in found.values():
            one.wait_for(b"meanwhile")
    for client, one in found.items():
        assert [(row.offset, row.value) for row in one.records] == [(0, b"before"), (1, b"meanwhile")], client


def test_a_follower_that_is_only_slow_stays(kafka: Cluster, name: str) -> None:
    """acks=all waits for its answers."""
    topic = create_topic(kafka, name, REPLICAS)
    kafka.network.delay(1, 3, ms=200)
    for number in range(5):
        assert topic.produce(1, b"slow")["base_offset"] == number
        assert topic.ends() == {1: number + 1, 2: number + 1, 3: number + 1}
    assert topic.partitions[0].isr == REPLICAS
