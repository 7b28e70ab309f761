"""The pytest plugin with a Kafka cluster (``--kafka-bootstrap-servers``), on both targets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition

import oncelog
from oncelog.pytest_plugin.real_cluster import Cluster
from tests.common import facts

pytestmark = pytest.mark.our_client
TIMEOUT_S = 60


@pytest.fixture
def cluster(bootstrap: str, name: str) -> Iterator[Cluster]:
    """With a topic that has the test's name."""
    cluster = Cluster(bootstrap, {name: {"partitions": 2, "config": {"retention.ms": "5000000"}}})
    cluster.start()
    assert name in cluster.topics
    yield cluster
    cluster.close()
    other = Cluster(bootstrap, {})
    other.start()
    assert name not in other.topics
    other.close()


def test_records_and_transactions(cluster: Cluster, name: str) -> None:
    topic = cluster.topic(name)
    one = cluster.produce(name, b"one", key=b"k", headers={"a": b"b"}, timestamp=1_700_000_000_000)
    [two] = cluster.produce_many(name, [{"value": b"two", "partition": one.partition}])
    assert topic.records() == [one, two]
    assert topic.wait_for_records(2) == [one, two]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for value in (b"aborted", b"committed", b"open"):
        producer.begin_transaction()
        producer.produce(name, value, partition=one.partition)
        producer.flush(30)
        if value == b"aborted":
            producer.abort_transaction(30)
        elif value == b"committed":
            producer.commit_transaction(30)
    transaction = cluster.transactions[name]
    assert transaction.wait_for("Ongoing").partitions == {name: [one.partition]}
    # A marker follows each end.
    offsets = {record.value: record.offset for record in topic.records()}
    assert offsets == {b"one": 0, b"two": 1, b"aborted": 2, b"committed": 4, b"open": 6}
    committed = [record.value for record in topic.records(isolation="read_committed")]
    assert committed == [b"one", b"two", b"committed"]
    info = topic.info.partitions[one.partition]
    assert (info.log_start_offset, info.last_stable_offset, info.high_watermark) == (0, 6, 7)
    assert topic.info.overrides == {"retention.ms": "5000000"}
    producer.abort_transaction(30)
    assert transaction.wait_for("CompleteAbort").partitions == {}
    with pytest.raises(oncelog.NotFoundError, match="there is no topic"):
        cluster.topic(f"{name}-not").records()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group(cluster: Cluster, name: str, protocol: str) -> None:
    cluster.produce_many(name, [{"value": b"%d" % number, "partition": 0} for number in range(5)])
    settings = {"group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    settings["enable.auto.commit"] = "false"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "c", **settings})
    consumer.subscribe([name])
    assert consumer.poll(30) is not None
    group = cluster.group(name)
    assert name in cluster.groups
    consumer.commit(offsets=[TopicPartition(name, 0, 2)], asynchronous=False)
    found = group.wait_for(state="Stable", members=1)
    assert found.type == protocol
    assert found.committed == {name: {0: 2}}
    assert found.lag == {name: {0: 3, 1: 0}}
    [member] = found.members
    assert (member.client_id, member.protocol) == ("c", protocol)
    assert (member.subscription, member.assignment) == ((name,), {name: [0, 1]})
    with pytest.raises(oncelog.KafkaError, match="UNKNOWN_MEMBER_ID"):
        group.commit({name: {0: 4}})
    consumer.close()
    assert group.wait_for(members=0).committed == {name: {0: 2}}
    group.commit({name: {0: 4, 1: 0}})
    assert group.lag == {name: {0: 1, 1: 0}}
    assert cluster.topic(name).delete_records({0: 3}) == {0: 3}
    assert cluster.topic(name).start_offsets == {0: 3, 1: 0}
    assert cluster.topic(name).delete_records() == {0: 5, 1: 0}
    with pytest.raises(oncelog.NotFoundError, match="there is no group"):
        _ = cluster.group(f"{name}-not").info


def test_a_share_group(cluster: Cluster, name: str) -> None:
    cluster.produce_many(name, [{"value": b"%d" % number, "partition": 0} for number in range(5)])
    group = cluster.share_group(name)
    group.configure({"share.auto.offset.reset": "earliest"})
    with pytest.raises(oncelog.InvalidArgumentError):
        group.configure({"share.auto.offset.reset": "never"})
    with pytest.raises(oncelog.NotFoundError):
        _ = group.info
    settings = {"group.id": name, "client.id": "c", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as consumer:
        consumer.subscribe([name])
        messages: list[Any] = []
        while not messages:
            messages = [one for one in consumer.poll(30) if one.error() is None]
        for message in messages:
            consumer.acknowledge(message)
        consumer.commit_sync(30.0)
        found = group.wait_for(state="Stable", members=1, lag=5 - len(messages))
        [member] = found.members
        with pytest.raises(oncelog.KafkaError, match=rf"^GROUP_ID_NOT_FOUND: {name} is a share group, "):
            cluster.group(name).commit({name: {0: 0}})
        assert (member.client_id, member.subscription) == ("c", (name,))
        assert member.assignment == {name: [0, 1]}
        assert found.partitions[name][0] == oncelog.SharePartitionInfo(0, None, 5 - len(messages))
        assert name in cluster.share_groups
        assert name not in cluster.groups


@pytest.mark.also_on("proxy")
@facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues")
def test_dead_letters(cluster: Cluster, name: str) -> None:
    group, queue = cluster.share_group(name), f"dlq.{name}"
    with pytest.raises(oncelog.NotFoundError, match=f"share group {name} has no dead-letter queue"):
        group.dead_letters()
    group.configure(
        {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.copy.record.enable": True,
        }
    )
    with pytest.raises(oncelog.NotFoundError, match=f"does not exist: topic '{queue}'"):
        group.dead_letters()
    cluster.create_topic(queue, partitions=3, config={"errors.deadletterqueue.group.enable": True})
    assert group.dead_letters() == []
    cluster.produce_many(
        name, [{"key": b"k", "value": b"%d" % number, "partition": number % 2} for number in range(4)]
    )
    settings = {"group.id": name, "client.id": "c", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as consumer:
        consumer.subscribe([name])
        rejected = 0
        while rejected < 4:
            for message in consumer.poll(30):
                if message.error() is None:
                    consumer.acknowledge(message, AcknowledgeType.REJECT)
                    rejected += 1
            consumer.commit_sync(30.0)
        letters = group.wait_for_dead_letters(4, timeout=TIMEOUT_S)
    assert [(one.queue_partition, one.partition, one.offset) for one in letters] == [
        (0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [(one.key, one.value) for one in letters] == [(b"k", value) for value in (b"0", b"2", b"1", b"3")]
    [about] = {(one.topic, one.group_id, one.queue, one.delivery_count, one.reason) for one in letters}
    assert about == (name, name, queue, 1, "Offset rejected by client.")


def read_one(servers: str, name: str, **settings: Any) -> Consumer:
    """Return a consumer that has read a record of the topic, in the group of the same name."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "client.id": "app",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([name])
    assert consumer.poll(TIMEOUT_S) is not None
    return consumer


def read_and_leave(cluster: Cluster, name: str, protocol: str, *, commits: bool) -> None:
    settings = {"group.protocol": protocol, "enable.auto.commit": str(commits).lower()}
    read_one(cluster.bootstrap_servers, name, **settings).close()


def share(cluster: Cluster, name: str) -> None:
    with ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name}) as consumer:
        consumer.subscribe([name])
        cluster.share_group(name).wait_for(members=1, timeout=TIMEOUT_S)


USES: dict[str, Callable[[Cluster, str], None]] = {
    "classic": lambda cluster, name: read_and_leave(cluster, name, "classic", commits=True),
    "classic-without-commit": lambda cluster, name: read_and_leave(cluster, name, "classic", commits=False),
    "consumer": lambda cluster, name: read_and_leave(cluster, name, "consumer", commits=True),
    "consumer-without-commit": lambda cluster, name: read_and_leave(cluster, name, "consumer", commits=False),
    "share": share,
    "kit": lambda cluster, name: cluster.group(name).commit({name: {0: 1}}),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "proxied"])
def test_groups_are_deleted_with_the_topics(
    bootstrap: str, name: str, use: str, *, through_proxy: bool
) -> None:
    others = f"{name}-of-others"
    with Cluster(bootstrap, {others: 1}) as before:
        before.group(others).commit({others: {0: 0}})
        with Cluster(bootstrap, {name: 1}, through_proxy=through_proxy) as cluster:
            cluster.produce(name, b"coffee")
            USES[use](cluster, name)
            assert name in (cluster.share_groups if use == "share" else cluster.groups)
        assert name not in before.topics + before.groups + before.share_groups
        assert others in before.groups
    with Cluster(bootstrap, {}) as after:
        assert others not in after.topics + after.groups


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_an_error_of_the_next_test(bootstrap: str, name: str, protocol: str) -> None:
    with contextlib.closing(Cluster(bootstrap, {name: 1}, test="test_orders.py::test_one")) as cluster:
        cluster.start()
        cluster.produce(name, b"coffee")
        consumer = read_one(cluster.bootstrap_servers, name, **{"group.protocol": protocol})
    said = rf"because they have members: {name} of test_orders\.py::test_one \(client app at 127\.0\.0\.1\)\. Close"
    with (
        contextlib.closing(Cluster(bootstrap, {})) as following,
        pytest.raises(oncelog.BrokerFailedError, match=said),
    ):
        following.start()
    consumer.close()
    with Cluster(bootstrap, {name: 1}) as following:
        assert name not in following.groups


def test_through_a_proxy(bootstrap: str, name: str) -> None:
    with Cluster(bootstrap, {name: 1}, through_proxy=True, seed=5) as cluster:
        rule = cluster.faults.on("Produce", topic=name).first(2).error("NOT_LEADER_OR_FOLLOWER")
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "app",
            "retry.backoff.ms": 20,
        }
        producer = Producer(settings)
        producer.produce(name, b"coffee")
        assert producer.flush(TIMEOUT_S) == 0
        assert rule.fired == 2
        assert cluster.wait_for("Produce", topic=name).client_id == "app"
        assert [one.errors for one in cluster.requests("Produce")][:2] == [("NOT_LEADER_OR_FOLLOWER",)] * 2
        assert [one.value for one in cluster.topic(name).records()] == [b"coffee"]
        for needs_a_broker in (
            lambda: cluster.faults.crash_at("before append"),
            cluster.kill,
            lambda: cluster.clock.freeze(),
        ):
            with pytest.raises(pytest.skip.Exception, match="needs a broker of oncelog"):
                needs_a_broker()
