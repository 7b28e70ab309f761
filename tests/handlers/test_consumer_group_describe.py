"""ConsumerGroupDescribe: members of both protocols, groups that are none, several at once."""

from __future__ import annotations

from oncelog.broker.requests.authorization import GROUP_OPERATIONS, NOT_ASKED
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tests.handlers.test_consumer_group_heartbeat import SimConsumer, described
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_a_group_with_one_member() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "t", 2)
        await SimConsumer(client, "one", ["t"]).join()
        has = Assignment([TopicPartitions(topic_id, "t", [0, 1])])
        assert await described(client) == DescribedGroup(
            group_id="g",
            group_state="Stable",
            group_epoch=2,
            assignment_epoch=2,
            assignor_name="uniform",
            members=[
                Member(
                    "one",
                    member_epoch=2,
                    client_id="simulated",
                    client_host="/client",
                    subscribed_topic_names=["t"],
                    subscribed_topic_regex="",
                    assignment=has,
                    target_assignment=has,
                    member_type=1,
                )
            ],
            authorized_operations=GROUP_OPERATIONS,
        )


@simulated
async def test_version_0_does_not_tell_the_protocol() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await SimConsumer(client, "one", ["t"]).join()
        request = ConsumerGroupDescribeRequest(["g"], False)
        response = await client.call(request, 0, ConsumerGroupDescribeResponse)
        [group] = response.groups
        assert group.members[0].member_type == -1
        assert group.authorized_operations == NOT_ASKED


@simulated
async def test_groups_of_other_types() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await SimMember(broker, "classic").found()
        await SimConsumer(client, "one", ["t"]).join()
        request = ConsumerGroupDescribeRequest(["classic", "", "nowhere", "g"], True)
        response = await client.call(request, 1, ConsumerGroupDescribeResponse)
        assert [(row.group_id, row.error_code, row.error_message) for row in response.groups] == [
            ("classic", ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group."),
            ("", ErrorCode.INVALID_GROUP_ID, None),
            ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND, "Group nowhere not found."),
            ("g", ErrorCode.NONE, None),
        ]
        assert [row.authorized_operations for row in response.groups] == [NOT_ASKED] * 3 + [GROUP_OPERATIONS]


@simulated
async def test_before_the_offsets_topic_exists() -> None:
    async with SimBroker() as broker:
        assert (await described(broker.connect())).error_code == ErrorCode.NOT_COORDINATOR
