"""ListTransactions (API key 66): lists the transactional ids that this node coordinates (KIP-664).

Version 1 filters by duration (KIP-994), 2 by a regular expression that must match the whole id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_then
from oncelog.broker.requests.authorization import DESCRIBE, TRANSACTIONAL_ID_RESOURCE
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


def handle(
    services: Services, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Pending[ListTransactionsResponse]:
    from oncelog.coordinator.transactions.admin import list_transactions

    def error_response(error: KafkaError) -> ListTransactionsResponse:
        return ListTransactionsResponse(0, error.code)

    shards = services.transactions.runtime.shards()
    response = ListTransactionsResponse()
    may_describe = services.authorization.predicate(context, DESCRIBE, TRANSACTIONAL_ID_RESOURCE, quiet=True)

    def listed_again() -> ListTransactionsResponse:
        again = ListTransactionsResponse()
        for _ in list_transactions(services.transactions.runtime.shards(), request, again, may_describe):
            pass
        return again

    return chunked_then(
        list_transactions(shards, request, response, may_describe),
        sum(len(shard.transactions) for shard in shards),
        lambda: services.transactions.runtime.respond_read(shards, response, error_response, listed_again),
        are_costly=bool(request.transactional_id_pattern),
    )
