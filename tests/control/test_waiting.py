"""Waits for requests, records, groups and transactions: what ends them, what counts, and what their errors say."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.control.errors import InvalidArgumentError, WaitTimeoutError
from oncelog.broker.control.operations.clients import connected_clients
from oncelog.broker.control.operations.dead_letters import wait_for_dead_letters
from oncelog.broker.control.operations.waiting import (
    requests,
    wait_for,
    wait_for_group,
    wait_for_records,
    wait_for_transaction,
)
from oncelog.broker.control.operations.writing import configure_group, delete_topic
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.common.batches import batch, record
from tests.control.journaled import journaled
from tests.harness.classic_consumers import assignment, subscription
from tests.harness.classic_members import SimMember
from tests.harness.offset_requests import commit
from tests.harness.offsets_topic import find
from tests.harness.requests import create_topic, fetch_request, produce
from tests.harness.sim_broker import EPOCH_MS
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


class Waiting:
    """A wait in a task of its own, and what it has returned."""

    def __init__(self, nursery: trio.Nursery, wait: Any, *arguments: Any, **named: Any) -> None:
        self.results: list[Any] = []
        self.begun_at = trio.current_time()
        self.waited_s: float | None = None

        async def run() -> None:
            self.results.append(await wait(*arguments, **named))
            self.waited_s = trio.current_time() - self.begun_at

        nursery.start_soon(run)

    async def ended(self) -> bool:
        """Whether it has ended, without any time passing."""
        await trio.testing.wait_all_tasks_blocked()
        return bool(self.results)


@simulated
async def test_a_request_that_comes_later() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await find(client)
        waiting = Waiting(nursery, wait_for, broker, api="OffsetCommit", group="g", timeout=10)
        assert not await waiting.ended()
        await commit(client, "other", {"t": {0: 1}})
        await commit(client, "g", {"u": {0: 1}})  # refused
        assert not await waiting.ended()
        await commit(client, "g", {"t": {0: 7}})
        assert await waiting.ended()
        [found] = waiting.results
        assert found.body.topics[0].partitions[0].committed_offset == 7
        assert waiting.waited_s == 0
        assert not broker.journal.listeners


@simulated
async def test_what_was_there_before_counts_unless_it_is_to_come_after() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        for _ in range(2):
            await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        first = await wait_for(broker, api="ListGroups")
        second = await wait_for(broker, api="ListGroups", times=2)
        assert (first.number, second.number) == (1, 2)
        assert (await wait_for(broker, api="ListGroups", after=1)).number == 2
        later = Waiting(nursery, wait_for, broker, api="ListGroups", after=second.number)
        third = Waiting(nursery, wait_for, broker, api="ListGroups", times=3)
        assert not await later.ended()
        await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        assert await later.ended()
        assert await third.ended()


@simulated
async def test_a_request_that_is_pending_does_not_count() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client, producer = broker.sim.connect(), broker.sim.connect()
        await create_topic(client, "t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        waiting = Waiting(nursery, wait_for, broker, api="Fetch", topic="t")
        any_outcome = Waiting(nursery, wait_for, broker, api="Fetch", error=None)
        assert not await waiting.ended()
        assert not await any_outcome.ended()
        await produce(producer, "t")
        assert await waiting.ended()
        assert await any_outcome.ended()
        assert waiting.results[0].outcome == "responded"


@simulated
async def test_requests_with_errors() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await commit(client, "g", {"t": {0: 1}})
        failed = await wait_for(broker, api="OffsetCommit", error="NOT_COORDINATOR")
        assert failed == await wait_for(broker, api="OffsetCommit", error=None)
        with pytest.raises(WaitTimeoutError) as caught:
            await wait_for(broker, api="OffsetCommit", group="g", timeout=3)
        assert str(caught.value).splitlines() == [
            "no OffsetCommit with group 'g' in 3 s",
            "other OffsetCommit requests, the newest last:",
            "  <Request 2: OffsetCommit v9 client_id='simulated' topic='t' group='g' NOT_COORDINATOR>",
            "since the wait began: no request came",
        ]


@simulated
async def test_a_time_out_says_what_came_instead() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()

        async def later() -> None:
            await trio.sleep(1)
            for _ in range(2):
                await client.call(ListGroupsRequest(), 0, ListGroupsResponse)

        nursery.start_soon(later)
        began = trio.current_time()
        with pytest.raises(WaitTimeoutError) as caught:
            await wait_for(broker, api="EndTxn", transactional_id="a", times=2, timeout=5)
        assert trio.current_time() - began == 5
        assert str(caught.value).splitlines() == [
            "no EndTxn with transactional_id 'a' 2 times in 5 s; 0 came",
            "no other EndTxn was sent, either",
            "since the wait began: 2 ListGroups",
        ]
        assert not broker.journal.listeners


@simulated
async def test_a_wait_outlives_a_restart() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        request = Waiting(nursery, wait_for, broker, api="ListGroups")
        records = Waiting(nursery, wait_for_records, broker, topic="t")
        group = Waiting(nursery, wait_for_group, broker, group_id="g", state="Empty")
        await trio.testing.wait_all_tasks_blocked()
        await broker.stop()
        assert not await records.ended()
        await broker.start()
        client = broker.sim.connect()
        await client.call(ListGroupsRequest(), 0, ListGroupsResponse)
        await find(client)
        await produce(client, "t")
        await commit(client, "g", {"t": {0: 1}})
        assert await request.ended()
        assert await records.ended()
        assert await group.ended()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@simulated
async def test_records(isolation: Any) -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        waiting = Waiting(nursery, wait_for_records, broker, topic="t", count=3, isolation=isolation)
        assert not await waiting.ended()
        await create_topic(client, "t", 2)
        await produce(client, "t", batch([record(None, b"a")]), 1)
        producer = TransactionalProducer(Link(client), "app")
        await producer.init()
        await producer.send("t", 0, [b"b", b"c"], EPOCH_MS)
        assert await waiting.ended() == (isolation == "read_uncommitted")
        if isolation == "read_committed":
            with pytest.raises(WaitTimeoutError) as caught:
                await wait_for_records(broker, topic="t", count=3, isolation=isolation, timeout=1)
            assert str(caught.value) == (
                "topic t has 1 records, not 3, after 1 s (read_committed); open transactions hold back what follows: "
                "t-0 from offset 0 to 2 (transactional ids: app)"
            )
        await producer.end(commit=True)
        assert await waiting.ended()
        [records] = waiting.results
        assert [(one.partition, one.value) for one in records] == [(0, b"b"), (0, b"c"), (1, b"a")]
        assert all(
            not log.waiters for log in [broker.node.cluster.log("t", 0), broker.node.cluster.log("t", 1)]
        )


@simulated
async def test_records_of_a_topic_that_is_created_anew() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        waiting = Waiting(nursery, wait_for_records, broker, topic="t", count=2)
        await produce(client, "t", batch([record(None, b"old")]))
        assert not await waiting.ended()
        await delete_topic(broker, name="t")
        await create_topic(client, "t")
        for value in (b"a", b"b"):
            assert not await waiting.ended()
            await produce(client, "t", batch([record(None, value)]))
        assert await waiting.ended()
        assert [one.value for one in waiting.results[0]] == [b"a", b"b"]


def letter(offset: int, group: str = "g") -> bytes:
    """A batch with a dead letter about offset ``offset`` of u-0."""
    names = "topic", "partition", "offset", "group", "delivery.count", "message"
    texts = "u", "0", str(offset), group, "1", "Offset rejected by client."
    headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in zip(names, texts, strict=True)]
    return batch([record(None, None, headers)])


@simulated
async def test_dead_letters() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        waiting = Waiting(nursery, wait_for_dead_letters, broker, group_id="g", count=2)
        assert not await waiting.ended()
        await configure_group(broker, group_id="g", config={"errors.deadletterqueue.topic.name": "dlq.g"})
        assert not await waiting.ended()
        await create_topic(client, "dlq.g", 2)
        for partition, sent in ((1, letter(5)), (0, letter(6, "other"))):
            await produce(client, "dlq.g", sent, partition)
            assert not await waiting.ended()
        await produce(client, "dlq.g", letter(7))
        assert await waiting.ended()
        [letters] = waiting.results
        assert [(one.queue_partition, one.queue_offset, one.offset) for one in letters] == [
            (0, 1, 7),
            (1, 0, 5),
        ]
        assert waiting.waited_s == 0
        logs = [broker.node.cluster.log("dlq.g", partition) for partition in range(2)]
        assert not any(log.waiters for log in logs)


@simulated
async def test_dead_letters_of_a_queue_that_changes() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        for queue in ("dlq.a", "dlq.b"):
            await create_topic(client, queue)
        await configure_group(broker, group_id="g", config={"errors.deadletterqueue.topic.name": "dlq.a"})
        waiting = Waiting(nursery, wait_for_dead_letters, broker, group_id="g", count=2)
        await produce(client, "dlq.a", letter(1))
        assert not await waiting.ended()
        await configure_group(broker, group_id="g", config={"errors.deadletterqueue.topic.name": "dlq.b"})
        await produce(client, "dlq.b", letter(2))
        assert not await waiting.ended()
        await delete_topic(broker, name="dlq.b")
        await create_topic(client, "dlq.b")
        for offset in (3, 4):
            assert not await waiting.ended()
            await produce(client, "dlq.b", letter(offset))
        assert await waiting.ended()
        assert [one.offset for one in waiting.results[0]] == [3, 4]


@simulated
async def test_a_topic_that_never_comes() -> None:
    async with journaled() as broker:
        client = broker.sim.connect()
        await create_topic(client, "orders")
        with pytest.raises(WaitTimeoutError, match="there is no topic 'order'; did you mean orders"):
            await wait_for_records(broker, topic="order", timeout=2)
        with pytest.raises(WaitTimeoutError, match="there is no partition 3 of topic 'orders'"):
            await wait_for_records(broker, topic="orders", partition=3, timeout=2)
        with pytest.raises(WaitTimeoutError, match="topic orders has 0 records, not 1, after 0 s"):
            await wait_for_records(broker, topic="orders", timeout=0)


@simulated
async def test_a_group() -> None:
    async with journaled(group_initial_rebalance_delay_ms="3000") as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await find(client)
        await produce(client, "t", batch([record(None, b"v", offset_delta=at) for at in range(5)]))
        rebalancing = Waiting(nursery, wait_for_group, broker, group_id="g", state="PreparingRebalance")
        stable = Waiting(nursery, wait_for_group, broker, group_id="g", state="Stable", members=1)
        read = Waiting(nursery, wait_for_group, broker, group_id="g", lag=0, timeout=30)
        member = SimMember(broker.sim)
        member.metadata = subscription(["t"])
        nursery.start_soon(member.enter)
        await trio.sleep(1)  # its JoinGroup has no response yet
        assert await rebalancing.ended()
        assert rebalancing.waited_s == 0
        await trio.sleep(3)
        await member.sync({member.member_id: assignment({"t": [0]})})
        assert await stable.ended()
        assert not await read.ended()
        own: dict[str, Any] = {
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
        }
        await commit(member.client, "g", {"t": {0: 4}}, **own)
        assert not await read.ended()
        with pytest.raises(WaitTimeoutError) as caught:
            await wait_for_group(broker, group_id="g", state="Empty", lag=0, timeout=1)
        assert str(caught.value) == (
            "group g has not got state Empty and a lag of at most 0 in 1 s: it is Stable with 1 members (simulated), "
            "lag {'t': {0: 1}}\nsince the wait began: no request came"
        )
        await commit(member.client, "g", {"t": {0: 5}}, **own)
        assert await read.ended()
        nursery.cancel_scope.cancel()


@simulated
async def test_offsets_that_are_committed_in_a_transaction() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        await find(client)
        wanted = {"t": {0: 5}}
        waiting = Waiting(nursery, wait_for_group, broker, group_id="g", committed=wanted)
        producer = TransactionalProducer(Link(client), "app")
        for offset in (4, 7):
            await producer.init()
            await producer.send("t", 0, [b"v"], EPOCH_MS)
            await producer.send_offset("g", "t", 0, offset)
            assert not await waiting.ended()
            await producer.end(commit=True)
        assert await waiting.ended()
        assert waiting.results[0].committed == {"t": {0: 7}}
        with pytest.raises(
            WaitTimeoutError, match=r"it is Empty with 0 members, committed \{'t': \{0: 7\}\}"
        ):
            await wait_for_group(broker, group_id="g", committed={"t": {0: 8}}, timeout=1)


class Slow(Interceptor):
    """Lets a second pass before requests to leave a group are handled."""

    async def on_request(self, context: RequestContext) -> Any:
        if context.api.row.name == "leave_group":
            await trio.sleep(1)


@simulated
async def test_a_change_that_only_the_end_of_a_request_tells_of() -> None:
    async with (
        journaled(group_initial_rebalance_delay_ms="1000") as broker,  # the members join together
        trio.open_nursery() as nursery,
    ):
        await find(broker.sim.connect())
        members = [SimMember(broker.sim), SimMember(broker.sim)]
        async with trio.open_nursery() as joins:
            for member in members:
                joins.start_soon(member.enter)
        broker.node.dispatcher.interception.install(Slow())
        waiting = Waiting(nursery, wait_for_group, broker, group_id="g", state="PreparingRebalance")
        await members[1].leave()  # nothing is written: the other one has to join first
        assert await waiting.ended()
        assert waiting.waited_s == 1


@simulated
async def test_a_group_without_offsets_has_no_lag_of_0() -> None:
    async with journaled() as broker:
        with pytest.raises(WaitTimeoutError, match="there is no group 'g'"):
            await wait_for_group(broker, group_id="g", lag=0, timeout=1)
        await find(broker.sim.connect())
        member = SimMember(broker.sim)
        await member.found()
        with pytest.raises(WaitTimeoutError, match="lag unknown: no offset is committed"):
            await wait_for_group(broker, group_id="g", lag=0, timeout=1)


@simulated
async def test_a_transaction() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        client = broker.sim.connect()
        await create_topic(client, "t")
        aborted = {"transactional_id": "app", "state": "CompleteAbort"}
        waiting = Waiting(nursery, wait_for_transaction, broker, **aborted, timeout=60)
        producer = TransactionalProducer(Link(client), "app", timeout_ms=5_000)
        await producer.init()
        await producer.send("t", 0, [b"b"], EPOCH_MS)
        with pytest.raises(
            WaitTimeoutError, match="the transaction of app was not CompleteAbort in 1 s: it is Ongoing"
        ):
            await wait_for_transaction(broker, **aborted, timeout=1)
        assert not await waiting.ended()
        await trio.sleep(20)  # it times out: no client asks for anything
        assert waiting.results[0].state == "CompleteAbort"


@simulated
async def test_clients_that_are_connected() -> None:
    async with journaled() as broker, trio.open_nursery() as nursery:
        kept, another, ending = (broker.sim.connect(client_id=name) for name in ("kept", "kept", "ending"))
        for client in (kept, ending):
            await find(client)
        broker.sim.connect()  # it has said nothing
        assert await connected_clients(broker) == {"ending": [], "kept": []}
        for known, found in (({}, {"kept": []}), ({"kept": [], "gone": []}, {})):
            waiting = Waiting(nursery, connected_clients, broker, known={"ending": [], **known}, timeout=1)
            await waiting.ended()
            await trio.sleep(1)
            assert waiting.results == [found]
        waiting = Waiting(nursery, connected_clients, broker, known={"kept": []}, timeout=10)
        assert not await waiting.ended()
        ending.transport.close()
        assert await waiting.ended()
        assert (waiting.results, waiting.waited_s) == ([{}], 0)
        await TransactionalProducer(Link(another), "app").init()
        member = SimMember(broker.sim)
        member.client = kept
        await member.enter()
        joined = {"kept": ["group g", "transactional id app"]}
        assert await connected_clients(broker, known={"kept": ["group g"]}) == joined
        assert await connected_clients(broker, known=joined) == {}
        another.transport.close()
        waiting = Waiting(nursery, connected_clients, broker, known={"kept": ["group g"]}, timeout=10)
        assert await waiting.ended()
        kept.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert await connected_clients(broker) == {}


@pytest.mark.parametrize(
    ("wait", "arguments", "message"),
    [
        (wait_for, {"api": "Commit"}, "api='Commit'"),
        (wait_for, {"api": "Fetch", "timeout": -1}, "timeout=-1: expected seconds, from 0 to 86400"),
        (connected_clients, {"timeout": -1}, "timeout=-1: expected seconds, from 0 to 86400"),
        (wait_for, {"api": "Fetch", "times": 0}, "times=0: expected a number from 1 on"),
        (wait_for_records, {"topic": "t", "isolation": "commited"}, "did you mean read_committed"),
        (wait_for_records, {"topic": "t", "count": -1}, "count=-1: expected a number of records"),
        (wait_for_group, {"group_id": "g"}, "nothing to wait for: give state, members, lag or committed"),
        (wait_for_group, {"group_id": "g", "members": -1}, "members=-1: expected a number from 0 on"),
        (wait_for_group, {"group_id": "g", "lag": 0.5}, "lag=0.5: expected a number from 0 on"),
        (wait_for_group, {"group_id": "g", "state": "stable"}, "state='stable'; did you mean Stable"),
        (wait_for_transaction, {"transactional_id": "a", "state": "Aborted"}, "state='Aborted'"),
    ],
)
@simulated
async def test_arguments_that_make_no_sense(wait: Any, arguments: Any, message: str) -> None:
    async with journaled() as broker:
        with pytest.raises(InvalidArgumentError, match=message):
            await wait(broker, **arguments)


@simulated
async def test_no_requests_are_kept() -> None:
    async with journaled(kept=0) as broker, trio.open_nursery() as nursery:
        with pytest.raises(InvalidArgumentError, match="requests_kept=0"):
            await wait_for(broker, api="Fetch")
        assert await requests(broker) == []
        client = broker.sim.connect()
        waiting = Waiting(nursery, wait_for_records, broker, topic="t")
        await create_topic(client, "t")
        await produce(client, "t")
        assert await waiting.ended()  # topics and logs tell of their changes
        deleted = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000)
        await client.call(deleted, 6, DeleteTopicsResponse)
