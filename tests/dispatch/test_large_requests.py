"""A request with very many rows never holds the loop for long, whoever sends it: decode, rights, handler and encode
give others their turn. Counted in lines of Python between two turns, which must not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from oncelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.schema import Message
from tests.common.batches import batch
from tests.harness.classic_members import coordinated
from tests.harness.log_lines import lines
from tests.harness.noting_authorizer import NotingAuthorizer
from tests.harness.requests import create_topic, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated, simulated_work
from tests.harness.steps import LongestTurn

__all__ = ["lines"]

FEW, MANY = 2_100, 4_000
LINES_PER_ROW = 7
"""Such as the removal of repeated names, which takes much less time than a row's work."""
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}

Make = Callable[[list[str]], Message]
REQUESTS: list[tuple[int, Make]] = [
    (12, lambda names: MetadataRequest([MetadataRequestTopic(name=name) for name in names])),
    (4, lambda names: MetadataRequest([MetadataRequestTopic(name=name) for name in names])),
    (2, lambda names: DeleteGroupsRequest(names)),
    (0, lambda names: DescribeTopicPartitionsRequest([TopicRequest(name) for name in names])),
    (5, lambda names: DescribeGroupsRequest(names)),
    (4, lambda names: FindCoordinatorRequest(coordinator_keys=names)),
    (5, lambda names: ListGroupsRequest(names)),
    (7, lambda names: CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])),
    (3, lambda names: CreatePartitionsRequest([CreatePartitionsTopic(name, 2) for name in names])),
    (2, lambda names: AlterConfigsRequest([AlterConfigsResource(2, name) for name in names])),
    (4, lambda names: DescribeConfigsRequest([DescribeConfigsResource(2, name) for name in names])),
    (6, lambda names: DeleteTopicsRequest([DeleteTopicState(name) for name in names])),
    (
        6,
        lambda names: ListOffsetsRequest(
            -1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)]) for name in names]
        ),
    ),
    (
        0,
        lambda names: OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in names]
        ),
    ),
    (
        3,
        lambda names: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0]) for name in names],
        ),
    ),
    (
        0,
        lambda names: ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name, [0]) for name in names]
        ),
    ),
    (2, lambda names: DescribeQuorumRequest([TopicData("t", [PartitionData(at) for at in range(len(names))])])),
    (0, lambda names: AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, 1) for name in names])),
    (
        12,
        lambda names: ProduceRequest(
            None, -1, 0, [TopicProduceData(name, partition_data=[PartitionProduceData(0, b"")]) for name in names]
        ),
    ),
    (
        0,
        lambda names: AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic(name) for name in names]),
    ),
    (
        0,
        lambda names: DeleteShareGroupOffsetsRequest(
            "g", [DeleteShareGroupOffsetsRequestTopic(name) for name in names]
        ),
    ),
    (0, lambda names: DescribeUserScramCredentialsRequest([UserName(name) for name in names])),
]  # fmt: skip


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number:06}" for number in range(count)]


def longest_turns(make: Make, version: int, config: dict[str, str]) -> list[LongestTurn]:
    """Return the longest turns for `FEW` and for `MANY` rows."""
    found: list[LongestTurn] = []

    @simulated_work(steps=2)
    async def run() -> None:
        async with SimBroker(config={**config, "auto.create.topics.enable": "false"}) as broker:
            client = broker.connect() if config else await coordinated(broker)
            api = Api(HANDLERS[make([]).API_KEY])
            # The first calls make what they need: internal topics, codecs.
            await client.call(make(names("a", 1)), version, api.response)
            await client.call(make(names("b", FEW)), version, api.response)
            for kind, count in (("c", FEW), ("d", MANY)):
                request = make(names(kind, count))
                turn = LongestTurn()
                await client.call(request, version, api.response)
                turn.end()
                found.append(turn)

    run()
    return found


CASES = [
    pytest.param(version, make, config, id=f"{HANDLERS[make([]).API_KEY].name}-v{version}-{rights}")
    for rights, config in (("denied", AUTHORIZER), ("allowed", {}))
    for version, make in REQUESTS
    # What is created is one batch of metadata.
    if not (rights == "allowed" and make([]).API_KEY == CreateTopicsRequest.API_KEY)
]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "make", "config"), CASES)
def test_the_work_between_two_turns_does_not_grow_with_the_rows(
    version: int, make: Make, config: dict[str, str]
) -> None:
    few, many = longest_turns(make, version, config)
    assert many.lines - few.lines < LINES_PER_ROW * (MANY - FEW), many.where.most_common(8)


@simulated_work(steps=1)
async def test_large_requests_are_answered_in_their_order() -> None:
    # The Produce waits for the disk, and the connection reads on.
    async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
        client = broker.connect()
        await create_topic(client, "t")
        large = ListOffsetsRequest(
            -1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(at, -1, -1) for at in range(MANY)])]
        )
        requests = ((produce_request("t", batch()), 9), (large, 6), (ListGroupsRequest(), 0))
        await client.send_bytes(b"".join(encode_request(one, version, 7) for one, version in requests))
        assert (await client.receive(ProduceResponse, 9)).responses[0].partition_responses[0].error_code == 0
        rows = (await client.receive(ListOffsetsResponse, 6)).topics[0].partitions
        assert [row.partition_index for row in rows] == list(range(MANY))
        assert (rows[0].offset, rows[1].error_code) == (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await client.receive(ListGroupsResponse, 0)


class Notes(Interceptor):
    """Notes what it is told of."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_request(self, context: RequestContext) -> Any:
        self.seen.append(len(context.request.topics))

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self.seen.append(failure)


@simulated
async def test_an_interceptor_sees_a_large_request_that_can_be_read(lines: list[str]) -> None:
    """One that ends too early closes the connection, for the same reason as a small one."""
    async with SimBroker() as broker:
        notes = Notes()
        broker.node.dispatcher.interception.install(notes)
        client = broker.connect()
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names("a", MANY)])
        await client.call(request, 4, MetadataResponse)
        assert notes.seen == [MANY, None]
        whole = encode_request(request, 4, 0, "x")[4:]
        await client.send_frame(whole[:-30])
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
        assert notes.seen == [MANY, None]
    assert "malformed request: MetadataRequest v4:" in lines[-1]


class Slow(NotingAuthorizer):
    """An authorizer whose decisions take five milliseconds."""

    def authorize(self, principal: str, host: str, operation: int, resource: tuple[int, str]) -> bool:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(0.005)
        return super().authorize(principal, host, operation, resource)


@simulated
async def test_many_costly_requests_that_come_together_give_others_their_turn() -> None:
    """Each is as small as those that are handled at once, and they are fewer than a connection may send in one turn."""
    async with SimBroker() as broker:
        client, *rest = (broker.connect() for _ in range(9))
        await create_topic(client, "mine")
        for one in (client, *rest):
            await one.call(
                DescribeConfigsRequest([DescribeConfigsResource(2, "mine")]), 4, DescribeConfigsResponse
            )
        authorizer = Slow()
        broker.authorize_with(authorizer)
        rows = ([DescribeConfigsResource(2, name)] for name in ("mine", "others"))
        mine, others = (encode_request(DescribeConfigsRequest(row), 4, 7) for row in rows)
        await client.send_bytes(mine * 60)
        for other in rest:
            await other.send_bytes(others)
        for _ in range(60):
            await client.receive(DescribeConfigsResponse, 4)
        assert authorizer.asked.count("mine") == 60
        assert authorizer.asked[:30].count("others") == len(rest)
