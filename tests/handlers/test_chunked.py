"""Requests with many rows: the chunked response equals the response at once, and other clients are served meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers import chunked, offset_fetch
from oncelog.broker.handlers.chunked import ROWS_AT_ONCE
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.metadata.config_changes import SET, AlteredResource, ConfigChange, alter
from oncelog.broker.metadata.topics import delete
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.wire.schema import ZERO_UUID, Message
from tests.harness.classic_members import coordinated
from tests.harness.metadata_node import StandInNode
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated_work

ROWS = ROWS_AT_ONCE + 19
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE = 2, 4, 32
LATEST = -1


class LargeRequest(NamedTuple):
    """A request of `ROWS` rows, and how to find the results of the rows in its response."""

    request: Message
    results: Callable[[Any], list[Any]]
    inner_results: Callable[[Any], list[Any]] | None = None
    """Those of a nested row."""


NAMES = ["here" if number % 3 == 0 else f"name-{number}" for number in range(ROWS)]
"""Every third row is about the topic "here", whose partitions are 0 to 2; the others are unknown."""
LARGE = 3
"""The row that has `ROWS` nested ones; the others have none, one or two."""


def partitions(row: int) -> list[int]:
    """The partitions of a nested row."""
    return [number % 5 for number in range(ROWS if row == LARGE else row % 3)]


LARGE_REQUESTS = [
    LargeRequest(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in NAMES]),
        lambda response: response.groups,
    ),
    LargeRequest(FindCoordinatorRequest(coordinator_keys=NAMES), lambda response: response.coordinators),
    LargeRequest(DescribeGroupsRequest(NAMES), lambda response: response.groups),
    LargeRequest(
        DeleteRecordsRequest(
            [
                DeleteRecordsTopic(name, [DeleteRecordsPartition(index) for index in partitions(row)])
                for row, name in enumerate(NAMES)
            ]
        ),
        lambda response: response.topics,
        lambda topic: topic.partitions,
    ),
    LargeRequest(
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index) for index in partitions(row)])
                for row, name in enumerate(NAMES)
            ]
        ),
        lambda response: response.topics,
        lambda topic: topic.partitions,
    ),
    LargeRequest(
        DescribeProducersRequest([TopicRequest(name, partitions(row)) for row, name in enumerate(NAMES)]),
        lambda response: response.topics,
        lambda topic: topic.partitions,
    ),
    LargeRequest(DescribeTransactionsRequest(NAMES), lambda response: response.transaction_states),
    LargeRequest(ConsumerGroupDescribeRequest(NAMES), lambda response: response.groups),
]


def check(
    request: Message,
    answer_class: type[Message],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
    flush: str = "1000",
) -> Any:
    """Return the response. It equals the one that is made at once, and another connection had its turn before it."""
    found = []

    @simulated_work(steps=1)
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": flush}) as broker:
            client, other = await coordinated(broker), broker.connect()
            await create_topic(client, "here", 3)
            await client.call(request, version, answer_class)  # makes what it needs: internal topics
            await client.call(ListGroupsRequest(), 0, ListGroupsResponse)

            await client.send(request, version)
            await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
            assert client.unread() == 0
            in_chunks = await client.receive(answer_class, version)

            with monkeypatch.context() as patched:
                patched.setattr(chunked, "ROWS_AT_ONCE", 1_000_000)
                patched.setattr(chunked, "LARGE_ROWS_AT_ONCE", 1_000_000)
                at_once = await client.call(request, version, answer_class)
            assert in_chunks == at_once
            found.append(in_chunks)

    run()
    return found[0]


@pytest.mark.parametrize("large", LARGE_REQUESTS, ids=lambda large: HANDLERS[large.request.API_KEY].name)
def test_the_response_in_chunks_is_the_response(large: LargeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(HANDLERS[large.request.API_KEY])
    response = check(large.request, api.response, api.max_version, monkeypatch)
    results = large.results(response)
    assert len(results) == ROWS
    if large.inner_results is not None:
        assert [len(large.inner_results(result)) for result in results] == [
            len(partitions(row)) for row in range(ROWS)
        ]


def test_a_large_group_that_is_named_again_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    read = offset_fetch._group_result

    def counted(services: Any, lookup: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append((lookup.group.group_id, lookup.group.member_epoch))
        return read(services, lookup, *args, **kwargs)

    topics = [OffsetFetchRequestTopics("here", partition_indexes=[0])]
    rows = [OffsetFetchRequestGroup(name, None, -1, None) for name in ("a", "b", "a", "a")]
    rows[2:2] = [OffsetFetchRequestGroup("a", None, 5, None), OffsetFetchRequestGroup("a", None, -1, topics)]
    with monkeypatch.context() as patched:
        patched.setattr(offset_fetch, "_group_result", counted)
        response = check(OffsetFetchRequest(groups=rows), OffsetFetchResponse, 9, monkeypatch)
    assert [group.group_id for group in response.groups] == ["a", "b", "a", "a", "a", "a"]
    assert [len(group.topics) for group in response.groups] == [0, 0, 0, 1, 0, 0]
    # Asked three times: to begin with, in chunks, and at once.
    in_chunks, at_once = asked[-10:-6], asked[-6:]
    assert in_chunks == [("a", -1), ("b", -1), ("a", 5), ("a", -1)]
    assert len(at_once) == len(rows)


def test_descriptions_of_configurations_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        DescribeConfigsResource(TOPIC_RESOURCE, "here" if number % 2 else f"none-{number}", None)
        for number in range(ROWS)
    ]
    response = check(DescribeConfigsRequest(rows), DescribeConfigsResponse, 4, monkeypatch)
    assert [(row.resource_name, bool(row.configs)) for row in response.results] == [
        (row.resource_name, row.resource_name == "here") for row in rows
    ]


def test_list_offsets_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is requested twice is refused at both places in the request."""
    rows = [ListOffsetsPartition(number % ROWS, -1, LATEST) for number in range(ROWS + 2)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("here", rows), ListOffsetsTopic("here", rows[2:3])])
    response = check(request, ListOffsetsResponse, 6, monkeypatch)
    twice, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [row.error_code for topic in response.topics for row in topic.partitions]
    assert codes == [twice, twice, twice, *[unknown] * (ROWS - 3), twice]
    same = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("here", rows[:1] * ROWS)])
    response = check(same, ListOffsetsResponse, 6, monkeypatch)
    assert [row.error_code for row in response.topics[0].partitions] == [twice]


@pytest.mark.parametrize("flush", ["1", "1000"])
def test_markers_in_chunks(flush: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [WritableTxnMarkerTopic("here", list(range(ROWS)))]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, False, topics, 0), WritableTxnMarker(8)])
    response = check(request, WriteTxnMarkersResponse, 1, monkeypatch, flush)
    rows = response.markers[0].topics[0].partitions
    assert [row.error_code for row in rows[:4]] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.partition_index for row in rows] == list(range(ROWS))
    assert [(row.producer_id, row.topics) for row in response.markers[1:]] == [(8, [])]


def test_several_transactions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [AddPartitionsToTxnTransaction(f"id-{number}", 7, 0, True) for number in range(ROWS)]
    response = check(AddPartitionsToTxnRequest(rows), AddPartitionsToTxnResponse, 4, monkeypatch)
    assert [row.transactional_id for row in response.results_by_transaction] == [
        row.transactional_id for row in rows
    ]


def test_configurations_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a resource does not depend on the resources before it or after it."""
    good, bad = [AlterableConfig("retention.ms", 0, "5")], [AlterableConfig("retention.ms", 0, "never")]
    rows = [AlterConfigsResource(TOPIC_RESOURCE, f"none-{number}", good) for number in range(ROWS)]
    rows += [AlterConfigsResource(GROUP_RESOURCE, f"g-{number}") for number in range(ROWS)]
    rows += [AlterConfigsResource(TOPIC_RESOURCE, name, good) for name in ("here", "none-3", "none-3")]
    rows += [AlterConfigsResource(BROKER_RESOURCE, "1", bad)]
    request = IncrementalAlterConfigsRequest(rows)
    response = check(request, IncrementalAlterConfigsResponse, 1, monkeypatch)
    unknown, twice = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    codes = [row.error_code for row in response.responses]
    assert codes[:5] == [unknown, unknown, unknown, twice, unknown]
    assert codes[ROWS:] == [*[0] * ROWS, 0, twice, twice, ErrorCode.INVALID_REQUEST]
    assert [row.resource_name for row in response.responses] == [row.resource_name for row in rows]


def test_topics_are_deleted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [DeleteTopicState(f"none-{number}") for number in range(ROWS)]
    rows += [DeleteTopicState("here"), DeleteTopicState("none-5"), DeleteTopicState(None, bytes([7] * 16))]
    response = check(DeleteTopicsRequest(rows), DeleteTopicsResponse, 6, monkeypatch)
    codes = {row.name: row.error_code for row in response.responses}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (codes["none-5"], codes["none-6"], codes["here"]) == (ErrorCode.INVALID_REQUEST, unknown, unknown)
    assert codes[None] == ErrorCode.UNKNOWN_TOPIC_ID
    assert len(codes) == ROWS + 2


def test_offsets_by_topic_id_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [OffsetFetchRequestTopics("", bytes([number] * 16), [0, 1]) for number in range(1, ROWS)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", None, -1, topics)])
    response = check(request, OffsetFetchResponse, 10, monkeypatch)
    assert [topic.topic_id for topic in response.groups[0].topics] == [topic.topic_id for topic in topics]


def test_offsets_of_a_transaction_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [TxnOffsetCommitRequestPartition(number, 5) for number in range(3)]
    topics = [TxnOffsetCommitRequestTopic(f"none-{number}", ZERO_UUID, rows) for number in range(ROWS)]
    request = TxnOffsetCommitRequest(
        "id", "g", 7, 0, topics=[*topics, TxnOffsetCommitRequestTopic("here", ZERO_UUID, rows)]
    )
    response = check(request, TxnOffsetCommitResponse, 3, monkeypatch)
    codes = [{row.error_code for row in topic.partitions} for topic in response.topics]
    assert codes == [{ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}] * ROWS + [{ErrorCode.NOT_COORDINATOR}]


@pytest.mark.parametrize("before", [None, 2, 10])
def test_committed_offsets_in_chunks(before: int | None) -> None:
    """All offsets are one batch. A topic that is deleted between the chunks leaves none."""
    rows = [OffsetCommitRequestPartition(number, 5 + number) for number in range(3)]
    topics = [OffsetCommitRequestTopic(f"none-{number}", partitions=rows) for number in range(ROWS - 2)]
    topics[1:1] = [OffsetCommitRequestTopic(name, partitions=rows) for name in ("here", "gone")]

    @simulated_work(steps=1)
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = await coordinated(broker), broker.connect()
            for name in ("here", "gone"):
                await create_topic(client, name, 2)
            await client.send(OffsetCommitRequest("g", topics=topics), 8)
            # Each takes a few steps of the commit.
            for _ in range(before or 0):
                await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
            if before is not None:
                gone = await other.call(DeleteTopicsRequest(topic_names=["gone"]), 5, DeleteTopicsResponse)
                assert gone.responses[0].error_code == 0
                assert client.unread() == 0
            response = await client.receive(OffsetCommitResponse, 8)
            found = {topic.name: [row.error_code for row in topic.partitions] for topic in response.topics}
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len(found) == ROWS
            assert found.pop("here") == [unknown, 0, 0]
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
            stored = await client.call(asked, 8, OffsetFetchResponse)
            left = {topic.name: len(topic.partitions) for topic in stored.groups[0].topics}
            if before is None:
                assert found.pop("gone") == [unknown, 0, 0]
                assert left == {"here": 2, "gone": 2}
            else:
                assert left == {"here": 2}
            assert all(codes == [unknown] * 3 for codes in found.values())

    run()


def gone_while(node: StandInNode, steps: Iterator[None], before: int) -> bool:
    """Take the steps, and delete topic "a" after so many of them. Returns whether it still existed."""
    for _ in zip(range(before), steps, strict=False):
        pass
    gone = node.call(DeleteTopicsRequest([DeleteTopicState("a")], [], 1000), 6)
    for _ in steps:
        pass
    return bool(gone.responses[0].error_code == 0)


def node_with_topics() -> StandInNode:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in ("a", "b")]), 7)
    return node


@pytest.mark.parametrize("before", range(12))
def test_a_topic_deleted_while_configurations_are_altered_leaves_none(before: int) -> None:
    """The configurations would become those of the next topic with the name."""
    node = node_with_topics()
    changes = [ConfigChange("retention.ms", SET, "5")]
    resources = [AlteredResource(TOPIC_RESOURCE, name, changes) for name in ("none", "a", "b")]
    rows: list[tuple[int, str | None, int, str]] = []
    steps = alter(node.metadata, node.config, resources, rows, lambda *row: row, validate_only=False)
    assert gone_while(node, steps, before)
    assert [row[0] for row in rows][::2] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    # The first of the last three steps has changed them all.
    assert rows[1][0] == (0 if before > 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    configs = node.metadata.image.configs
    assert (TOPIC_RESOURCE, "a") not in configs
    assert configs[TOPIC_RESOURCE, "b"] == {"retention.ms": "5"}


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("before", range(8))
def test_a_topic_deleted_by_another_request_meanwhile(before: int, by_id: bool) -> None:
    node = node_with_topics()
    first = (
        DeleteTopicState(None, node.metadata.image.topics["a"].topic_id) if by_id else DeleteTopicState("a")
    )
    rows: list[DeletableTopicResult] = []
    asked = [first, DeleteTopicState("b"), DeleteTopicState("none")]
    was_there = gone_while(node, delete(node.metadata, asked, rows), before)
    codes = {row.name: row.error_code for row in rows}
    gone = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes["b"] == 0
    assert len(rows) == 3
    assert next(row.error_code for row in rows if row.name not in ("b", "none")) in (
        gone if was_there else (0,)
    )
    assert not node.metadata.image.topics
