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
"""The client id that Kafka lets write to internal topics."""

MAGIC_AT, MAGIC = 16, 2
ATTRIBUTES_AT = 22
"""Where the low byte of a batch's attributes is; it has the `TRANSACTIONAL` bit."""
TRANSACTIONAL = 0x10
PRODUCER_AT = 43
producer_of = Struct(">qhi").unpack_from
"""Producer id, producer epoch and base sequence of a batch, at `PRODUCER_AT`."""

ABORTABLE_VERSION = 11
ADDS_VERSION = 12

RETRIED_AS_NOT_ENOUGH = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of the coordinator that a producer does not expect of a Produce; NOT_ENOUGH_REPLICAS makes it ask again."""

WITH_LOG_START = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)
"""Errors of a whole batch whose rows tell the log start offset (Kafka: ``ReplicaManager.appendToLocalLog``)."""

TURN_S = 0.02
"""Seconds that the partitions of one Produce may take together before other connections have their turn."""

Unflushed = tuple["PartitionLog", int, PartitionProduceResponse]
"""A log, the offset up to which it must be on disk before its row may be sent, and the row."""


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
    if len(request.topic_data) == 1 == len(request.topic_data[0].partition_data):
        return _append_all(services.cluster, request, context, {})
    return _append_in_turns(services.cluster, request, context)


def _append_in_turns(
    cluster: Cluster, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """As `_append_all` without refusals; where its partitions take long together, others have their turn between two.

    A compressed batch may be a hundred times what it seems.
    """
    todo = [(topic, partition) for topic in request.topic_data for partition in topic.partition_data]
    rows: list[PartitionProduceResponse] = []
    unflushed: list[Unflushed] = []
    end = real_time.monotonic() + TURN_S
    for at, (topic, partition) in enumerate(todo):
        if at and real_time.monotonic() >= end:
            _keep_records(later for _, later in todo[at:])
            return Pending(_append_rest(cluster, request, context, todo[at:], rows, unflushed))
        name = _name_of(cluster, topic, context)
        rows.append(_append(cluster, name, partition, request.acks, context, unflushed))
    return _respond(request, rows, unflushed)


async def _append_rest(
    cluster: Cluster,
    request: ProduceRequest,
    context: RequestContext,
    todo: list[tuple[TopicProduceData, PartitionProduceData]],
    rows: list[PartitionProduceResponse],
    unflushed: list[Unflushed],
) -> ProduceResponse | None:
    for topic, partition in todo:
        await trio.lowlevel.checkpoint()
        name = _name_of(cluster, topic, context)
        rows.append(_append(cluster, name, partition, request.acks, context, unflushed))
    return await finished(_respond(request, rows, unflushed))


def _keep_records(partitions: Iterable[PartitionProduceData]) -> None:
    """Copy the batches of a request that goes on after a wait: the buffer they are in belongs to all connections."""
    for partition in partitions:
        if partition.records is not None:
            partition.records = memoryview(bytearray(partition.records))


def _respond(
    request: ProduceRequest, rows: list[PartitionProduceResponse], unflushed: list[Unflushed]
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """What is owed for ``rows``, one for each of the request's partitions."""
    left = iter(rows)
    response = ProduceResponse(
        [
            TopicProduceResponse(topic.name, topic.topic_id, list(islice(left, len(topic.partition_data))))
            for topic in request.topic_data
            if topic.partition_data
        ]
    )
    if not unflushed:
        return finish(response, request.acks)
    # With acks=0 nobody waits for the response; the high watermark still waits for the disk.
    return Pending(_wait_flushed(unflushed, response, request.acks), reads_on=True)


def _name_of(cluster: Cluster, topic: TopicProduceData, context: RequestContext) -> str:
    """The topic's name; empty where nobody knows its id."""
    if context.api_version < PRODUCE_TOPIC_ID_VERSION:
        return topic.name
    known = cluster.topic_by_id(topic.topic_id)
    return known.name if known is not None else ""


def _append_all(
    cluster: Cluster, request: ProduceRequest, context: RequestContext, refusals: Refusals
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    unflushed: list[Unflushed] = []
    rows: list[PartitionProduceResponse] = []
    for topic in request.topic_data:
        name = _name_of(cluster, topic, context)
        rows += [
            _refused_row(partition.index, refusals[name, partition.index], context)
            if refusals and (name, partition.index) in refusals
            else _append(cluster, name, partition, request.acks, context, unflushed)
            for partition in topic.partition_data
        ]
    return _respond(request, rows, unflushed)


def _append(
    cluster: Cluster,
    topic: str,
    partition: PartitionProduceData,
    acks: int,
    context: RequestContext,
    unflushed: list[Unflushed],
) -> PartitionProduceResponse:
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
    """The row of a partition whose batch was refused."""
    record_errors = error.record_errors if isinstance(error, InvalidRecords) else None
    keeps_start = record_errors is not None or error.code in WITH_LOG_START
    return PartitionProduceResponse(
        index,
        error.code,
        -1,
        -1,
        log.log_start_offset if keeps_start and log is not None else -1,
        [BatchIndexAndErrorMessage(*row) for row in record_errors or ()],
        error.message,
    )


def _handle_transactional(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending[ProduceResponse | None] | None:
    """Transactional batches are written once their partitions are known to be part of an open transaction."""
    if request.transactional_id is None:
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers: set[tuple[int, int]] = set()
    sequences: dict[tuple[str, int], int] = {}
    for topic in request.topic_data:
        name = _name_of(services.cluster, topic, context)
        for partition in topic.partition_data:
            records = partition.records
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
        return _append_all(services.cluster, request, context, {})
    producer = TransactionalProducer(request.transactional_id, *producers.pop())
    support = support_of(context.api_version)
    refusals = services.txn_partitions.verify_or_add_now(producer, sequences, support)
    if refusals is not None:
        return _append_all(services.cluster, request, context, refusals)
    _keep_records(partition for topic in request.topic_data for partition in topic.partition_data)
    return Pending(_append_later(services, request, context, (producer, sequences, support)))


def support_of(version: int) -> SupportedOperation:
    """What a producer that speaks that version of Produce understands."""
    if version >= ADDS_VERSION:
        return SupportedOperation.ADD_PARTITION
    if version >= ABORTABLE_VERSION:
        return SupportedOperation.GENERIC_ERROR_SUPPORTED
    return SupportedOperation.DEFAULT_ERROR


async def _append_later(
    services: Services,
    request: ProduceRequest,
    context: RequestContext,
    asked: tuple[TransactionalProducer, dict[PartitionKey, int], SupportedOperation],
) -> ProduceResponse | None:
    refusals = await services.txn_partitions.verify_or_add(*asked)
    return await finished(_append_all(services.cluster, request, context, refusals))


def _refused_row(index: int, code: ErrorCode, context: RequestContext) -> PartitionProduceResponse:
    """A partition whose batch is not part of an open transaction, or whose coordinator cannot say."""
    message = None
    if code is ErrorCode.INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    elif code in RETRIED_AS_NOT_ENOUGH or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and context.api_version < ADDS_VERSION
    ):
        message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        )
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return PartitionProduceResponse(index, code, -1, -1, -1, [], message)


def _refuse_all(
    request: ProduceRequest, code: ErrorCode, message: str | None = None
) -> ProduceResponse | None:
    """The whole request is refused, partition by partition."""
    error = KafkaError(code, message)
    return finish(
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
    unflushed: list[Unflushed], response: ProduceResponse, acks: int
) -> ProduceResponse | None:
    for log, up_to, row in unflushed:
        try:
            await log.flush(up_to)
        except KafkaError as error:
            row.error_code = error.code
            row.error_message = error.message
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
    return finish(response, acks)


def finish(response: ProduceResponse, acks: int) -> ProduceResponse | None:
    """The response; None for acks=0, whose producer learns of an error only by losing the connection."""
    if acks != 0:
        return response
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                raise CloseConnection(
                    f"a Produce with acks=0 failed on {topic.name}-{row.index}: {ErrorCode(row.error_code).name}"
                )
    return None
