"""Random rules before random requests: whatever they do, responses keep their order, no file and no connection is left,
nothing fails with an internal error, and without rules all is as ever.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.common.batches import batch, record
from tests.faults.filled_requests import Filling, api_of
from tests.faults.rules import Ruled, ruled
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_client import CLIENT_ID, ConnectionEndedError, SimClient
from tests.harness.simulation import simulated

SEEDS = range(12)
REQUESTS = 40
PATIENCE_S = 10.0
"""Seconds of virtual time after which a client gives up."""

NOT_AT_RANDOM = ("create_topics", "create_partitions", "delete_topics", "alter_configs", "incremental_alter_configs",
                 "update_features", "sasl_handshake", "sasl_authenticate")  # fmt: skip
"""Requests that would change what the test rests on."""

HARMLESS = [handler for handler in HANDLERS.values() if handler.name not in NOT_AT_RANDOM]


def random_rule(rng: random.Random) -> dict[str, Any]:
    action: dict[str, Any] = rng.choice(
        [
            {
                "error": rng.choice(
                    ["NOT_LEADER_OR_FOLLOWER", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_SERVER_ERROR"]
                )
            },
            {"delay_ms": rng.randrange(2000)},
            {"drop_request": rng.choice(["close", "hang"])},
            {"drop_response": rng.choice(["close", "hang"])},
            {"throttle_ms": rng.randrange(500)},
            {"hold": True},
            {"duplicate": True},
            {"truncate": True},
            {"damage_crc": True},
        ]
    )
    filters: dict[str, Any] = rng.choice(
        [{}, {}, {"topic": "a"}, {"partition": [0, 7]}, {"topic": ["a", "b"]}, {"version": "4+"}]
    )
    which: dict[str, Any] = rng.choice(
        [{"nth": rng.randrange(1, 4)}, {"first": 2}, {"every": 3}, {"with_probability": 0.3}, {}]
    )
    return {"on": "*", **filters, **which, **action}


def random_request(rng: random.Random) -> tuple[Any, int]:
    topic = rng.choice("abc")
    kind = rng.randrange(4)
    if kind == 0:
        records = batch([record(None, bytes(rng.choice([10, 20_000])))])
        return produce_request(topic, records, acks=rng.choice([0, 1, -1])), 9
    if kind == 1:
        return fetch_request(topic, 0, max_wait_ms=rng.choice([0, 500])), 12
    handler = rng.choice(HARMLESS)
    version = rng.randint(handler.min_version, handler.max_version)
    return Filling(version).fill(api_of(handler.name).request), version


async def receive_all(client: SimClient, correlation_ids: list[int], it: Ruled) -> None:
    """Read until nothing more comes; responses must come in the order of their requests."""
    with trio.move_on_after(PATIENCE_S):
        try:
            while True:
                payload = await client.receive_frame()
                correlation_ids.append(int.from_bytes(payload[:4], "big"))
        except (ConnectionEndedError, trio.BrokenResourceError, OSError):
            return


async def use(it: Ruled, rng: random.Random) -> None:
    client = it.broker.connect()
    seen: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_all, client, seen, it)
        for correlation_id in range(REQUESTS):
            request, version = random_request(rng)
            with trio.move_on_after(PATIENCE_S) as sending:
                try:
                    await client.send_bytes(encode_request(request, version, correlation_id, CLIENT_ID))
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    break
            if sending.cancelled_caught:  # half of a frame may have gone
                break
    assert seen == sorted(set(seen))
    client.transport.close()


@pytest.mark.parametrize("seed", SEEDS)
@simulated
async def test_random_rules(seed: int) -> None:
    rng = random.Random(seed)
    async with ruled() as it:
        setup = it.broker.connect()
        for name in "abc":
            await create_topic(setup, name, configs={"retention.ms": "-1"})
            await produce(setup, name, batch([record(None, bytes(20_000))]))
        setup.transport.close()
        for _ in range(4):
            it.rules.add(random_rule(rng))
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(use, it, rng)
        states = it.rules.states
        assert all(state.fired <= state.matched or "probability" in state.text for state in states)
        it.rules.clear()
        await trio.sleep(60)
        assert it.broker.server_connections() == []
        assert it.broker.node.host.internal_errors == 0
        client = it.broker.connect()
        assert (await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code == 0
        for name in "abc":
            row = await produce(client, name)
            assert row.error_code == 0
