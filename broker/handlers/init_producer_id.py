"""InitProducerId (API key 22): returns a producer id and epoch, for an idempotent or a transactional producer.

- Without a transactional id the producer id is new. With one its epoch is the next: that fences the producer with the
  last epoch, and its open transaction is aborted (KIP-98).
- Version 3 lets a producer raise its own epoch (KIP-360). Before version 4 PRODUCER_FENCED is returned as
  INVALID_PRODUCER_EPOCH.
- Version 6 is unstable, and for two-phase commit: transactions of such a producer never time out. To keep a prepared
  one (``keepPreparedTxn``) is not supported, as in Kafka 4.3 (KIP-939).
- If a transaction must be aborted first, Kafka returns CONCURRENT_TRANSACTIONS and the client retries; here the first
  request succeeds if all markers could be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.errors import producer_fenced_or_older
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.coordinator.transactions.shard import TransactionShard

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCED_VERSION = 4


def handle(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _transactional(services, request, request.transactional_id, context)
    return InitProducerIdResponse(0, 0, services.next_producer_id(), 0)


def _transactional(
    services: Services, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    from oncelog.coordinator.transactions.init_producer_id import init_producer_id
    from oncelog.coordinator.transactions.state import ProducerIdAndEpoch

    config = services.config.current
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not config.transaction_two_phase_commit_enable:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    timeout_ms = None if request.enable2_pc else request.transaction_timeout_ms
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

    def step(shard: TransactionShard) -> InitProducerIdResponse:
        initialized = init_producer_id(shard, transactional_id, timeout_ms, expected)
        return InitProducerIdResponse(0, 0, *initialized)

    def error_response(error: KafkaError) -> InitProducerIdResponse:
        code = producer_fenced_or_older(error.code, context.api_version, FENCED_VERSION)
        return InitProducerIdResponse(0, code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    if timeout_ms is not None and not 0 < timeout_ms <= config.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return services.transactions.serve(transactional_id, step, error_response)
