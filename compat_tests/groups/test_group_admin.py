"""Groups through the admin clients of librdkafka, kafka-python and aiokafka."""

import asyncio
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.clients.stock_clients import DEADLINE_S
from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings

confluent: Any = importlib.import_module("confluent_kafka.admin")  # partly typed, and its names not exported


@pytest.fixture
def group(group_broker: Broker, make_group: Callable[..., Group]) -> Group:
    """A topic of two partitions with 20 records each."""
    filled = make_group(group_broker.bootstrap, 2)
    filled.fill(20)
    return filled


def result(futures: Any) -> Any:
    """The result of confluent-kafka's only future."""
    future = next(iter(futures.values())) if isinstance(futures, dict) else futures
    return future.result(DEADLINE_S)


class TestConfluent:
    @pytest.fixture
    def admin(self, group: Group) -> Any:
        return confluent.AdminClient({"bootstrap.servers": group.bootstrap})

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_list_and_describe(self, admin: Any, group: Group, protocol: str) -> None:
        from confluent_kafka import ConsumerGroupState, ConsumerGroupType

        kind = ConsumerGroupType[protocol.upper()]
        other = ConsumerGroupType.CONSUMER if protocol == "classic" else ConsumerGroupType.CLASSIC
        member = group.join("confluent-kafka", Settings(protocol))
        group.wait_until_shared()

        def listed(**filters: Any) -> list[tuple[Any, Any]]:
            found = result(admin.list_consumer_groups(**filters))
            assert not found.errors
            return [(one.state, one.type) for one in found.valid if one.group_id == group.group_id]

        stable = [(ConsumerGroupState.STABLE, kind)]
        assert listed() == stable
        assert listed(states={ConsumerGroupState.STABLE}, types={kind}) == stable
        assert listed(states={ConsumerGroupState.EMPTY}) == []
        assert listed(types={other}) == []
        described = result(admin.describe_consumer_groups([group.group_id]))
        assert (described.group_id, described.state, described.type) == (
            group.group_id,
            ConsumerGroupState.STABLE,
            kind,
        )
        assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
        (shown,) = described.members
        assert (shown.client_id, shown.group_instance_id) == (member.name, None)
        assert sorted(one.partition for one in shown.assignment.topic_partitions) == [0, 1]
        group.leave()
        described = result(admin.describe_consumer_groups([group.group_id]))
        assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])

    def test_offsets_and_deletion(self, admin: Any, group: Group) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

        where = [TopicPartition(group.topic, 0, 7), TopicPartition(group.topic, 1, 9)]
        offsets = ConsumerGroupTopicPartitions(group.group_id, where)
        result(admin.alter_consumer_group_offsets([offsets]))
        assert group.committed() == [7, 9]
        found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group.group_id)]))
        assert sorted((one.partition, one.offset) for one in found.topic_partitions) == [(0, 7), (1, 9)]
        member = group.join("confluent-kafka")
        group.wait_until_shared()
        group.wait(lambda: len(member.records) == 13 + 11, "the records after the offsets")
        with pytest.raises(KafkaException) as refused:
            result(admin.delete_consumer_groups([group.group_id]))
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        refusals = result(admin.alter_consumer_group_offsets([offsets])).topic_partitions
        assert [one.error.code() for one in refusals] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
        group.leave()
        result(admin.delete_consumer_groups([group.group_id]))
        assert group.type_and_state() == ("", "")
        assert group.committed() == [0, 0]
        with pytest.raises(KafkaException) as refused:
            result(admin.delete_consumer_groups([group.group_id]))
        assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


class TestKafkaPython:
    @pytest.fixture
    def admin(self, group: Group) -> Iterator[Any]:
        from kafka import KafkaAdminClient  # type: ignore[import-untyped,unused-ignore]

        client = KafkaAdminClient(bootstrap_servers=group.bootstrap)
        yield client
        client.close()

    def test_list_and_describe(self, admin: Any, group: Group) -> None:
        member = group.join("kafka-python", Settings(instance="static"))
        group.wait_until_shared()

        def listed(**filters: Any) -> list[tuple[str, str, str]]:
            rows = [one for one in admin.list_groups(**filters) if one["group_id"] == group.group_id]
            return [(one["protocol_type"], one["group_state"], one["group_type"]) for one in rows]

        assert listed() == [("consumer", "Stable", "classic")]
        assert listed(states_filter=["stable"], types_filter=["classic"]) == listed()
        assert listed(states_filter=["empty"]) == []
        assert listed(types_filter=["consumer"]) == []
        described = admin.describe_groups([group.group_id])[group.group_id]
        assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
        (shown,) = described["members"]
        assert (shown["client_id"], shown["group_instance_id"]) == (member.name, "static")
        assert group.topic in str(shown["member_assignment"])

    def test_offsets_and_deletion(self, admin: Any, group: Group) -> None:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import GroupSubscribedToTopicError  # type: ignore[import-untyped,unused-ignore]

        first, second = (TopicPartition(group.topic, partition) for partition in range(2))
        expected = {first: OffsetAndMetadata(5, "why", -1), second: OffsetAndMetadata(6, "", -1)}
        admin.alter_group_offsets(group.group_id, expected)
        assert admin.list_group_offsets({group.group_id: None})[group.group_id] == expected
        admin.delete_group_offsets(group.group_id, [second])
        assert group.committed() == [5, 0]
        group.join("kafka-python")
        group.wait_until_shared()
        group.wait(
            lambda: group.reported_commits() == dict(enumerate(group.ends)), "the records after the offsets"
        )
        assert admin.delete_groups([group.group_id]) == {group.group_id: "NonEmptyGroupError"}
        refused = admin.delete_group_offsets(group.group_id, [first])
        assert refused == {first: GroupSubscribedToTopicError}
        group.leave()
        assert admin.delete_groups([group.group_id]) == {group.group_id: "OK"}
        assert group.type_and_state() == ("", "")

    def test_removal_of_members(self, admin: Any, group: Group) -> None:
        """By instance id: one that is in the group and one that is not."""
        from kafka.admin import MemberToRemove  # type: ignore[import-untyped,unused-ignore]
        from kafka.errors import NoError, UnknownMemberIdError  # type: ignore[import-untyped,unused-ignore]

        group.join("kafka-python", Settings(instance="gone", session_ms=60_000))
        group.wait_until_shared()
        group.leave()
        assert group.type_and_state() == ("classic", "stable")
        members = [MemberToRemove(group_instance_id=name) for name in ("gone", "never")]
        removed = admin.remove_group_members(group.group_id, members)
        assert removed == {"gone": NoError, "never": UnknownMemberIdError}
        assert group.type_and_state() == ("classic", "empty")


def test_aiokafka(group: Group) -> None:
    from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped,unused-ignore]

    group.join("aiokafka")
    group.wait_until_shared()
    group.wait_until_read()

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=group.bootstrap)
        await admin.start()
        try:
            assert await admin.find_coordinator(group.group_id) == 1
            assert (group.group_id, "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups([group.group_id])
            (row,) = described.groups
            assert row[:5] == (0, group.group_id, "Stable", "consumer", "range")
            assert row[5][0][1] == group.members[0].name
            offsets = await admin.list_consumer_group_offsets(group.group_id)
            assert sorted((one.partition, row.offset) for one, row in offsets.items()) == [(0, 20), (1, 20)]
        finally:
            await admin.close()

    asyncio.run(run())
