"""The actions of rules, except `error`, on a whole broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.control.moving_time import TimeMove
from oncelog.wire.batch import crc_matches, read_header
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import ProduceResponse
from tests.common.batches import batch, record
from tests.faults.rules import list_groups, ruled
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.requests import (
    bytes_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    read_all,
)
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated

# -- lost requests and responses


@pytest.mark.parametrize("action", ["drop_request", "drop_response"])
@simulated
async def test_a_lost_request_is_not_handled_and_a_lost_response_was(action: str) -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        rule = it.add(on="Produce", nth=2, **{action: "close"})
        await produce(client, "t")
        await client.send(produce_request("t", batch()), 9)
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
        again = it.broker.connect()
        assert (await produce(again, "t")).base_offset == (2 if action == "drop_response" else 1)
        assert it.counts(rule) == (3, 1)


@pytest.mark.parametrize("action", ["drop_request", "drop_response"])
@simulated
async def test_a_connection_that_hangs_is_silent_and_ends_with_its_peer(action: str) -> None:
    async with ruled() as it:
        setup, client = it.broker.connect(), it.broker.connect()
        await create_topic(setup, "t")
        it.add(on="Produce", first=1, **{action: "hang"})
        await client.send(produce_request("t", batch()), 9)
        await client.send(ListGroupsRequest(), 0)
        # More than fits into the connection: what it says is forgotten, not kept.
        with trio.move_on_after(10) as waiting:
            for _ in range(100):
                await client.send(produce_request("t", batch([record(None, bytes(20_000))])), 9)
            await client.receive_frame()
        assert waiting.cancelled_caught, "it was answered, or the connection was closed"
        assert len(it.broker.server_connections()) == 2
        client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert len(it.broker.server_connections()) == 1
        assert len(await read_all(setup, "t")) == (1 if action == "drop_response" else 0)


@simulated
async def test_responses_before_a_lost_one_are_sent() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="Produce", nth=3, drop_response="close")
        for _ in range(4):
            await client.send(produce_request("t", batch()), 9)
        for offset in range(2):
            response = await client.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].base_offset == offset
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()


@simulated
async def test_close_ends_the_connection_in_place_of_a_response() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="ListGroups", close=True)
        with pytest.raises(ConnectionEndedError):
            await list_groups(client)


@simulated
async def test_a_produce_with_acks_0_has_no_response_to_drop() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        rule = it.add(on="Produce", drop_response="close")
        await client.send(produce_request("t", batch(), acks=0), 9)
        assert await list_groups(client) == 0
        assert it.counts(rule) == (0, 0)
        assert it.state(rule).notes == ("a Produce with acks=0 has no response to drop",)


# -- time


@simulated
async def test_a_delayed_request_is_handled_later() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="ListGroups", delay_ms=1500, nth=1)
        started = trio.current_time()
        await list_groups(client)
        assert 1.5 <= trio.current_time() - started < 1.6
        await list_groups(client)
        assert trio.current_time() - started < 1.6


@simulated
async def test_a_throttled_client_is_told_and_muted() -> None:
    async with ruled() as it:
        client, other = it.broker.connect(), it.broker.connect()
        it.add(on="ListGroups", throttle_ms=2000, nth=1)
        started = trio.current_time()
        response = await client.call(ListGroupsRequest(), 2, ListGroupsResponse)
        assert (response.throttle_time_ms, response.error_code) == (2000, 0)
        assert trio.current_time() - started < 0.1
        await list_groups(other)
        assert trio.current_time() - started < 0.1
        await list_groups(client)
        assert 2 <= trio.current_time() - started < 2.1


@simulated
async def test_a_produce_with_acks_0_can_be_throttled() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="Produce", throttle_ms=2000, nth=1)
        started = trio.current_time()
        await client.send(produce_request("t", batch(), acks=0), 9)
        await list_groups(client)
        assert 2 <= trio.current_time() - started < 2.1
        assert len(await read_all(client, "t")) == 1


@simulated
async def test_a_held_request_waits_for_the_release_and_others_behind_it_are_not_read() -> None:
    async with ruled() as it:
        client, other = it.broker.connect(), it.broker.connect()
        await create_topic(other, "t")
        rule = it.add(on="Produce", hold=True)
        await client.send(produce_request("t", batch()), 9)
        await client.send(ListGroupsRequest(), 2)
        await it.rules.wait_fired(rule)
        await trio.testing.wait_all_tasks_blocked()
        assert (client.unread(), it.state(rule).held) == (0, 1)
        with trio.move_on_after(60) as sending:
            while True:
                await client.send(produce_request("t", batch([record(None, bytes(20_000))])), 9)
        assert sending.cancelled_caught, "the broker reads without bound"
        assert len(await read_all(other, "t")) == 0
        it.rules.release(rule)
        assert (await client.receive(ProduceResponse, 9)).responses[0].partition_responses[0].base_offset == 0
        assert (await client.receive(ListGroupsResponse, 2)).error_code == 0
        assert it.state(rule).held == 0
        assert (await produce(it.broker.connect(), "t")).error_code == 0, "it holds nothing any more"


@simulated
async def test_a_paused_client_is_held_with_every_request_until_it_is_released() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        rule = it.add(pause=True, client_id="simulated")
        others = it.add(pause=True, client_id="another")
        await client.send(ListGroupsRequest(), 2)
        await client.send(ListGroupsRequest(), 2)
        await trio.sleep(3600)
        assert client.unread() == 0
        it.rules.release(rule)
        for _ in range(2):
            await client.receive(ListGroupsResponse, 2)
        assert (it.counts(rule), it.counts(others)) == ((2, 1), (0, 0))


@simulated
async def test_rules_that_are_cleared_do_nothing_to_what_they_held() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="ListGroups", hold=True)
        it.add(on="ListGroups", close=True)
        it.add(on="ListGroups", error="NOT_COORDINATOR")
        it.add(on="ListGroups", drop_response="hang")
        await client.send(ListGroupsRequest(), 2)
        await trio.testing.wait_all_tasks_blocked()
        it.rules.clear()
        assert (await client.receive(ListGroupsResponse, 2)).error_code == 0


@simulated
async def test_a_rule_that_is_removed_while_a_fetch_waits_does_nothing_to_its_response() -> None:
    async with ruled() as it:
        client, other = it.broker.connect(), it.broker.connect()
        await create_topic(other, "t")
        rule = it.add(on="Fetch", drop_response="close")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        it.rules.remove(rule)
        data = batch([record(None, bytes(20_000))])
        await produce(other, "t", data)
        response = await client.receive(FetchResponse, 12)
        assert len(bytes_of(response.responses[0].partitions[0].records)) == len(data)


@simulated
async def test_a_broker_that_stops_ends_what_is_held_and_what_hangs() -> None:
    async with ruled() as it:
        clients = [it.broker.connect() for _ in range(2)]
        held = it.add(on="ListGroups", nth=1, hold=True)
        it.add(on="ListGroups", nth=2, drop_response="hang")
        for client in clients:
            await client.send(ListGroupsRequest(), 2)
            await trio.testing.wait_all_tasks_blocked()
        it.rules.detach()
        await it.broker.stop()
        assert it.state(held).held == 0
        await it.broker.start()
        it.rules.attach(it.broker.node)
        assert await list_groups(it.broker.connect()) == 0


# -- handled twice


@simulated
async def test_a_duplicated_produce_appends_twice_unless_its_producer_is_idempotent() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        it.add(on="Produce", duplicate=True)
        assert (await produce(client, "t")).base_offset == 1
        data = batch([record(None, b"v")], producer=(4000, 0, 0))
        row = await produce(client, "t", data)
        assert (row.base_offset, row.error_code) == (2, 0)
        batches = await read_all(client, "t")
        assert [one.base_offset for one in batches] == [0, 1, 2]


@simulated
async def test_a_duplicated_end_txn_gets_the_second_response() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        response = None
        while response is None or response.error_code:
            await client.call(FindCoordinatorRequest("", 1, ["a"]), 4, FindCoordinatorResponse)
            response = await client.call(InitProducerIdRequest("a", 60_000), 4, InitProducerIdResponse)
        rule = it.add(on="EndTxn", transactional_id="a", duplicate=True)
        end = EndTxnRequest("a", response.producer_id, response.producer_epoch, True)
        second = await client.call(end, 3, EndTxnResponse)
        assert second.error_code == ErrorCode.INVALID_TXN_STATE  # nothing was in the transaction
        assert it.counts(rule) == (1, 1)


# -- damaged records


@simulated
async def test_a_truncated_fetch_loses_half_of_its_last_batch() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        rule = it.add(on="Fetch", topic="t", truncate=True, nth=1)
        await fetch(client, "t")
        assert it.counts(rule) == (0, 0), "a Fetch without records counts"
        large = batch([record(None, bytes(20_000))])
        await produce(client, "t", large)
        await produce(client, "t", large)
        damaged = bytes_of((await fetch(client, "t")).records)
        whole = bytes_of((await fetch(client, "t")).records)
        assert (len(damaged), len(whole)) == (len(large) + len(large) // 2, 2 * len(large))
        assert whole.startswith(damaged)
        assert it.counts(rule) == (2, 1)


@pytest.mark.parametrize("size", [10, 20_000], ids=["in memory", "in the file"])
@simulated
async def test_a_damaged_crc_is_wrong_in_the_first_batch(size: int) -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(None, bytes(size))]))
        it.add(on="Fetch", partition=0, damage_crc=True, nth=1)
        it.add(on="Fetch", partition=1, damage_crc=True)
        damaged = bytes_of((await fetch(client, "t")).records)
        whole = bytes_of((await fetch(client, "t")).records)
        assert [at for at in range(len(whole)) if whole[at] != damaged[at]] == [17]
        assert not crc_matches(damaged, 0, read_header(damaged, 0))
        assert crc_matches(whole, 0, read_header(whole, 0))


@simulated
async def test_files_of_a_response_that_is_dropped_after_all_are_released() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(None, bytes(20_000))]))
        it.add(on="Fetch", drop_response="hang")
        await client.send(fetch_request("t", 0), 12)
        await trio.testing.wait_all_tasks_blocked()
        assert it.broker.files.held == 0


# -- connections


@simulated
async def test_refused_connections_end_at_once_and_open_ones_stay() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await list_groups(client)
        rule = it.add(refuse_connections=True)
        with pytest.raises(ConnectionEndedError):
            await list_groups(it.broker.connect())
        assert await list_groups(client) == 0
        assert it.counts(rule) == (1, 1)
        it.rules.remove(rule)
        assert await list_groups(it.broker.connect()) == 0
        it.add(refuse_connections=True, listener="ANOTHER")
        assert await list_groups(it.broker.connect()) == 0


# -- members of groups


@pytest.mark.parametrize(
    ("rule", "is_dead"),
    [
        ({"on": "Heartbeat", "hold": True}, True),
        ({"on": "Heartbeat", "drop_response": "hang"}, True),
        ({"on": "Heartbeat", "delay_ms": 10}, False),
        ({"pause": True, "client_id": "simulated"}, True),
    ],
    ids=str,
)
@simulated
async def test_a_member_that_is_kept_from_the_broker_is_dead_when_time_moves(
    rule: dict[str, Any], is_dead: bool
) -> None:
    async with ruled() as it:
        await coordinated(it.broker)
        member = SimMember(it.broker)
        await member.found()
        rule_id = it.rules.add(rule)
        request = HeartbeatRequest(member.group, member.generation, member.member_id)
        await member.client.send(request, 4)
        await trio.testing.wait_all_tasks_blocked()
        node = it.broker.node
        move = TimeMove((node,), it.broker.clock, lambda: None, it.rules.pauses)
        await move.advance(3600, keep_members=True, timeout_s=10)
        expired = f"member {member.member_id} of group g: session expired"
        assert (expired in [str(one) for one in move.happened]) == is_dead
        it.rules.release(rule_id)
        if rule.get("drop_response") is None:  # a zombie that wakes learns that it was given up
            code = (await member.client.receive(HeartbeatResponse, 4)).error_code
            assert code == (ErrorCode.UNKNOWN_MEMBER_ID if is_dead else 0)
