"""DescribeTransactions (API key 65): describes transactional ids and the partitions of their transactions.

KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from oncelog.broker.coordinators.transactions import TransactionCoordinator
    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.transactions.shard import TransactionShard


def handle(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
    def describe(
        transactional_ids: list[str],
    ) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
        return _describe(services.transactions, transactional_ids)

    return chunked_by_row(
        request.transactional_ids, describe, lambda response: response.transaction_states, same=str
    )


def _describe(
    transactions: TransactionCoordinator, transactional_ids: list[str]
) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
    shards: list[TransactionShard] = []
    states = [_state(transactions, transactional_id, shards) for transactional_id in transactional_ids]

    def error_response(error: KafkaError) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            0, [TransactionState(error.code, transactional_id) for transactional_id in transactional_ids]
        )

    return transactions.runtime.respond(shards, DescribeTransactionsResponse(0, states), error_response)


def _state(
    transactions: TransactionCoordinator, transactional_id: str, shards: list[TransactionShard]
) -> TransactionState:
    from oncelog.coordinator.transactions.admin import describe_transaction

    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    try:
        shard = transactions.shard(transactional_id)
        shards.append(shard)
        return describe_transaction(shard, transactional_id)
    except KafkaError as error:
        return TransactionState(error.code, transactional_id)
