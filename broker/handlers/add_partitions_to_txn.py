"""AddPartitionsToTxn (API key 24): a transaction will write to these partitions, all of them or none.

- Versions 0 to 3 are for clients: one transaction. From 4 on brokers ask for several at once, or only whether
  partitions are part of one (``verify_only``, KIP-890).
- A partition that does not exist refuses all of its transaction: the others get OPERATION_NOT_ATTEMPTED.
- Before version 2 PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from oncelog.broker.slices import Slices
from oncelog.coordinator.transactions.errors import producer_fenced_or_older
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.transactions.shard import TransactionShard

FENCED_VERSION = 2
BATCHED_VERSION = 4

Answer = AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]


def handle(services: Services, request: AddPartitionsToTxnRequest, context: RequestContext) -> Answer:
    if context.api_version < BATCHED_VERSION:
        transaction = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            request.v3_and_below_topics,
        )
        return _one(services, transaction, context)
    if len(request.transactions) == 1:
        return _one(services, request.transactions[0], context)
    return _several(services, request, context)


async def _several(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    found = AddPartitionsToTxnResponse()
    slices = Slices()
    for transaction in request.transactions:
        answer = _one(services, transaction, context)
        if not isinstance(answer, AddPartitionsToTxnResponse):
            answer = await answer
        found.results_by_transaction += answer.results_by_transaction
        if slices.is_over():
            await slices.pause()
    return found


def _one(services: Services, transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Answer:
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    answer = partial(_answer, transaction.transactional_id, partitions, context.api_version)

    def refused(error: KafkaError) -> AddPartitionsToTxnResponse:
        return answer({}, producer_fenced_or_older(error.code, context.api_version, FENCED_VERSION))

    unknown = [partition for partition in partitions if not _exists(services, *partition)]
    if unknown:
        errors = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return answer(errors, ErrorCode.OPERATION_NOT_ATTEMPTED)
    if not transaction.transactional_id:
        return answer({}, ErrorCode.INVALID_REQUEST)
    step = partial(_step, transaction, partitions, answer, context.api_version)
    return services.transactions.serve(transaction.transactional_id, step, refused)


def _step(
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[tuple[str, int]],
    answer: partial[AddPartitionsToTxnResponse],
    api_version: int,
    shard: TransactionShard,
) -> AddPartitionsToTxnResponse:
    from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
    from oncelog.coordinator.transactions.state import TRANSACTIONS_V0, TRANSACTIONS_V2

    name = transaction.transactional_id
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        missing = verify_partitions(shard, name, producer_id, epoch, partitions)
        return answer(dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE), ErrorCode.NONE)
    version = TRANSACTIONS_V2 if api_version >= BATCHED_VERSION else TRANSACTIONS_V0
    add_partitions(shard, name, producer_id, epoch, partitions, version)
    return answer({}, ErrorCode.NONE)


def _exists(services: Services, topic: str, partition: int) -> bool:
    known = services.cluster.topic(topic)
    return known is not None and 0 <= partition < len(known.partitions)


def _answer(
    transactional_id: str,
    partitions: list[tuple[str, int]],
    api_version: int,
    errors: dict[tuple[str, int], ErrorCode],
    others: ErrorCode,
) -> AddPartitionsToTxnResponse:
    """A row per partition: its error, or that of all others."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for topic, partition in dict.fromkeys(partitions):
        code = errors.get((topic, partition), others)
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(partition, code))
    rows = [AddPartitionsToTxnTopicResult(topic, results) for topic, results in topics.items()]
    if api_version < BATCHED_VERSION:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id, rows)]
    )
