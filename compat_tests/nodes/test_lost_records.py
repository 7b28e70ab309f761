"""What is lost, and what is not: records that only a leader had, and who is told."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from compat_tests.nodes.readers import Reader, Reading, reading
from compat_tests.nodes.target import CONTROLLER, Cluster
from compat_tests.nodes.topic import BROKER, PREFERRED, UNCLEAN, Partition, Topic, create_topic, set_config
from compat_tests.nodes.waiting import wait_until
from compat_tests.transactions.reader import FAST_RECONNECT
from tests.common.batches import WAIT_MS

REPLICAS = (1, 2, 3)
REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS = 7, 19
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
PREFERRED_LEADER_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 84
TOLD = {"confluent-kafka": [1], "java": [1], "kafka-python": []}
"""Consumers that go back to where the log was cut (KIP-320), with the offsets that they tell the application of."""


@contextmanager
def read(kafka: Cluster, topic: Topic, clients: dict[str, Reader]) -> Iterator[dict[str, Reading]]:
    with reading(kafka.bootstrap_servers, topic.name, clients) as found:
        yield found


def wait_for(found: dict[str, Reading], value: bytes) -> None:
    for one in found.values():
        one.wait_for(value)


def test_a_record_that_only_the_leader_has_is_gone_with_it(
    kafka: Cluster, name: str, readers: dict[str, Reader]
) -> None:
    """With acks=1 the leader acknowledges it at once; no consumer sees it before the ISR has it."""
    topic = create_topic(kafka, name, REPLICAS)
    with read(kafka, topic, readers) as found:
        assert topic.produce(1, b"kept")["error_code"] == 0
        wait_for(found, b"kept")
        # Cut off from the controller, too, it cannot leave the ISR to itself.
        for other in (2, 3, CONTROLLER):
            kafka.network.cut(1, other)
        lost = topic.produce(1, b"lost", acks=1)
        assert (lost["error_code"], lost["base_offset"]) == (0, 1)
        assert topic.ends() == {1: 2, 2: 1, 3: 1}
        row = topic.fetch(1, 1)
        assert (row["error_code"], row["high_watermark"], row["records"]) == (0, 1, b"")
        kafka.nodes[1].kill()
        kafka.network.heal()
        after = topic.wait_for(lambda row: row.leader in (2, 3))
        assert after == Partition(2, 1, REPLICAS, (2, 3), (), (), (1,))
        instead = topic.produce_to_leader(2, b"instead")
        assert (instead["error_code"], instead["base_offset"]) == (0, 1)
        wait_for(found, b"instead")
    for client, one in found.items():
        assert [(row.offset, row.value) for row in one.records] == [(0, b"kept"), (1, b"instead")], client
        assert not one.truncated, client
        assert [row.epoch for row in one.records] in ([0, 1], [None, None]), client
    kafka.nodes[1].start()
    (back,) = topic.wait_until_in_sync()
    assert back == Partition(2, 1, REPLICAS, REPLICAS, (), (), ())
    assert topic.ends() == {1: 2, 2: 2, 3: 2}
    kafka.move_leader(name, 0, to=1)
    assert topic.partitions[0].epoch == 2
    assert topic.records(1) == [(0, b"kept"), (1, b"instead")]


def deliver(bootstrap: str, topic: str, value: bytes, **settings: object) -> int:
    """Produce one record with confluent-kafka, which does not try again; returns the error, or 0."""
    errors: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, **FAST_RECONNECT, **settings})
    producer.produce(
        topic, value, partition=0, on_delivery=lambda error, _: errors.append(error.code() if error else 0)
    )
    assert producer.flush(WAIT_MS / 1000) == 0
    return errors[0]


def test_below_the_minimum_nothing_is_acknowledged_by_all(
    kafka: Cluster, name: str, readers: dict[str, Reader]
) -> None:
    """Min ISR 2, both followers killed: acks=all waits, then it is refused; acks=1 is taken, and seen later."""
    topic = create_topic(kafka, name, REPLICAS)
    address = kafka.nodes[1].bootstrap
    with read(kafka, topic, readers) as found, ThreadPoolExecutor(2) as pool:
        assert topic.produce(1, b"before")["error_code"] == 0
        wait_for(found, b"before")
        kafka.nodes[2].kill()
        kafka.nodes[3].kill()
        # The ISR is whole until the session is over.
        waits = pool.submit(topic.produce, 1, b"waits", timeout_ms=WAIT_MS)
        delivered = pool.submit(deliver, address, name, b"late", **{"request.timeout.ms": 1000})
        late = topic.produce(1, b"late", timeout_ms=1000)
        assert (late["error_code"], late["error_message"]) == (REQUEST_TIMED_OUT, None)
        assert late["base_offset"] > 0  # it was written all the same
        assert delivered.result() == REQUEST_TIMED_OUT
        alone = topic.wait_for(lambda row: row.isr == (1,) and row.offline == (2, 3))
        assert alone[:4] == (1, 0, REPLICAS, (1,))
        assert (alone.last_known_elr, alone.offline) == ((), (2, 3))
        # The one whose session was over last; both, if they were over at once.
        assert alone.elr in ((2,), (3,), (2, 3))
        # What Kafka's leader tells of an ISR comes before what it does with it; a later change comes after both.
        create_topic(kafka, f"{name}-later", (1,))
        refused = topic.produce(1, b"refused")
        assert (refused["error_code"], refused["base_offset"]) == (NOT_ENOUGH_REPLICAS, -1)
        assert deliver(address, name, b"refused") == NOT_ENOUGH_REPLICAS
        taken = topic.produce(1, b"taken", acks=1)
        assert (taken["error_code"], taken["base_offset"]) == (0, 4)
        assert deliver(address, name, b"taken", acks=1) == 0
        for offset in range(1, 7):
            row = topic.fetch(1, offset)
            assert (row["error_code"], row["high_watermark"], row["records"]) == (0, 1, b""), offset
        assert not waits.done()
        assert {client: one.values for client, one in found.items()} == {
            client: [b"before"] for client in found
        }
        kafka.nodes[2].start()
        assert topic.wait_for(lambda row: len(row.isr) == 2) == Partition(
            1, 0, REPLICAS, (1, 2), (), (), (3,)
        )
        assert waits.result()["error_code"] == 0
        assert topic.produce(1, b"after")["base_offset"] == 6
        wait_for(found, b"after")
    expected = sorted([b"before", b"waits", b"late", b"late", b"taken", b"taken", b"after"])
    for client, one in found.items():
        assert sorted(one.values) == expected, client
        assert [row.offset for row in one.records] == [*range(7)], client
        assert {row.epoch for row in one.records} in ({0}, {None}), client


def acknowledge_alone(kafka: Cluster, topic: Topic, found: dict[str, Reading]) -> None:
    """Let node 1, alone in the ISR, acknowledge two records that all consumers read, and kill it."""
    assert topic.produce(1, b"kept")["error_code"] == 0
    topic.wait_for_ends(1)
    kafka.network.cut(1, 2)
    kafka.network.cut(1, 3)
    assert topic.produce(1, b"read", b"read too", timeout_ms=WAIT_MS)["base_offset"] == 1
    assert topic.wait_for(lambda row: row.isr == (1,)) == Partition(1, 0, REPLICAS, (1,), (), (), ())
    wait_for(found, b"read too")
    assert topic.ends() == {1: 3, 2: 1, 3: 1}
    kafka.nodes[1].kill()
    kafka.network.heal()


@pytest.mark.parametrize("by", ["configuration", "ElectLeaders"])
def test_a_replica_outside_the_isr_leads(
    kafka: Cluster, name: str, readers: dict[str, Reader], by: str
) -> None:
    """Consumers that had read on are told (KIP-320), and the old leader's log is cut when it comes back."""
    configs = {"min.insync.replicas": "1"}
    if by == "configuration":
        configs["unclean.leader.election.enable"] = "true"
    topic = create_topic(kafka, name, REPLICAS, configs=configs)
    with read(kafka, topic, readers) as found:
        acknowledge_alone(kafka, topic, found)
        epoch = 1
        if by == "ElectLeaders":
            nobody = topic.wait_for(lambda row: row.leader == -1)
            assert nobody == Partition(-1, 1, REPLICAS, (), (1,), (1,), (1,))
            assert topic.elect(PREFERRED) == PREFERRED_LEADER_NOT_AVAILABLE
            assert topic.elect(UNCLEAN) == 0
            epoch = 2
        after = topic.wait_for(lambda row: row.leader > 1)
        assert (after.leader, after.epoch, after.elr, after.last_known_elr) == (2, epoch, (), ())
        assert topic.elect(UNCLEAN) == ELECTION_NOT_NEEDED
        # A broker of Kafka tells of its leadership a moment before it has it.
        diverging = wait_until(
            lambda: topic.fetch(2, 3, last_fetched_epoch=0, current_leader_epoch=epoch),
            lambda row: row["error_code"] != UNKNOWN_LEADER_EPOCH,
        )
        assert (diverging["error_code"], diverging["diverging_epoch"]) == (0, {"epoch": 0, "end_offset": 1})
        assert diverging["records"] == b""
        fenced = topic.fetch(2, 3, last_fetched_epoch=0, current_leader_epoch=0)
        assert fenced["error_code"] == FENCED_LEADER_EPOCH
        assert fenced["current_leader"] == {"leader_id": 2, "leader_epoch": epoch}
        assert topic.produce_to_leader(2, b"instead", b"more", b"last")["base_offset"] == 1
        for client in TOLD:
            found[client].wait_for(b"last")
    for client in TOLD:
        one = found[client]
        assert one.truncated == TOLD[client], client
        assert [row.value for row in one.records] == [
            b"kept", b"read", b"read too", b"instead", b"more", b"last",
        ], client  # fmt: skip
        assert [row.offset for row in one.records] == [0, 1, 2, 1, 2, 3], client
        assert [row.epoch for row in one.records] == [0, 0, 0, epoch, epoch, epoch], client
    kafka.nodes[1].start()
    (back,) = topic.wait_until_in_sync()
    assert back == Partition(2, epoch, REPLICAS, REPLICAS, (), (), ())
    topic.wait_for_ends(4)
    kafka.move_leader(name, 0, to=1)
    assert topic.partitions[0].epoch == epoch + 1
    expected = [(0, b"kept"), *((epoch, value) for value in (b"instead", b"more", b"last"))]
    assert topic.records(1) == expected


def test_the_clusters_minimum_is_that_of_elections_too(kafka: Cluster, name: str) -> None:
    """Lowered for all brokers, it lets the leader acknowledge alone: no other replica may lead then."""
    topic = create_topic(kafka, name, REPLICAS)
    set_config(kafka, BROKER, "", "min.insync.replicas", "1")
    try:
        assert topic.produce(1, b"kept")["error_code"] == 0
        for follower in (2, 3):
            kafka.nodes[follower].stop()
        assert topic.wait_for(lambda row: row.isr == (1,)).elr == ()
        assert topic.produce(1, b"alone")["error_code"] == 0
        kafka.nodes[1].stop()
        kafka.nodes[2].start()
        kafka.nodes[3].start()
        nobody = topic.wait_for(lambda row: row.offline == (1,))
        assert (nobody.leader, nobody.isr, nobody.elr) == (-1, (), (1,))
        kafka.nodes[1].start()
        topic.wait_until_in_sync()
        assert topic.records(1) == [(0, b"kept"), (0, b"alone")]
    finally:
        set_config(kafka, BROKER, "", "min.insync.replicas", "2")
