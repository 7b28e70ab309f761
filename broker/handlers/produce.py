"""Produce (API key 0): appends record batches to partitions.

Versions 3 to 9 know topics by name, 13 by id; 8 adds errors per record; 11 knows TRANSACTION_ABORTABLE; from 12 on a
transactional batch adds its partition to the transaction (KIP-890), before that the producer must have done so.
Every partition stands alone: one row's error changes nothing of the others (Kafka: ``ReplicaManager.appendRecords``).
The response waits for an fsync (``flush.messages``) and, with acks=all, for followers; meanwhile the connection goes on
reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.coordinators.add_partitions_to_txn_manager import (
    Refusals,
    SupportedOperation,
    TransactionalProducer,
)
from oncelog.broker.handlers.appends import (
    TRANSACTIONS_V2_PRODUCE_VERSION,
    TURN_S,
    Appends,
    Verification,
    error_row,
    name_of,
    response_for_acks,
    rows_of,
)
from oncelog.broker.requests.authorization import TOPIC_RESOURCE, TRANSACTIONAL_ID_RESOURCE, WRITE
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.batch import (
    HEADER_SIZE,
    LOW_ATTRIBUTES_AT,
    MAGIC,
    MAGIC_AT,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    producer_of,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.produce import (
    PRODUCE_TOPIC_ID_VERSION,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.wire.steps import finish, listed

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.steps import Steps

ABORTABLE_VERSION = 11


def handle(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is not None
                and len(records) > LOW_ATTRIBUTES_AT
                and records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
                and records[MAGIC_AT] == MAGIC
            ):
                return _handle_transactional(services, request, context)
    if context.is_large:
        return Pending(_append_large(services, request, context))
    denied = {} if services.authorization.authorizer is None else finish(_denied(services, request, context))
    appends = Appends(services.cluster, request, context, denied, rows_of(services.cluster, request, context))
    return appends.response() if appends.append(TURN_S) else appends.rest()


async def _append_large(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    """Append the batches of a request with very many rows, which has its frame for itself."""
    denied: Refusals = {}
    if services.authorization.authorizer is not None:
        denied = await in_slices(_denied(services, request, context))
    rows = await in_slices(listed(rows_of(services.cluster, request, context)))
    return await Appends(services.cluster, request, context, denied, rows).append_rest()


def _denied(services: Services, request: ProduceRequest, context: RequestContext) -> Steps[Refusals]:
    """Return the partitions to which the client may not write, a topic at each step. Unknown ids are no secret."""
    may_write = services.authorization.predicate(context, WRITE, TOPIC_RESOURCE)
    denied: Refusals = {}
    for topic in request.topic_data:
        name = name_of(services.cluster, topic, context)
        if (name or context.api_version < PRODUCE_TOPIC_ID_VERSION) and not may_write(name):
            for partition in topic.partition_data:
                denied[name, partition.index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield
    return denied


def _handle_transactional(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """Append transactional batches after their partitions were verified in the producer's transaction, or added."""
    if request.transactional_id is None or not services.authorization.allows(
        context, WRITE, TRANSACTIONAL_ID_RESOURCE, request.transactional_id
    ):
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    denied = {} if services.authorization.authorizer is None else finish(_denied(services, request, context))
    rows = list(rows_of(services.cluster, request, context))
    producers: set[tuple[int, int]] = set()
    sequences: dict[tuple[str, int], int] = {}
    for name, partition in rows:
        records = partition.records
        if (name, partition.index) in denied:
            continue
        if name and records is not None and len(records) >= HEADER_SIZE:
            producer_id, epoch, sequence = producer_of(records, PRODUCER_AT)
            if records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT and producer_id >= 0:
                producers.add((producer_id, epoch))
                sequences[name, partition.index] = sequence
    if len(producers) > 1:
        return _refuse_all(
            request,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "The request has transactional batches of more than one producer",
        )
    verification = None
    if producers:
        producer = TransactionalProducer(request.transactional_id, *producers.pop())
        support = support_of(context.api_version)
        verification = Verification(services.txn_partitions, producer, support, sequences)
    appends = Appends(services.cluster, request, context, denied, rows, verification)
    if context.is_large:
        return Pending(appends.append_rest())
    return appends.response() if appends.verify() and appends.append(TURN_S) else appends.rest()


def support_of(version: int) -> SupportedOperation:
    """Return what a producer with this version of Produce supports."""
    if version >= TRANSACTIONS_V2_PRODUCE_VERSION:
        return SupportedOperation.ADD_PARTITION
    if version >= ABORTABLE_VERSION:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.DEFAULT_ERROR


def _refuse_all(
    request: ProduceRequest, code: ErrorCode, message: str | None = None
) -> ProduceResponse | None:
    """Return the response with the same error for every partition."""
    error = KafkaError(code, message)
    return response_for_acks(
        ProduceResponse(
            [
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [error_row(partition.index, error, None) for partition in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        ),
        request.acks,
    )
