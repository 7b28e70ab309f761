"""The views of a broker that a test gets, compared with the responses that stock clients get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

import oncelog
from compat_tests.clients.stock_clients import CODECS, Confluent, Options, Record

DEADLINE_S = 30


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"orders": 3}) as broker:
        yield broker


@pytest.fixture
def admin(kafka: oncelog.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def producer(kafka: oncelog.Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})


def consumer(kafka: oncelog.Broker, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def consumed(reader: Consumer, count: int) -> list[confluent_kafka.Message]:
    """Read so many records. Raises AssertionError if they do not come."""
    found: list[confluent_kafka.Message] = []
    for _ in range(count):
        message = reader.poll(DEADLINE_S)
        assert message is not None, f"{len(found)} of {count} records"
        assert message.error() is None, message.error()
        found.append(message)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_a_stock_producer(kafka: oncelog.Broker, codec: str) -> None:
    sent = [
        Record(b"k", b"v" * 2000, (("h", b"1"), ("h", None), ("ü", b"")), 1_700_000_000_000),
        Record(None, None, (), 1_700_000_000_001),
        Record(b"", b"", (), 1_700_000_000_002),
    ]
    Confluent.produce(kafka.bootstrap_servers, "orders", 1, sent, Options(codec))
    read = kafka.topic("orders").records()
    assert [Record(one.key, one.value, one.headers, one.timestamp) for one in read] == sent
    assert [(one.partition, one.offset) for one in read] == [(1, 0), (1, 1), (1, 2)]


def test_records_that_a_test_wrote_as_a_stock_consumer_sees_them(kafka: oncelog.Broker) -> None:
    written = kafka.produce_many(
        "orders",
        [{"value": "a", "key": "k", "headers": {"h": "1"}, "timestamp": 5, "partition": 2}, "b", None],
    )
    for one in written:
        [seen] = Confluent.consume(kafka.bootstrap_servers, "orders", one.partition, one.offset, 1)
        assert seen == Record(one.key, one.value, one.headers, one.timestamp)


def test_keys_go_where_a_stock_partitioner_sends_them(kafka: oncelog.Broker) -> None:
    keys = [f"key {number}".encode() for number in range(50)]
    client = producer(kafka, partitioner="murmur2")
    for key in keys:
        client.produce("orders", b"theirs", key)
    assert client.flush(DEADLINE_S) == 0
    theirs = {one.key: one.partition for one in kafka.topic("orders").wait_for_records(50)}
    ours = {one.key: one.partition for one in kafka.produce_many("orders", [(key, b"ours") for key in keys])}
    assert ours == theirs
    assert len(set(ours.values())) == 3


LATEST: Any = OffsetSpec.latest  # without a type
EARLIEST: Any = OffsetSpec.earliest


def offsets(admin: AdminClient, spec: Any, level: Any) -> dict[int, int]:
    asked = {TopicPartition("orders", partition): spec for partition in range(3)}
    found = admin.list_offsets(asked, isolation_level=level)
    return {place.partition: future.result(DEADLINE_S).offset for place, future in found.items()}


def test_offsets_and_records_of_transactions(kafka: oncelog.Broker, admin: AdminClient) -> None:
    client = producer(kafka, **{"transactional.id": "app"})
    client.init_transactions(DEADLINE_S)
    for end in (client.commit_transaction, client.abort_transaction, None):
        client.begin_transaction()
        for partition in range(2):
            client.produce("orders", f"{end and end.__name__}".encode(), partition=partition)
        client.flush(DEADLINE_S)
        if end is not None:
            end(DEADLINE_S)
    kafka.produce("orders", b"plain", partition=1)

    orders = kafka.topic("orders")
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    assert orders.end_offsets == offsets(admin, LATEST(), uncommitted)
    assert orders.last_stable_offsets == offsets(admin, LATEST(), committed)
    orders.delete_records({0: 1})
    assert orders.start_offsets == offsets(admin, EARLIEST(), uncommitted) == {0: 1, 1: 0, 2: 0}

    for level in ("read_committed", "read_uncommitted"):
        ours = orders.records(isolation=level)
        reader = consumer(kafka, **{"isolation.level": level})
        reader.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
        theirs = [(one.partition(), one.offset(), one.value()) for one in consumed(reader, len(ours))]
        assert reader.poll(0.2) is None
        assert sorted(theirs) == [(one.partition, one.offset, one.value) for one in ours]
        reader.close()
    assert kafka.transactions["app"].state == "Ongoing"
    client.abort_transaction(DEADLINE_S)
    assert kafka.transactions["app"].wait_for("CompleteAbort").partitions == {}


def test_transactions_and_producers(kafka: oncelog.Broker) -> None:
    from kafka import KafkaAdminClient  # type: ignore[import-untyped,unused-ignore]
    from kafka import TopicPartition as Place

    client = producer(kafka, **{"transactional.id": "app", "transaction.timeout.ms": 54_321})
    client.init_transactions(DEADLINE_S)
    client.begin_transaction()
    for _ in range(2):
        client.produce("orders", b"v", partition=1)
    client.flush(DEADLINE_S)

    theirs = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        described = theirs.describe_transactions(["app"])["app"]
        [known] = theirs.describe_producers([Place("orders", 1)])[Place("orders", 1)].active_producers
    finally:
        theirs.close()
    ours = kafka.transactions["app"].info
    assert (ours.state, ours.producer_id, ours.producer_epoch, ours.timeout_ms, ours.start_ms) == (
        described.state.value,
        described.producer_id,
        described.producer_epoch,
        described.transaction_timeout_ms,
        described.transaction_start_time_ms,
    )
    assert ours.partitions == {"orders": [1]} == _by_topic(described.topic_partitions)
    [mine] = kafka.topic("orders").producers
    assert (mine.partition, mine.transactional_id) == (1, "app")
    assert (
        mine.producer_id,
        mine.producer_epoch,
        mine.last_sequence,
        mine.last_timestamp,
        mine.transaction_start_offset,
    ) == (
        known.producer_id,
        known.producer_epoch,
        known.last_sequence,
        known.last_timestamp,
        known.current_transaction_start_offset,
    )
    client.abort_transaction(DEADLINE_S)


def _by_topic(places: Sequence[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place.partition)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group(kafka: oncelog.Broker, admin: AdminClient, protocol: str) -> None:
    kafka.produce_many("orders", [b"v"] * 9)
    clients = [consumer(kafka, **{"client.id": f"app-{n}", "group.protocol": protocol}) for n in range(2)]
    billing = kafka.group("billing")
    try:
        for one in clients:
            one.subscribe(["orders"])
        while not all(one.assignment() for one in clients):
            for one in clients:
                one.poll(0.05)
        billing.wait_for(state="Stable", members=2)
        ours = billing.info
        theirs = admin.describe_consumer_groups(["billing"])["billing"].result(DEADLINE_S)
        assert ours.type == protocol
        assert ours.state.upper() == theirs.state.name
        assert ours.protocol == theirs.partition_assignor
        assert {
            (one.member_id, one.client_id, one.host, _places(one.assignment)) for one in ours.members
        } == {
            (
                one.member_id,
                one.client_id,
                one.host,
                tuple(sorted((place.topic, place.partition) for place in one.assignment.topic_partitions)),
            )
            for one in theirs.members
        }
        assert ours.lag == {"orders": {0: 3, 1: 3, 2: 3}}
        clients[0].commit(offsets=[TopicPartition("orders", 2, 2)], asynchronous=False)
        request = kafka.wait_for("OffsetCommit", group="billing", client_id="app-0")
        assert request.topics == ("orders",)
        assert billing.committed == {"orders": {2: 2}}
        assert billing.lag == {"orders": {0: 3, 1: 3, 2: 1}}
        assert [one.client_id for one in kafka.requests("OffsetCommit", error="NONE")] == ["app-0"]
    finally:
        for one in clients:
            one.close()
    empty = billing.wait_for(state="Empty", members=0)
    assert empty.committed == {"orders": {2: 2}}


def _places(assignment: dict[str, list[int]]) -> tuple[tuple[str, int], ...]:
    return tuple((topic, partition) for topic in assignment for partition in assignment[topic])


def test_offsets_that_a_test_commits(kafka: oncelog.Broker, admin: AdminClient) -> None:
    kafka.produce_many("orders", [{"value": str(number), "partition": 0} for number in range(5)])
    billing = kafka.group("billing")
    billing.commit({"orders": {0: 3}})
    asked = confluent_kafka.ConsumerGroupTopicPartitions("billing")
    future = admin.list_consumer_group_offsets([asked])["billing"]
    [place] = future.result(DEADLINE_S).topic_partitions
    assert (place.topic, place.partition, place.offset) == ("orders", 0, 3)
    reader = consumer(kafka)
    reader.subscribe(["orders"])
    assert [one.value() for one in consumed(reader, 2)] == [b"3", b"4"]
    with pytest.raises(oncelog.KafkaError, match="UNKNOWN_MEMBER_ID"):
        billing.commit({"orders": {0: 0}})
    reader.commit(asynchronous=False)
    billing.wait_for(lag=0)
    reader.close()


def test_configuration(kafka: oncelog.Broker, admin: AdminClient) -> None:
    kafka.create_topic("compact", 2, {"cleanup.policy": "compact", "retention.ms": 1234})
    resource = ConfigResource(ResourceType.TOPIC, "compact")
    theirs = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert kafka.topic("compact").config == {name: entry.value for name, entry in theirs.items()}
    assert kafka.topics == ["compact", "orders"]
    kafka.topic("compact").delete()
    assert sorted(admin.list_topics(timeout=DEADLINE_S).topics) == ["orders"]
