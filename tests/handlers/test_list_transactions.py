"""ListTransactions: every id that this node coordinates, once all are loaded."""

from __future__ import annotations

import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


@simulated
async def test_lists_are_whole_after_a_restart() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        names = [f"id-{number}" for number in range(20)]
        for name in names:
            await TransactionalProducer(Link(client), name).init()
        await broker.crash("process")
        await broker.start()
        await broker.node.logs.recovered()
        client = broker.connect()
        for _ in range(100):
            response = await client.call(ListTransactionsRequest(["Empty"]), 2, ListTransactionsResponse)
            if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        assert response.error_code == 0
        assert sorted(row.transactional_id for row in response.transaction_states) == sorted(names)
        response = await client.call(
            ListTransactionsRequest([], transactional_id_pattern="["), 2, ListTransactionsResponse
        )
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@simulated
async def test_others_have_their_turn_while_an_expression_is_compiled_and_matched() -> None:
    async with SimBroker() as broker:
        client, other = broker.connect(), broker.connect()
        await TransactionalProducer(Link(client), "app").init()
        done: list[str] = []

        async def ask(pattern: str) -> None:
            request = ListTransactionsRequest([], transactional_id_pattern=pattern)
            response = await client.call(request, 2, ListTransactionsResponse)
            assert [row.transactional_id for row in response.transaction_states] == ["app"]
            done.append("list")

        async def look() -> None:
            await other.call(MetadataRequest([]), 12, MetadataResponse)
            done.append("metadata")

        for pattern in ("app" + "(x{0,2})" * 50, "app|" + "(.*a){1}" * 49 + "(.*b)" * 900):
            done.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, pattern)
                nursery.start_soon(look)
            assert done == ["metadata", "list"]


@simulated
async def test_an_expression_is_refused_where_it_would_take_too_long() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await TransactionalProducer(Link(client), "a" * 30_000).init()
        for pattern, error in (
            ("\\pL" * 10_000, ErrorCode.INVALID_REGULAR_EXPRESSION),
            (".*a" * 100, ErrorCode.INVALID_REGULAR_EXPRESSION),
            ("a.*", ErrorCode.NONE),
        ):
            request = ListTransactionsRequest([], transactional_id_pattern=pattern)
            response = await client.call(request, 2, ListTransactionsResponse)
            assert response.error_code == error
            assert len(response.transaction_states) == (error == ErrorCode.NONE)
