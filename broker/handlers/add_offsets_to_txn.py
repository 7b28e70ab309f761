"""AddOffsetsToTxn (API key 25): adds the partition that stores a group's offsets to a transaction.

- Only producers before transactions v2 send it; for the others TxnOffsetCommit adds the partition.
- Before version 2 PRODUCER_FENCED is returned as INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.errors import producer_fenced_or_older
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.transactions.shard import TransactionShard

FENCED_VERSION = 2


def handle(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Pending[AddOffsetsToTxnResponse]:
    from oncelog.coordinator.transactions.partitions import add_partitions
    from oncelog.coordinator.transactions.state import TRANSACTIONS_V0

    partition = (OFFSETS_TOPIC, services.groups.runtime.partition_for(request.group_id))

    def step(shard: TransactionShard) -> AddOffsetsToTxnResponse:
        name, producer_id, epoch = request.transactional_id, request.producer_id, request.producer_epoch
        add_partitions(shard, name, producer_id, epoch, [partition], TRANSACTIONS_V0)
        return AddOffsetsToTxnResponse(0, 0)

    def error_response(error: KafkaError) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(
            0, producer_fenced_or_older(error.code, context.api_version, FENCED_VERSION)
        )

    if not request.transactional_id:
        return AddOffsetsToTxnResponse(0, ErrorCode.INVALID_REQUEST)
    return services.transactions.serve(request.transactional_id, step, error_response)
