"""The garbage collector of a server: a large request sets off no collection of all objects, which finds nothing."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

from oncelog.broker.seams import garbage
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.harness.classic_members import coordinated
from tests.harness.requests import create_topic, fetch, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated

ROWS = 400_000
"""The objects of a request with 100,000 rows, of its response and of what is between them."""


@pytest.fixture
def settled() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    garbage.settle()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_a_large_request_sets_off_no_full_collection(settled: None) -> None:
    assert gc.isenabled()
    full = gc.get_stats()[-1]["collections"]
    rows = [[number] for number in range(ROWS)]
    assert gc.get_stats()[-1]["collections"] == full
    assert len(rows) == ROWS


class Cycle:
    """Garbage by itself, once no one else refers to it."""

    def __init__(self) -> None:
        self.myself = self


def test_young_garbage_is_found(settled: None) -> None:
    garbage_found = threading.Event()
    weakref.finalize(Cycle(), garbage_found.set)
    for _ in range(1_000_000):  # one collection, but another thread may just be in one
        if garbage_found.is_set():
            return
        Cycle()
    pytest.fail(f"no collection: enabled {gc.isenabled()}, thresholds {gc.get_threshold()}, {gc.get_count()}")


async def topics(client: SimClient) -> None:
    await create_topic(client, "t")
    await produce(client, "t")
    await fetch(client, "t", 0)
    request = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000)
    await client.call(request, 6, DeleteTopicsResponse)


async def groups(client: SimClient) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"x")]
    joining = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    joined = await client.call(joining, 3, JoinGroupResponse)
    await client.call(
        LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id)]), 3, LeaveGroupResponse
    )


@pytest.mark.parametrize("come_and_go", [topics, groups])
@simulated
async def test_what_comes_and_goes_leaves_no_cycles(
    come_and_go: Callable[[SimClient], Awaitable[None]],
) -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await come_and_go(client)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await come_and_go(client)
            assert gc.collect() < 10
        finally:
            gc.enable()
