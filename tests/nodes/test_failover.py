"""What the kit does while a leader is gone, and while the broker's time stands still. Found by a user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import oncelog

PATIENCE_S = 60


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(nodes=3, topics=["t"]) as broker:
        yield broker


@contextmanager
def begun(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """A call in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def leader_of(kafka: oncelog.Broker, topic: str) -> int:
    leader = kafka.topic(topic).wait_for_partition(0, isr=[1, 2, 3]).leader
    assert leader is not None
    return leader


def write(kafka: oncelog.Broker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce("t", value)
    assert producer.flush(PATIENCE_S) == 0


def commit(kafka: oncelog.Broker, offset: int) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    while True:  # librdkafka gives up at once where the coordinator has gone
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            break
        except Exception as error:
            last = error
            assert getattr(last.args[0], "retriable", lambda: False)() or "coordinator" in str(last), last
    consumer.close()


@pytest.mark.parametrize("is_begun_before", [True, False])
def test_a_wait_for_records_outlasts_a_dead_leader(kafka: oncelog.Broker, is_begun_before: bool) -> None:
    """Its session lasts a second longer, and nobody ends it."""
    kafka.produce("t", b"first")
    leader = leader_of(kafka, "t")

    def wait() -> list[oncelog.Record]:
        return kafka.topic("t").wait_for_records(2, timeout=PATIENCE_S)

    if is_begun_before:
        with begun(wait) as found:
            kafka.nodes[leader].kill()
            write(kafka, b"second")
    else:
        kafka.nodes[leader].kill()
        with begun(wait) as found:
            write(kafka, b"second")
    assert [one.value for one in found.result()] == [b"first", b"second"]


def test_a_wait_for_a_group_outlasts_its_coordinator(kafka: oncelog.Broker) -> None:
    kafka.group("g").commit({"t": {0: 0}})
    kafka.nodes[leader_of(kafka, "__consumer_offsets")].kill()
    with begun(lambda: kafka.group("g").wait_for(committed={"t": {0: 1}}, timeout=PATIENCE_S)) as found:
        kafka.topic("__consumer_offsets").wait_for_partition(0)
        commit(kafka, 1)
    assert found.result().committed == {"t": {0: 1}}


def test_a_wait_for_a_leader_is_one_for_a_leader_that_runs(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, "t")
    kafka.nodes[leader].kill()
    assert kafka.topic("t").wait_for_partition(0, timeout=PATIENCE_S).leader not in (None, leader)


def test_a_call_ends_with_its_node(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, "t")
    for other in {1, 2, 3} - {leader}:
        kafka.network.cut(leader, other)
    with begun(lambda: kafka.produce("t", b"value")) as call:
        while not kafka.nodes[leader].topic("t").records():
            pass  # until it waits for its followers
        kafka.nodes[leader].kill()
    with pytest.raises(oncelog.KafkaError, match=f"node {leader} ended before it answered"):
        call.result()


def test_a_node_leaves_and_comes_back_while_time_stands_still(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, "t")
    kafka.clock.freeze()
    kafka.nodes[leader].stop()
    assert kafka.topic("t").wait_for_partition(0).leader != leader
    kafka.nodes[leader].start()
    kafka.nodes[leader].expire()
    kafka.topic("t").wait_for_partition(0, isr=[1, 2, 3], timeout=PATIENCE_S)
    kafka.stop()
    assert [node.is_running for node in kafka.nodes.values()] == [False] * 3
    assert all(node.info.is_fenced for node in kafka.nodes.values())


def test_advance_tells_of_elections(kafka: oncelog.Broker) -> None:
    first = kafka.topic("t").partitions[0].replicas[0].node
    kafka.nodes[first].stop()
    kafka.nodes[first].start()
    assert leader_of(kafka, "t") != first
    happened = [str(one) for one in kafka.clock.advance(minutes=10)]
    assert f"topic t partition 0: node {first} was elected its leader" in happened, happened
    assert leader_of(kafka, "t") == first


@pytest.mark.parametrize("point", ["after append", "after marker"])
def test_a_crash_point_of_a_transaction_that_another_node_coordinates(
    kafka: oncelog.Broker, point: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "shop", "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    coordinator = leader_of(kafka, "__transaction_state")
    leader_of(kafka, "t")
    other = coordinator % 3 + 1
    kafka.move_leader("t", 0, to=other)
    rule = kafka.faults.crash_at(point, transactional_id="shop")
    producer.begin_transaction()
    producer.produce("t", b"value")
    with begun(lambda: producer.commit_transaction(PATIENCE_S)):
        rule.wait_fired(timeout=PATIENCE_S)
        assert not kafka.nodes[other].is_running


def test_a_proxy_goes_on_when_its_only_upstream_address_is_gone(kafka: oncelog.Broker) -> None:
    kafka.move_leader("t", 0, to=2)
    with oncelog.Proxy(kafka.nodes[1].info.address) as proxy:
        kafka.nodes[1].kill()
        kafka.nodes[1].expire()
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0})
        producer.produce("t", b"value")
        assert producer.flush(20) == 0


def test_typical_mistakes(kafka: oncelog.Broker) -> None:
    topic = kafka.topic("t")
    with pytest.raises(oncelog.NotFoundError, match="there is no node 9: there are 1, 2, 3"):
        kafka.nodes[9]
    assert kafka.nodes.get(9) is None
    with pytest.raises(oncelog.InvalidArgumentError, match="isr=3: expected the ids of nodes"):
        topic.wait_for_partition(0, isr=3)  # type: ignore[arg-type]
    for wanted in ({"leader": 9}, {"isr": [9]}):
        with pytest.raises(oncelog.InvalidArgumentError, match="node 9: there are 1, 2, 3"):
            topic.wait_for_partition(0, **wanted)
    for ms in (-(10**14), 10**15):
        with pytest.raises(oncelog.InvalidArgumentError, match="that is no date"):
            kafka.nodes[2].clock.skew(ms=ms)
    kafka.nodes[2].clock.skew(ms=-86_400_000)
    kafka.nodes[2].clock.skew(ms=0)
    with pytest.raises(oncelog.InvalidArgumentError, match="nodes= says how many nodes"):
        oncelog.Broker(nodes=3, config={"oncelog.nodes": 2})
    for node in (2, 3):
        kafka.nodes[node].stop()
    with pytest.raises(oncelog.KafkaError, match=r"t-0 has in sync \[1\]: fewer than min.insync.replicas"):
        kafka.produce("t", b"value")
