"""EndTxn (API key 26): commits or aborts a transaction.

- In versions 0 to 4 the producer keeps its epoch. In version 5 (transactions v2) every end raises it, and the response
  has the producer id and epoch to go on with (KIP-890).
- Before version 2 PRODUCER_FENCED is returned as INVALID_PRODUCER_EPOCH.
- Kafka responds once the decision is stored, before the markers are written. Here they are mostly written by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.errors import producer_fenced_or_older
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.transactions.shard import TransactionShard

FENCED_VERSION = 2
TRANSACTIONS_V2_END_TXN_VERSION = 5


def handle(
    services: Services, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Pending[EndTxnResponse]:
    from oncelog.coordinator.transactions.end import end_transaction
    from oncelog.coordinator.transactions.state import TRANSACTIONS_V0, TRANSACTIONS_V2

    def step(shard: TransactionShard) -> EndTxnResponse:
        ended = end_transaction(
            shard,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            client_version=TRANSACTIONS_V2
            if context.api_version >= TRANSACTIONS_V2_END_TXN_VERSION
            else TRANSACTIONS_V0,
        )
        return EndTxnResponse(0, 0, *ended)

    def error_response(error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(0, producer_fenced_or_older(error.code, context.api_version, FENCED_VERSION))

    if not request.transactional_id:
        return EndTxnResponse(0, ErrorCode.INVALID_REQUEST)
    return services.transactions.serve(request.transactional_id, step, error_response)
