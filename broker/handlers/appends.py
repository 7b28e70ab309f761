"""Appends the batches of a Produce request: one after the other, in turns if that takes long.

`Appends` is used once for each request that the fast path does not take. It also makes the rows of the response.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from oncelog.broker.logging.reasons import Reason
from oncelog.broker.requests.request import CloseConnection, Pending, finished
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.broker.seams.clock import real_time
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
from oncelog.wire.steps import listed
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from oncelog.wire.validate import InvalidRecords, LongValidation, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.coordinators.add_partitions_to_txn_manager import (
        AddPartitionsToTxnManager,
        PartitionKey,
        Refusals,
        SupportedOperation,
        TransactionalProducer,
    )
    from oncelog.broker.log.partition_log import Check, PartitionLog
    from oncelog.broker.requests.request import RequestContext

    Row = tuple[str, PartitionProduceData]
    """The topic's name, empty if its id is unknown, and a partition's part of the request."""
    UnflushedRow = tuple[PartitionLog, int, PartitionProduceResponse]
    """A log, the offset up to which it must be on the disk before the row is sent, and the row of the response."""
    Unfinished = tuple[PartitionLog, LongValidation]

ADMIN_CLIENT_ID = "__admin_client"
"""Kafka allows clients with this id to write to internal topics."""

TRANSACTIONS_V2_VERSION = 12
"""The version of Produce from which on a transactional batch adds its partition."""

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
ROWS_PER_TURN = 100
"""Batches that are appended between two turns of others, at most."""
ROWS_VERIFIED_AT_ONCE = 100
"""Transactional batches whose partitions are verified together, and appended in the same step."""


class Verification:
    """Asks whether partitions are part of the producer's open transaction, or adds them. See
    `AddPartitionsToTxnManager`.
    """

    __slots__ = ("_manager", "_producer", "_sequences", "_support")

    def __init__(
        self,
        manager: AddPartitionsToTxnManager,
        producer: TransactionalProducer,
        support: SupportedOperation,
        sequences: dict[PartitionKey, int],
    ) -> None:
        self._manager = manager
        self._producer = producer
        self._support = support
        self._sequences = sequences
        """The base sequence of each transactional batch."""

    def _sequences_of(self, rows: list[Row]) -> dict[PartitionKey, int]:
        keys = [(topic, partition.index) for topic, partition in rows]
        return {key: self._sequences[key] for key in keys if key in self._sequences}

    def now(self, rows: list[Row]) -> Refusals | None:
        """Return the errors of the refused partitions; None if that is known only after `wait`."""
        return self._manager.verify_or_add_now(self._producer, self._sequences_of(rows), self._support)

    async def wait(self, rows: list[Row]) -> Refusals:
        """Return the errors of the refused partitions. They hold in this step."""
        return await self._manager.verify_or_add(self._producer, self._sequences_of(rows), self._support)


class Appends:
    """The batches of one request, appended in the order of its rows.

    If that takes long, other connections have their turn between two batches, and while a single batch is validated.
    A ``verification`` of transactional batches holds for one step only: after each such turn it is repeated for the
    next rows, since the transaction may have ended meanwhile.
    """

    __slots__ = (
        "_acks",
        "_cluster",
        "_context",
        "_denied",
        "_refused",
        "_request",
        "_rows",
        "_unflushed",
        "_verification",
    )

    def __init__(
        self,
        cluster: Cluster,
        request: ProduceRequest,
        context: RequestContext,
        denied: Refusals,
        verification: Verification | None = None,
    ) -> None:
        self._cluster = cluster
        self._request = request
        self._context = context
        self._acks = request.acks
        self._denied = denied
        """The partitions to which the client may not write."""
        self._verification = verification
        self._refused: Refusals = {}
        """The partitions that the last verification refused."""
        self._rows: list[PartitionProduceResponse] = []
        self._unflushed: list[UnflushedRow] = []

    def append_all(self) -> ProduceResponse | Pending[ProduceResponse | None] | None:
        if self._context.is_large:
            return Pending(self._append_large())
        todo: list[Row] = []
        for topic in self._request.topic_data:
            name = name_of(self._cluster, topic, self._context)
            todo += [(name, partition) for partition in topic.partition_data]
        verification = self._verification
        if verification is not None:
            refused = verification.now(todo) if len(todo) <= ROWS_VERIFIED_AT_ONCE else None
            if refused is None:
                return self._go_on(todo)
            self._refused = refused
        end = real_time.monotonic() + TURN_S if len(todo) > 1 else 0.0
        for at, row in enumerate(todo):
            if at and real_time.monotonic() >= end:
                return self._go_on(todo[at:])
            unfinished = self._append(row)
            if unfinished is not None:
                return self._go_on(todo[at:], unfinished)
        if end:
            self._context.connection.charge(real_time.monotonic() + TURN_S - end)
        return self._respond(list(self._topics()))

    async def _append_large(self) -> ProduceResponse | None:
        """Append the batches of a request with very many rows, which has its frame for itself."""
        rows = (
            (name, partition)
            for topic in self._request.topic_data
            for name in (name_of(self._cluster, topic, self._context),)
            for partition in topic.partition_data
        )
        return await self._append_in_turns(await in_slices(listed(rows)), None)

    def _go_on(
        self, todo: list[Row], unfinished: Unfinished | None = None
    ) -> Pending[ProduceResponse | None]:
        """Append the rest in turns. Its batches are copied: they are in a buffer that all connections share."""
        for _, partition in todo:
            if partition.records is not None:
                partition.records = memoryview(bytearray(partition.records))
        return Pending(self._append_in_turns(todo, unfinished))

    async def _append_in_turns(
        self, todo: list[Row], unfinished: Unfinished | None
    ) -> ProduceResponse | None:
        slices = Slices(ROWS_PER_TURN)
        verified = 0  # the row up to which the verification holds
        for at, row in enumerate(todo):
            check: Check = validate
            while True:
                if unfinished is not None:
                    log, validation = unfinished
                    check = await log.checked(validation)
                    verified = 0
                if self._verification is not None and at >= verified:
                    verified = at + ROWS_VERIFIED_AT_ONCE
                    self._refused = await self._verification.wait(todo[at:verified])
                unfinished = self._append(row, check)
                if unfinished is None:
                    break
            row[1].records = None
            if slices.is_over():
                await slices.pause()
                verified = 0
        return await finished(self._respond(await in_slices(listed(self._topics()))))

    def _append(self, row: Row, check: Check = validate) -> Unfinished | None:
        """Append a batch and add its row to the response: then return None. A validation that takes long is returned;
        nothing else was done.
        """
        topic, partition = row
        refusal = self._refused.get((topic, partition.index)) if self._refused else None
        if self._denied and refusal is None:
            refusal = self._denied.get((topic, partition.index))
        if refusal is not None:
            self._rows.append(_refused_partition_row(partition.index, refusal, self._context))
            return None
        context = self._context
        log: PartitionLog | None = None
        try:
            if not topic:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if context.api_version >= PRODUCE_TOPIC_ID_VERSION
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            leader = self._cluster.leader_partition(topic, partition.index)
            log = leader.log
            _check(topic, self._acks, context)
            records = partition.records
            if records is None:
                raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests must not have null records")
            assert isinstance(records, memoryview)
            result = log.append(
                records, leader_epoch=leader.leader_epoch, produce_version=context.api_version, check=check
            )
        except KafkaError as error:
            self._rows.append(error_row(partition.index, error, log))
            return None
        except LongValidation as validation:
            assert log is not None
            return log, validation
        response = PartitionProduceResponse(
            partition.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
        self._rows.append(response)
        if result.must_flush:
            self._unflushed.append((log, result.last_offset + 1, response))
        return None

    def _topics(self) -> Iterator[TopicProduceResponse]:
        """Yield the rows of the response."""
        remaining = iter(self._rows)
        for topic in self._request.topic_data:
            if topic.partition_data:
                rows = list(islice(remaining, len(topic.partition_data)))
                yield TopicProduceResponse(topic.name, topic.topic_id, rows)

    def _respond(
        self, topics: list[TopicProduceResponse]
    ) -> ProduceResponse | Pending[ProduceResponse | None] | None:
        """Return the response, or a `Pending` one that comes after the flush of what must be flushed."""
        response = ProduceResponse(topics)
        if not self._unflushed:
            return response_for_acks(response, self._acks)
        # With acks=0 no response is sent, but the flush still moves the high watermark.
        return Pending(_wait_flushed(self._unflushed, response, self._acks), reads_on=True)


def name_of(cluster: Cluster, topic: TopicProduceData, context: RequestContext) -> str:
    """Return the topic's name, or an empty text if its id is unknown."""
    if context.api_version < PRODUCE_TOPIC_ID_VERSION:
        return topic.name
    found = cluster.topic_by_id(topic.topic_id)
    return found.name if found is not None else ""


def _check(topic: str, acks: int, context: RequestContext) -> None:
    if not -1 <= acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    internal = topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC
    if internal and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


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
                error = ErrorCode(row.error_code).name
                raise CloseConnection(
                    Reason("a Produce with acks=0 failed on {}-{}: {}", topic.name, row.index, error)
                )
    return None
