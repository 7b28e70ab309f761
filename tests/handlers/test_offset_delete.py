"""OffsetDelete: offsets are deleted, also after a restart."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.harness.offset_requests import commit, delete_offsets, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_offsets_are_forgotten() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "a", 2)
        assert await delete_offsets(client, "g", {"a": [0]}) == ErrorCode.NOT_COORDINATOR
        await client.call(FindCoordinatorRequest("g", 0), 1, FindCoordinatorResponse)
        assert await delete_offsets(client, "", {"a": [0]}) == ErrorCode.INVALID_GROUP_ID
        assert await delete_offsets(client, "g", {"a": [0]}) == ErrorCode.GROUP_ID_NOT_FOUND
        await commit(client, "g", {"a": {0: 1, 1: 2}})
        asked = {"b": [0], "a": [0, 5, -1]}
        response = {("b", 0): UNKNOWN, ("a", 0): 0, ("a", 5): UNKNOWN, ("a", -1): UNKNOWN}
        assert await delete_offsets(client, "g", asked) == response
        assert await delete_offsets(client, "g", {"a": [0]}) == {("a", 0): 0}
        assert await fetch_offsets(client, "g") == {("a", 1): 2}
        await broker.crash("process")
        await broker.start()
        assert await fetch_offsets(broker.connect(), "g") == {("a", 1): 2}
