"""The admin clients of librdkafka, kafka-python and aiokafka on both targets."""

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.clients.stock_clients import DEADLINE_S, Confluent, Options, Record
from compat_tests.differential import Session, make_topic
from compat_tests.proxied import node_address

pytestmark = pytest.mark.also_on("proxy")

confluent: Any = importlib.import_module("confluent_kafka.admin")  # partly typed, and its names not exported


def wait(futures: dict[Any, Any]) -> dict[Any, Any]:
    """The results of confluent-kafka's futures."""
    return {key: future.result(DEADLINE_S) for key, future in futures.items()}


class TestConfluent:
    @pytest.fixture
    def admin(self, bootstrap: str) -> Any:

        return confluent.AdminClient({"bootstrap.servers": bootstrap})

    def test_topics(self, admin: Any, bootstrap: str, name: str) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        topic = confluent.NewTopic(
            name, num_partitions=2, replication_factor=1, config={"retention.ms": "60000"}
        )
        wait(admin.create_topics([topic], validate_only=True, operation_timeout=10))
        assert name not in admin.list_topics(timeout=DEADLINE_S).topics
        wait(admin.create_topics([topic], operation_timeout=10))
        with pytest.raises(KafkaException) as refused:
            wait(admin.create_topics([topic]))
        assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaException) as refused:
            wait(admin.create_topics([confluent.NewTopic(f"{name}-x", config={"retention.ms": "soon"})]))
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
        wait(admin.create_partitions([confluent.NewPartitions(name, 4)], operation_timeout=10))
        session = Session(bootstrap)
        session.wait_for_leaders(name, 4)
        session.close()
        listed = admin.list_topics(name, timeout=DEADLINE_S)
        assert sorted(listed.topics[name].partitions) == [0, 1, 2, 3]
        assert {one.leader for one in listed.topics[name].partitions.values()} == {1}
        described = wait(admin.describe_topics(TopicCollection([name])))[name]
        assert (described.name, described.is_internal, len(described.partitions)) == (name, False, 4)
        assert described.topic_id.get_most_significant_bits() != 0
        wait(admin.delete_topics([name], operation_timeout=10))

        def describe_until_deleted() -> None:
            while True:  # Kafka's broker learns of it a moment after the response
                wait(admin.describe_topics(TopicCollection([name])))

        with pytest.raises(KafkaException) as refused:
            describe_until_deleted()
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_configs(self, admin: Any, bootstrap: str, name: str) -> None:

        make_topic(bootstrap, name)
        change = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, name)
        change.add_incremental_config(
            confluent.ConfigEntry("flush.ms", "77", incremental_operation=confluent.AlterConfigOpType.SET)
        )
        wait(admin.incremental_alter_configs([change]))
        wait_for_flush_ms(bootstrap, name, "77")
        (configs,) = wait(
            admin.describe_configs([confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, name)])
        ).values()
        assert configs["flush.ms"].value == "77"
        assert (
            confluent.ConfigSource(configs["flush.ms"].source) == confluent.ConfigSource.DYNAMIC_TOPIC_CONFIG
        )
        assert configs["cleanup.policy"].value == "delete"
        (configs,) = wait(
            admin.describe_configs([confluent.ConfigResource(confluent.ConfigResource.Type.BROKER, "1")])
        ).values()
        assert configs["log.retention.hours"].value == "168"

    def test_records_and_offsets(self, admin: Any, bootstrap: str, name: str) -> None:
        from confluent_kafka import TopicPartition

        make_topic(bootstrap, name)
        Confluent.produce(
            bootstrap, name, 0, [Record(b"k", b"v", (), 1_790_000_000_000 + n) for n in range(10)], Options()
        )
        deleted = wait(admin.delete_records([TopicPartition(name, 0, 4)]))
        assert [one.low_watermark for one in deleted.values()] == [4]
        specs = [
            confluent.OffsetSpec.earliest(),
            confluent.OffsetSpec.latest(),
            confluent.OffsetSpec.max_timestamp(),
            confluent.OffsetSpec.for_timestamp(1_790_000_000_006),
        ]
        found = [wait(admin.list_offsets({TopicPartition(name, 0): spec})) for spec in specs]
        assert [one.offset for response in found for one in response.values()] == [4, 10, 9, 6]

    def test_cluster(self, admin: Any, bootstrap: str, target: str) -> None:
        cluster = admin.describe_cluster().result(DEADLINE_S)
        assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
            (1, *node_address(bootstrap, target))
        ]
        assert cluster.controller.id == 1
        assert len(cluster.cluster_id) == 22


def wait_for_flush_ms(bootstrap: str, name: str, value: str) -> None:
    session = Session(bootstrap)
    session.wait_for_config(name, "flush.ms", value)
    session.close()


class TestKafkaPython:
    @pytest.fixture
    def admin(self, bootstrap: str) -> Iterator[Any]:
        from kafka import KafkaAdminClient  # type: ignore[import-untyped,unused-ignore]

        client = KafkaAdminClient(bootstrap_servers=bootstrap)
        yield client
        client.close()

    def test_topics(self, admin: Any, name: str) -> None:
        from kafka.admin import NewPartitions, NewTopic  # type: ignore[import-untyped,unused-ignore]
        from kafka.errors import TopicAlreadyExistsError  # type: ignore[import-untyped,unused-ignore]

        topic = NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})
        admin.create_topics([topic], validate_only=True)
        admin.create_topics([topic], wait_for_metadata=True)
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([topic])
        admin.create_partitions({name: NewPartitions(5)})
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert described["name"] == name
        admin.delete_topics([name])

    def test_configs(self, admin: Any, bootstrap: str, name: str) -> None:
        from kafka.admin import ConfigResource, ConfigResourceType

        make_topic(bootstrap, name)
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"flush.ms": "55"})])
        wait_for_flush_ms(bootstrap, name, "55")
        described = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all"
        )
        assert "'flush.ms'" in str(described)
        assert "'55'" in str(described)

    def test_records_and_offsets(self, admin: Any, bootstrap: str, name: str) -> None:
        from kafka import TopicPartition

        make_topic(bootstrap, name)
        Confluent.produce(bootstrap, name, 0, [Record(b"k", b"v")] * 10, Options())
        where = TopicPartition(name, 0)
        assert admin.delete_records({where: 6})[where]["low_watermark"] == 6

    def test_cluster(self, admin: Any, bootstrap: str, target: str, name: str) -> None:
        cluster = admin.describe_cluster()
        assert [(one["broker_id"], one["host"], one["port"]) for one in cluster["brokers"]] == [
            (1, *node_address(bootstrap, target))
        ]
        make_topic(bootstrap, name)
        assert name in str(admin.describe_log_dirs())


class TestAiokafka:
    def test_everything(self, bootstrap: str, name: str) -> None:
        from aiokafka.admin import (  # type: ignore[import-untyped,unused-ignore]
            AIOKafkaAdminClient,
            NewPartitions,
            NewTopic,
            RecordsToDelete,
        )
        from aiokafka.admin.config_resource import (  # type: ignore[import-untyped,unused-ignore]
            ConfigResource,
            ConfigResourceType,
        )
        from aiokafka.structs import TopicPartition  # type: ignore[import-untyped,unused-ignore]

        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                created = await admin.create_topics(
                    [NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})]
                )
                assert [row[:2] for row in created.topic_errors] == [(name, 0)]
                again = await admin.create_topics([NewTopic(name, 2, 1)])
                assert [row[:2] for row in again.topic_errors] == [(name, 36)]
                await admin.create_partitions({name: NewPartitions(3)})
                while name not in await admin.list_topics():
                    pass  # Kafka's broker learns of it from its controller a moment later
                (described,) = await admin.describe_topics([name])
                assert described["topic"] == name
                await admin.alter_configs(
                    [ConfigResource(ConfigResourceType.TOPIC, name, {"flush.ms": "66"})]
                )
                wait_for_flush_ms(bootstrap, name, "66")
                (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
                values = {row[0]: row[1] for row in configs.resources[0][4]}
                # AlterConfigs, the older API, replaces everything that was set.
                assert values["retention.ms"] == "604800000"
                cluster = await admin.describe_cluster()
                assert [one["node_id"] for one in cluster["brokers"]] == [1]
                Confluent.produce(bootstrap, name, 0, [Record(b"k", b"v")] * 10, Options())
                low = await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(3)})
                assert list(low.values()) == [3]
                await admin.delete_topics([name])
                while name in await admin.list_topics():
                    pass
            finally:
                await admin.close()

        asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
