"""Two tenants with a prefix each, before oncelog and before a real Kafka: clients see their own names only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

import oncelog
from compat_tests.brokers import SharedBrokers
from compat_tests.targets import OURS_ON_TARGETS

TIMEOUT_S = 60
FAST = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "log_level": 0}

_numbers = itertools.count()


def prefix(context: oncelog.RequestContext) -> str:
    """The client id is the tenant; admin is none."""
    return "" if context.client_id == "admin" else f"{context.client_id}."


@pytest.fixture(scope="module", params=OURS_ON_TARGETS)
def proxy(request: pytest.FixtureRequest, brokers: SharedBrokers) -> Iterator[oncelog.Proxy]:
    kinds = (oncelog.rename_topics, oncelog.rename_groups, oncelog.rename_transactional_ids)
    filters = [rename(prefix=prefix) for rename in kinds]
    with oncelog.Proxy(brokers[request.param].bootstrap, filters=filters) as started:
        yield started


@pytest.fixture
def tenants() -> tuple[str, str]:
    number = next(_numbers)
    return f"ann-{number}", f"bob-{number}"


def settings(
    proxy: oncelog.Proxy, tenant: str, **more: str | int | float | bool
) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": proxy.bootstrap_servers, "client.id": tenant, **FAST, **more}


def subscribed(proxy: oncelog.Proxy, tenant: str, protocol: str, topic: str) -> Consumer:
    """A member of the group billing."""
    more = {"group.id": "billing", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings(proxy, tenant, **more, **{"enable.auto.commit": False}))
    consumer.subscribe([topic])
    assert consumer.poll(0) is None
    return consumer


@pytest.mark.parametrize(
    ("protocol", "topic"), [("classic", "orders"), ("classic", "^ord.*"), ("consumer", "^ord.*")]
)
def test_a_group_and_a_transaction(
    proxy: oncelog.Proxy, tenants: tuple[str, str], protocol: str, topic: str
) -> None:
    """Each tenant has the same names; offsets are committed in a transaction."""
    admins = {tenant: AdminClient(settings(proxy, tenant)) for tenant in tenants}
    for admin in admins.values():
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
    consumers = {tenant: subscribed(proxy, tenant, protocol, topic) for tenant in tenants}
    for tenant, consumer in consumers.items():
        producer = Producer(settings(proxy, tenant, **{"transactional.id": "shop"}))
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("orders", tenant.encode())
        producer.commit_transaction(TIMEOUT_S)
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert (message.error(), message.topic(), message.value()) == (None, "orders", tenant.encode())
        producer.begin_transaction()
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
    for tenant, consumer in consumers.items():
        admin = admins[tenant]
        listed = admin.list_consumer_groups().result(TIMEOUT_S)
        assert [row.group_id for row in listed.valid] == ["billing"]
        described = admin.describe_consumer_groups(["billing"])["billing"].result(TIMEOUT_S)
        [member] = described.members
        assert [(one.topic, one.partition) for one in member.assignment.topic_partitions] == [("orders", 0)]
        consumer.close()
        asked = ConsumerGroupTopicPartitions("billing")
        found = admin.list_consumer_group_offsets([asked])["billing"].result(TIMEOUT_S)
        assert [(one.topic, one.partition, one.offset) for one in found.topic_partitions] == [
            ("orders", 0, 1)
        ]
        admin.delete_consumer_groups(["billing"])["billing"].result(TIMEOUT_S)
    everything = AdminClient(settings(proxy, "admin"))
    groups = {row.group_id for row in everything.list_consumer_groups().result(TIMEOUT_S).valid}
    assert not groups & {f"{tenant}.billing" for tenant in tenants}


def test_tools_of_a_tenant(proxy: oncelog.Proxy, tenants: tuple[str, str]) -> None:
    """Topics, configurations of topics and groups, and records: what the tenant names is its own."""
    ann, bob = (AdminClient(settings(proxy, tenant)) for tenant in tenants)
    admin = AdminClient(settings(proxy, "admin"))
    ann.create_topics([NewTopic("orders", 2, 1)])["orders"].result(TIMEOUT_S)
    assert list(ann.list_topics(timeout=TIMEOUT_S).topics) == ["orders"]
    assert list(bob.list_topics(timeout=TIMEOUT_S).topics) == []
    assert f"{tenants[0]}.orders" in admin.list_topics(timeout=TIMEOUT_S).topics
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    [shown] = ann.describe_configs([resource]).values()
    assert shown.result(TIMEOUT_S)["cleanup.policy"].value == "delete"
    [hidden] = bob.describe_configs([resource]).values()
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        hidden.result(TIMEOUT_S)
    offsets = ann.delete_records([TopicPartition("orders", 0, 0)])
    [(partition, deleted)] = offsets.items()
    assert (partition.topic, deleted.result(TIMEOUT_S).low_watermark) == ("orders", 0)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        bob.delete_topics(["orders"])["orders"].result(TIMEOUT_S)
    ann.delete_topics(["orders"])["orders"].result(TIMEOUT_S)
