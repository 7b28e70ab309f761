"""ListTransactions: every id that this node coordinates, once all are loaded."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
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
