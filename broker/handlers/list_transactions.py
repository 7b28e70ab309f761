"""ListTransactions (API key 66): lists the transactional ids that this node coordinates (KIP-664).

Version 1 filters by duration (KIP-994), 2 by a regular expression that must match the whole id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from oncelog.broker.request import Pending, RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Pending[ListTransactionsResponse]:
    from oncelog.coordinator.transactions.admin import list_transactions

    def error_response(error: KafkaError) -> ListTransactionsResponse:
        return ListTransactionsResponse(0, error.code)

    try:
        shards = services.transactions.runtime.shards()
        return services.transactions.runtime.respond(
            shards, list_transactions(shards, request), error_response
        )
    except KafkaError as error:
        return error_response(error)
