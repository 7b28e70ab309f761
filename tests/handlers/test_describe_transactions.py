"""DescribeTransactions: errors. compat_tests/transactions compares descriptions with Kafka's."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


@simulated
async def test_unknown_transactional_ids() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        response = await client.call(
            DescribeTransactionsRequest(["", "unknown"]), 0, DescribeTransactionsResponse
        )
        codes = [row.error_code for row in response.transaction_states]
        # No client has looked for a coordinator yet, so __transaction_state does not exist.
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NOT_COORDINATOR]
        producer = TransactionalProducer(Link(client), "id")
        await producer.init()
        response = await client.call(
            DescribeTransactionsRequest(["unknown"]), 0, DescribeTransactionsResponse
        )
        assert response.transaction_states[0].error_code in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,)
