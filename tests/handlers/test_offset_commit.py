"""OffsetCommit: stored and refused offsets of a group without members."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.coordinators.log import CoordinatorLog
from oncelog.coordinator.groups.offsets import SIZE_CHECK_MIN
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.wire.messages.offset_commit import OffsetCommitResponse
from tests.harness.offset_requests import commit, commit_request, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE


@simulated
async def test_a_commit_is_found_again_and_survives_a_restart() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 3)
        assert await commit(client, "g", {"a": {0: 5}}) == {("a", 0): NOT_COORDINATOR}
        await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
        offsets = {"a": {0: 5, 2: (7, "note")}}
        assert await commit(client, "g", offsets) == {("a", 0): 0, ("a", 2): 0}
        assert await commit(client, "g", {"a": {0: 6}}) == {("a", 0): 0}
        expected = {("a", 0): 6, ("a", 1): -1, ("a", 2): (7, "note")}
        assert await fetch_offsets(client, "g", {"a": [0, 1, 2]}) == expected
        client = await broker.restart()
        assert await fetch_offsets(client, "g", {"a": [0, 1, 2]}) == expected
        assert await fetch_offsets(client, "g") == {("a", 0): 6, ("a", 2): (7, "note")}
        assert await fetch_offsets(client, "h", {"a": [0]}) == {("a", 0): -1}


@simulated
async def test_only_unknown_partitions_are_refused() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
        await create_topic(client, "a", 1)
        offsets = {"b": {0: 1}, "a": {0: 1, 1: 1, -1: 1}}
        response = await commit(client, "g", offsets)
        assert response == {("b", 0): UNKNOWN, ("a", 0): 0, ("a", 1): UNKNOWN, ("a", -1): UNKNOWN}
        assert await fetch_offsets(client, "g") == {("a", 0): 1}


@pytest.mark.parametrize(("version", "generation", "code"), [
    (8, 0, ErrorCode.ILLEGAL_GENERATION), (9, 0, ErrorCode.GROUP_ID_NOT_FOUND), (9, -1, 0), (2, -1, 0),
])  # fmt: skip
def test_a_generation_of_an_unknown_group(version: int, generation: int, code: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
            await create_topic(client, "a", 1)
            member = {"generation_id_or_member_epoch": generation, "member_id": "" if generation < 0 else "m"}
            response = await commit(client, "g", {"b": {1: 1}, "a": {0: 1}}, version, **member)
            assert response == {("b", 1): UNKNOWN, ("a", 0): code}
            assert await fetch_offsets(client, "g") == ({("a", 0): 1} if code == 0 else {})

    run()


@simulated
async def test_metadata_has_a_limit_in_utf_16_units() -> None:
    async with SimBroker(config={"offset.metadata.max.bytes": "4"}) as broker:
        client = broker.connect()
        await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
        await create_topic(client, "a", 4)
        notes = {
            0: (1, "1234"),
            1: (1, "12345"),
            2: (1, "\U0001f600\U0001f600"),
            3: (1, "\U0001f600\U0001f60012"),
        }
        response = await commit(client, "g", {"a": notes})
        assert response == {("a", 0): 0, ("a", 1): TOO_LARGE, ("a", 2): 0, ("a", 3): TOO_LARGE}
        assert await fetch_offsets(client, "g") == {("a", 0): notes[0], ("a", 2): notes[2]}


@simulated
async def test_topics_by_id() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
        topic_id = await create_topic(client, "a", 1)
        request = commit_request("g", {"": {0: 3}, "x": {0: 4}})
        request.topics[0].topic_id, request.topics[1].topic_id = topic_id, b"\1" * 16
        response = await client.call(request, 10, OffsetCommitResponse)
        got = [(row.topic_id, row.partitions[0].error_code) for row in response.topics]
        assert got == [(b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID), (topic_id, 0)]
        assert await fetch_offsets(client, "g") == {("a", 0): 3}


@pytest.mark.parametrize("partitions", [10, SIZE_CHECK_MIN // 2])
def test_more_offsets_than_a_batch_holds(partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response is the same whether the check before encoding or, for few of them, the append refuses them."""
    is_checked = partitions > 10
    appended: list[int] = []
    append = CoordinatorLog.append

    def counted(self: CoordinatorLog, records: Any, *args: Any) -> int:
        appended.append(len(records))
        return append(self, records, *args)

    monkeypatch.setattr(CoordinatorLog, "append", counted)
    looks: list[int] = []
    check_batch_size = CoordinatorLog.check_batch_size

    def looked(self: CoordinatorLog, size: int) -> None:
        looks.append(size)
        check_batch_size(self, size)

    monkeypatch.setattr(CoordinatorLog, "check_batch_size", looked)

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
            smaller = [AlterableConfig("max.message.bytes", 0, "1000")]
            await client.call(
                IncrementalAlterConfigsRequest([AlterConfigsResource(2, "__consumer_offsets", smaller)]),
                1,
                IncrementalAlterConfigsResponse,
            )
            for topic in ("a", "b", "c"):
                await create_topic(client, topic, partitions)
            ten, all_of_one = dict.fromkeys(range(10), 5), dict.fromkeys(range(partitions), 5)
            everything = {"a": all_of_one, "b": all_of_one, "c": all_of_one}
            response = await commit(client, "g", everything)
            assert set(response.values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
            assert len(response) == 3 * partitions
            assert appended == ([] if is_checked else [30])
            assert await fetch_offsets(client, "g") == {}
            # Those whose text is too long are refused alone, and take no room.
            long_ones = dict.fromkeys(range(partitions), (5, "x" * 4097))
            response = await commit(client, "g", {"a": ten, "b": long_ones, "c": long_ones})
            assert response == {("a", at): 0 for at in ten} | {
                (topic, at): TOO_LARGE for topic in "bc" for at in long_ones
            }
            assert len(looks) == (2 if is_checked else 0), "once a request, however many topics are large"

    run()
