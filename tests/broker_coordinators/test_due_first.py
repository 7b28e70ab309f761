"""What is due runs before a request of the same turn about its group, transactional id or share partition.

`Late` moves time when a request is on its way to its handler. So the handler runs before the timer's task can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from oncelog.coordinator.groups.group_deadline import GroupDeadline
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.common.batches import batch
from tests.harness.classic_members import SESSION_MS, SimMember, coordinated, describe
from tests.harness.requests import create_topic, produce
from tests.harness.share_members import SimShareMember
from tests.harness.share_readers import ShareReader, serve_share_groups
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
    Versions,
)

CONSUMER_SESSION_S = 45
LOCK_S = 30
ACCEPT = [1]
REFUSED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)


class Late(Interceptor):
    """Moves time ahead by ``seconds`` just before the next request of an API is handled."""

    def __init__(self, broker: SimBroker, api: str, seconds: float) -> None:
        self.apis = frozenset((api,))
        self._broker = broker
        self._api = api
        self._seconds = seconds
        broker.node.dispatcher.interception.install(self)

    async def on_request(self, context: RequestContext) -> Any:
        if context.api.request.__name__ == f"{self._api}Request":
            self._broker.node.dispatcher.interception.remove(self)
            self._broker.clock.advance(self._seconds)


async def classic_member(broker: SimBroker) -> float:
    member = SimMember(broker)
    await member.found()
    return SESSION_MS / 1000


async def consumer_member(broker: SimBroker) -> float:
    request = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, ["t"], None, topic_partitions=[])
    response = await broker.connect().call(request, 1, ConsumerGroupHeartbeatResponse)
    assert response.error_code == 0, response
    return CONSUMER_SESSION_S


async def share_member(broker: SimBroker) -> float:
    await serve_share_groups(broker, bytes(16), 0)
    response = await SimShareMember(broker.connect(), "m", ["t"]).join()
    assert response.error_code == 0, response
    return CONSUMER_SESSION_S


async def delete(client: SimClient, *groups: str) -> dict[str, ErrorCode]:
    response = await client.call(DeleteGroupsRequest(list(groups)), 2, DeleteGroupsResponse)
    return {row.group_id: ErrorCode(row.error_code) for row in response.results}


@pytest.mark.parametrize("join", [classic_member, consumer_member, share_member])
def test_a_group_whose_last_session_has_ended_is_deleted(
    join: Callable[[SimBroker], Awaitable[float]],
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = await coordinated(broker)
            await create_topic(client, "t")
            session_s = await join(broker)
            Late(broker, "DeleteGroups", session_s - 0.001)
            assert await delete(client, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}
            Late(broker, "DeleteGroups", 0.002)
            assert await delete(client, "g") == {"g": ErrorCode.NONE}

    run()


@simulated
async def test_a_member_whose_session_has_ended_is_unknown() -> None:
    """Its heartbeat comes too late, though no other request came before it."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        member = SimMember(broker)
        await member.found()
        Late(broker, "Heartbeat", SESSION_MS / 1000 + 0.001)
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await describe(client)).group_state == "Empty"


@simulated
async def test_a_rebalance_whose_time_is_over_is_complete() -> None:
    """A member that did not rejoin is gone for the next request: the other's join has its response."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        first, second = SimMember(broker), SimMember(broker)
        first.session_ms = 60_000
        await first.found()
        await second.join()
        await second.send_join()
        await trio.testing.wait_all_tasks_blocked()
        assert (await describe(client)).group_state == "PreparingRebalance"
        Late(broker, "DescribeGroups", first.rebalance_ms / 1000 + 0.001)
        described = await describe(client)
        assert (described.group_state, len(described.members)) == ("CompletingRebalance", 1)
        assert (await second.joined()).error_code == 0


async def begin(broker: SimBroker, versions: Versions) -> TransactionalProducer:
    """Begin a transaction with a record, which may take a second."""
    client = broker.connect()
    await create_topic(client, "t", 2)
    producer = TransactionalProducer(Link(client), "x", versions, timeout_ms=1000)
    await producer.init()
    await producer.send("t", 0, [b"1"], broker.clock.now_ms())
    return producer


@pytest.mark.parametrize(
    ("api", "versions"),
    [("EndTxn", CLASSIC), ("EndTxn", V2), ("AddPartitionsToTxn", CLASSIC), ("Produce", V2)],
    ids=["EndTxn", "EndTxn v2", "AddPartitionsToTxn", "Produce v2"],
)
def test_a_transaction_that_has_timed_out_is_aborted(api: str, versions: Versions) -> None:
    """It is neither committed nor gets another partition, and no reader sees a record of it."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = await begin(broker, versions)
            late: dict[str, Callable[[], Awaitable[object]]] = {
                "EndTxn": lambda: producer.end(commit=True),
                "AddPartitionsToTxn": lambda: producer.add("t", 1),
                "Produce": lambda: producer.send("t", 1, [b"2"], broker.clock.now_ms()),
            }
            Late(broker, api, 20)  # a check comes every 10 s
            with pytest.raises(TransactionEndedError) as ended:
                await late[api]()
            assert ended.value.code in REFUSED
            for partition in range(2):
                reader = CommittedReader("t", partition)
                while await reader.poll(broker.connect()):
                    pass
                assert reader.values == {}
                assert reader.last_stable_offset == reader.high_watermark

    run()


@simulated
async def test_a_transaction_times_out_with_the_next_check() -> None:
    """Not before: a transaction that takes too long may be committed until then, as in Kafka."""
    async with SimBroker(
        config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "60000"}
    ) as broker:
        producer = await begin(broker, V2)
        to_the_check = 60 - broker.clock.now_ms() / 1000 % 60
        Late(broker, "DescribeTransactions", to_the_check - 1)
        assert await state_of(broker) == "Ongoing"
        await producer.end(commit=True)
        assert await state_of(broker) == "CompleteCommit"
        await producer.send("t", 0, [b"1"], broker.clock.now_ms())
        Late(broker, "DescribeTransactions", 61)
        assert await state_of(broker) in ("PrepareAbort", "CompleteAbort")


async def state_of(broker: SimBroker) -> str:
    response = await broker.connect().call(
        DescribeTransactionsRequest(["x"]), 0, DescribeTransactionsResponse
    )
    [row] = response.transaction_states
    return str(row.transaction_state)


@simulated
async def test_a_lock_that_has_ended_holds_nobody_back() -> None:
    """Another member gets the records at once; who held them cannot acknowledge them."""
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a")
        await produce(client, "a", batch(2))
        await serve_share_groups(broker, topic_id)
        first, second = (ShareReader(broker.connect(), topic_id, name) for name in "ab")
        assert await first.acquire(wait_ms=1000) == [(0, 1, 1)]
        assert await second.acquire() == []
        Late(broker, "ShareFetch", LOCK_S + 0.001)
        assert await second.acquire() == [(0, 1, 2)]
        Late(broker, "ShareAcknowledge", LOCK_S + 0.001)
        assert await second.acknowledge((0, 1, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


@simulated
async def test_only_its_own_group_waits_for_a_request() -> None:
    """The deadlines of other groups are left to the timer: thousands of sessions may end at once."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        timer = broker.node.groups.runtime.timer
        done: list[str] = []
        for name in ("other", "g"):
            timer.deadlines.set(GroupDeadline(0, name, "test"), 1000, partial(done.append, name))
        Late(broker, "DeleteGroups", 2)
        assert await delete(client, "g") == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
        assert done == ["g", "other"]


@simulated
async def test_a_request_does_not_wait_long() -> None:
    """A group of which too much is due is loading, as for its clients: they ask again."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        timer = broker.node.groups.runtime.timer
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        done: list[int] = []

        def act(number: int) -> None:
            done.append(number)
            clock.jump(0.015)

        for number in range(5):
            timer.deadlines.set(GroupDeadline(0, "g", "test", str(number)), 1000, partial(act, number))
        Late(broker, "DeleteGroups", 2)
        response = await delete(client, "g", "h")
        assert response == {"g": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "h": ErrorCode.GROUP_ID_NOT_FOUND}
        await trio.sleep(1)
        assert done == [0, 1, 2, 3, 4]
        assert await delete(client, "g") == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
