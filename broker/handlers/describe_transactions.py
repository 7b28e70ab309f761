"""DescribeTransactions (API key 65): describes transactional ids and the partitions of their transactions.

KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_by_row
from oncelog.broker.requests.authorization import DESCRIBE, TOPIC_RESOURCE, TRANSACTIONAL_ID_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from oncelog.broker.coordinators.transactions import TransactionCoordinator
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.transactions.shard import TransactionShard


def handle(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
    def describe(
        transactional_ids: list[str],
    ) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
        return _describe(services, transactional_ids, context)

    return chunked_by_row(
        request.transactional_ids, describe, lambda response: response.transaction_states, same=str
    )


def _describe(
    services: Services, transactional_ids: list[str], context: RequestContext
) -> DescribeTransactionsResponse | Pending[DescribeTransactionsResponse]:
    shards: list[TransactionShard] = []

    def response() -> DescribeTransactionsResponse:
        return _described(services, transactional_ids, context, shards)

    def error_response(error: KafkaError) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            0, [TransactionState(error.code, transactional_id) for transactional_id in transactional_ids]
        )

    return services.transactions.runtime.respond_read(shards, response(), error_response, response)


def _described(
    services: Services, transactional_ids: list[str], context: RequestContext, shards: list[TransactionShard]
) -> DescribeTransactionsResponse:
    """Return the response; ``shards`` gets the shards that it is about."""
    transactions, authorization = services.transactions, services.authorization
    may_describe = authorization.predicate(context, DESCRIBE, TRANSACTIONAL_ID_RESOURCE)
    may_describe_topic = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=True)
    states = [
        _state(transactions, transactional_id, shards)
        if may_describe(transactional_id)
        else TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
        for transactional_id in transactional_ids
    ]
    if authorization.authorizer is not None:
        for state in states:
            state.topics = [topic for topic in state.topics if may_describe_topic(topic.topic)]
    return DescribeTransactionsResponse(0, states)


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
