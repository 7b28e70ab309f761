"""Produce (API key 0): appends record batches to partitions.

Versions 3 to 9 know topics by name, 13 by id; 8 adds errors per record; 11 knows TRANSACTION_ABORTABLE; from 12 on a
transactional batch adds its partition to the transaction (KIP-890), before that the producer must have done so.
Every partition stands alone: one row's error changes nothing of the others (Kafka: ``ReplicaManager.appendRecords``).
The response waits only where ``flush.messages`` asks for an fsync; the connection goes on reading meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

import trio

from oncelog.broker.authorization import TOPIC_RESOURCE, TRANSACTIONAL_ID_RESOURCE, WRITE
from oncelog.broker.coordinators.add_partitions_to_txn_manager import (
    PartitionKey,
    Refusals,
    SupportedOperation,
    TransactionalProducer,
)
from oncelog.broker.request import CloseConnection, Pending, finished
from oncelog.broker.seams.clock import real_time
from oncelog.broker.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from oncelog.wire.batch import HEADER_SIZE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.produce import (
    PRODUCE_TOPIC_ID_VERSION,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from oncelog.wire.validate import InvalidRecords

if TYPE_CHECKING:
    from oncelog.broker.cluster import Cluster
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

ADMIN_CLIENT_ID = "__admin_client"
"""Kafka allows clients with this id to write to internal topics."""

MAGIC_AT, MAGIC = 16, 2
ATTRIBUTES_AT = 22
"""The position of the low byte of a batch's attributes, with the `TRANSACTIONAL` bit."""
TRANSACTIONAL = 0x10
PRODUCER_AT = 43
producer_of = Struct(">qhi").unpack_from
"""Reads producer id, producer epoch and base sequence of a batch, at the position `PRODUCER_AT`."""

ABORTABLE_VERSION = 11
TRANSACTIONS_V2_VERSION = 12

RETRIED_AS_NOT_ENOUGH_REPLICAS = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of the coordinator that producers do not expect in a Produce response. They get NOT_ENOUGH_REPLICAS instead,
which they retry."""

ERRORS_WITH_LOG_START = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)
"""Errors of a whole batch with which the response has the log start offset (``ReplicaManager.appendToLocalLog``)."""

TURN_S = 0.02
"""Seconds that appends of one Produce may take before other connections have their turn."""

UnflushedRow = tuple["PartitionLog", int, PartitionProduceResponse]
"""A log, the offset up to which it must be on the disk before the row is sent, and the row of the response."""


def handle(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_AT
                and records[ATTRIBUTES_AT] & TRANSACTIONAL
                and records[MAGIC_AT] == MAGIC
            ):
                return _handle_transactional(services, request, context)
    denied = {} if services.authorization.authorizer is None else _denied(services, request, context)
    if len(request.topic_data) == 1 == len(request.topic_data[0].partition_data):
        return _append_all(services.cluster, request, context, denied)
    return _append_in_turns(services.cluster, request, context, denied)


def _denied(services: Services, request: ProduceRequest, context: RequestContext) -> Refusals:
    """Return the partitions to which the client may not write. Unknown ids are no secret."""
    may_write = services.authorization.filter(context, WRITE, TOPIC_RESOURCE)
    names = [(_name_of(services.cluster, topic, context), topic) for topic in request.topic_data]
    return {
        (name, partition.index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name, topic in names
        if (name or context.api_version < PRODUCE_TOPIC_ID_VERSION) and not may_write(name)
        for partition in topic.partition_data
    }


def _append_in_turns(
    cluster: Cluster, request: ProduceRequest, context: RequestContext, refusals: Refusals
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """As `_append_all`, but if it takes long, other connections have their turn between partitions.

    A compressed batch may be a hundred times what it seems.
    """
    todo = [(topic, partition) for topic in request.topic_data for partition in topic.partition_data]
    rows: list[PartitionProduceResponse] = []
    unflushed: list[UnflushedRow] = []
    end = real_time.monotonic() + TURN_S
    for at, (topic, partition) in enumerate(todo):
        if at and real_time.monotonic() >= end:
            _keep_records(later for _, later in todo[at:])
            return Pending(_append_rest(cluster, request, context, refusals, todo[at:], rows, unflushed))
        name = _name_of(cluster, topic, context)
        rows.append(_append(cluster, name, partition, request.acks, context, refusals, unflushed))
    return _respond(request, rows, unflushed)


async def _append_rest(
    cluster: Cluster,
    request: ProduceRequest,
    context: RequestContext,
    refusals: Refusals,
    todo: list[tuple[TopicProduceData, PartitionProduceData]],
    rows: list[PartitionProduceResponse],
    unflushed: list[UnflushedRow],
) -> ProduceResponse | None:
    for topic, partition in todo:
        await trio.lowlevel.checkpoint()
        name = _name_of(cluster, topic, context)
        rows.append(_append(cluster, name, partition, request.acks, context, refusals, unflushed))
    return await finished(_respond(request, rows, unflushed))


def _keep_records(partitions: Iterable[PartitionProduceData]) -> None:
    """Copy the batches of a request that continues after a wait. They are in a buffer that all connections share."""
    for partition in partitions:
        if partition.records is not None:
            partition.records = memoryview(bytearray(partition.records))


def _respond(
    request: ProduceRequest, rows: list[PartitionProduceResponse], unflushed: list[UnflushedRow]
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """Return the response with ``rows``, one for each of the request's partitions, or a `Pending` one that comes after
    the flush of ``unflushed``."""
    remaining = iter(rows)
    response = ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, topic.topic_id, list(islice(remaining, len(topic.partition_data)))
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )
    if not unflushed:
        return response_for_acks(response, request.acks)
    # With acks=0 no response is sent, but the flush still moves the high watermark.
    return Pending(_wait_flushed(unflushed, response, request.acks), reads_on=True)


def _name_of(cluster: Cluster, topic: TopicProduceData, context: RequestContext) -> str:
    """Return the topic's name, or an empty text if its id is unknown."""
    if context.api_version < PRODUCE_TOPIC_ID_VERSION:
        return topic.name
    found = cluster.topic_by_id(topic.topic_id)
    return found.name if found is not None else ""


def _append_all(
    cluster: Cluster, request: ProduceRequest, context: RequestContext, refusals: Refusals
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    unflushed: list[UnflushedRow] = []
    rows: list[PartitionProduceResponse] = []
    for topic in request.topic_data:
        name = _name_of(cluster, topic, context)
        rows += [
            _append(cluster, name, partition, request.acks, context, refusals, unflushed)
            for partition in topic.partition_data
        ]
    return _respond(request, rows, unflushed)


def _append(
    cluster: Cluster,
    topic: str,
    partition: PartitionProduceData,
    acks: int,
    context: RequestContext,
    refusals: Refusals,
    unflushed: list[UnflushedRow],
) -> PartitionProduceResponse:
    if refusals and (topic, partition.index) in refusals:
        return _refused_partition_row(partition.index, refusals[topic, partition.index], context)
    log: PartitionLog | None = None
    try:
        if not topic:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID
                if context.api_version >= PRODUCE_TOPIC_ID_VERSION
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        leader = cluster.leader_partition(topic, partition.index)
        log = leader.log
        _check(topic, log, acks, context)
        records = partition.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests must not have null records")
        assert isinstance(records, memoryview)
        result = log.append(records, leader_epoch=leader.leader_epoch, produce_version=context.api_version)
    except KafkaError as error:
        return error_row(partition.index, error, log)
    row = PartitionProduceResponse(
        partition.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )
    if result.must_flush:
        unflushed.append((log, result.last_offset + 1, row))
    return row


def _check(topic: str, log: PartitionLog, acks: int, context: RequestContext) -> None:
    if not -1 <= acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    internal = topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC
    if internal and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    if acks == -1 and log.config.min_insync_replicas > 1:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR : 1 is insufficient to satisfy the min.isr requirement of "
            f"{log.config.min_insync_replicas} for partition {log.topic}-{log.partition}",
        )


def error_row(index: int, error: KafkaError, log: PartitionLog | None) -> PartitionProduceResponse:
    """Return the row of a partition whose batch was refused with ``error``."""
    record_errors = error.record_errors if isinstance(error, InvalidRecords) else None
    has_log_start = record_errors is not None or error.code in ERRORS_WITH_LOG_START
    return PartitionProduceResponse(
        index,
        error.code,
        -1,
        -1,
        log.log_start_offset if has_log_start and log is not None else -1,
        [BatchIndexAndErrorMessage(*row) for row in record_errors or ()],
        error.message,
    )


def _handle_transactional(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """Append transactional batches after their partitions were verified in the producer's transaction, or added."""
    if request.transactional_id is None or not services.authorization.allows(
        context, WRITE, TRANSACTIONAL_ID_RESOURCE, request.transactional_id
    ):
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    denied = {} if services.authorization.authorizer is None else _denied(services, request, context)
    producers: set[tuple[int, int]] = set()
    sequences: dict[tuple[str, int], int] = {}
    for topic in request.topic_data:
        name = _name_of(services.cluster, topic, context)
        for partition in topic.partition_data:
            records = partition.records
            if (name, partition.index) in denied:
                continue
            if name and records is not None and len(records) >= HEADER_SIZE:
                producer_id, epoch, sequence = producer_of(records, PRODUCER_AT)
                if records[ATTRIBUTES_AT] & TRANSACTIONAL and producer_id >= 0:
                    producers.add((producer_id, epoch))
                    sequences[name, partition.index] = sequence
    if len(producers) > 1:
        return _refuse_all(
            request,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "The request has transactional batches of more than one producer",
        )
    if not producers:
        return _append_all(services.cluster, request, context, denied)
    producer = TransactionalProducer(request.transactional_id, *producers.pop())
    support = support_of(context.api_version)
    refusals = services.txn_partitions.verify_or_add_now(producer, sequences, support)
    if refusals is not None:
        return _append_all(services.cluster, request, context, refusals | denied)
    _keep_records(partition for topic in request.topic_data for partition in topic.partition_data)
    asked = producer, sequences, support
    return Pending(_append_after_verification(services, request, context, denied, asked))


def support_of(version: int) -> SupportedOperation:
    """Return what a producer with this version of Produce supports."""
    if version >= TRANSACTIONS_V2_VERSION:
        return SupportedOperation.ADD_PARTITION
    if version >= ABORTABLE_VERSION:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.DEFAULT_ERROR


async def _append_after_verification(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    denied: Refusals,
    asked: tuple[TransactionalProducer, dict[PartitionKey, int], SupportedOperation],
) -> ProduceResponse | None:
    refusals = await services.txn_partitions.verify_or_add(*asked)
    return await finished(_append_all(services.cluster, request, context, refusals | denied))


def _refused_partition_row(index: int, code: ErrorCode, context: RequestContext) -> PartitionProduceResponse:
    """Return the row of a partition that `AddPartitionsToTxnManager` refused with ``code``."""
    message = None
    if code is ErrorCode.INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    elif code in RETRIED_AS_NOT_ENOUGH_REPLICAS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and context.api_version < TRANSACTIONS_V2_VERSION
    ):
        message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        )
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return PartitionProduceResponse(index, code, -1, -1, -1, [], message)


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


async def _wait_flushed(
    unflushed: list[UnflushedRow], response: ProduceResponse, acks: int
) -> ProduceResponse | None:
    for log, up_to, row in unflushed:
        try:
            await log.flush(up_to)
        except KafkaError as error:
            row.error_code = error.code
            row.error_message = error.message
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
    return response_for_acks(response, acks)


def response_for_acks(response: ProduceResponse, acks: int) -> ProduceResponse | None:
    """Return the response, or None for acks=0.

    Raises CloseConnection for an error with acks=0: the producer can notice it in no other way."""
    if acks != 0:
        return response
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                raise CloseConnection(
                    f"a Produce with acks=0 failed on {topic.name}-{row.index}: {ErrorCode(row.error_code).name}"
                )
    return None
