"""Appends the batches of a Produce request: one after the other, in turns if that takes long.

`Appends` is made for each request that the fast path does not take. It also makes the rows of the response.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.reasons import Reason
from oncelog.broker.requests.request import CloseConnection, DelayedProduce, Pending, wait_for_response
from oncelog.broker.scheduling.slices import SLICE_S, in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.compiler import AT_ONCE_ELEMENTS_MAX
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.produce import (
    PRODUCE_TOPIC_ID_VERSION,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
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
    from collections.abc import Iterable, Iterator

    from oncelog.broker.cluster.cluster import Cluster, LeaderPartition
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
    WaitingRow = tuple[LeaderPartition, int, PartitionProduceResponse]
    """A partition, the offset up to which its records must be acknowledged before the row is sent, and the row of the
    response.
    """
    Unfinished = tuple[PartitionLog, LongValidation]

ADMIN_CLIENT_ID = "__admin_client"
"""Kafka allows clients with this id to write to internal topics."""

TRANSACTIONS_V2_PRODUCE_VERSION = 12
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

PROTECTED_TOPICS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}
"""Topics that clients may not write to."""
ACKS_ALL = -1
LEADER_HINT_VERSION = 10
"""The first version that says who leads a partition (KIP-951)."""
STORAGE_ERRORS = frozenset((ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
"""Errors of the log after an append. After others the row still says where the records are."""

TURN_S = 0.02
"""Seconds that the first turn of a Produce may take before other connections have theirs."""
ROWS_PER_TURN = 100
"""Batches that are appended in each further turn, at most; partitions of transactional ones are verified together."""


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
    """The batches of one request, appended in the order of its rows: `append` as many as are due in one turn, and if
    that does not append all, `append_rest`. Then `response`.

    Other connections have their turns between two batches, and while a single batch is validated that takes long. A
    ``verification`` of transactional batches holds for one turn: it is repeated for the rows of the next one, since the
    transaction may have ended meanwhile.
    """

    __slots__ = (
        "_cluster",
        "_context",
        "_denied",
        "_moved",
        "_next",
        "_refused",
        "_request",
        "_responses",
        "_rows",
        "_unfinished",
        "_verification",
        "_waiting",
    )

    def __init__(
        self,
        cluster: Cluster,
        request: ProduceRequest,
        context: RequestContext,
        denied: Refusals,
        rows: Iterable[Row],
        verification: Verification | None = None,
    ) -> None:
        self._cluster = cluster
        self._request = request
        self._context = context
        self._denied = denied
        """The partitions to which the client may not write."""
        self._verification = verification
        self._refused: Refusals = {}
        """The partitions that the last verification refused."""
        self._rows = list(rows)
        self._next = 0
        """The position in `_rows` of the first one that is not appended yet."""
        self._unfinished: Unfinished | None = None
        """The validation of that row, which takes long."""
        self._responses: list[PartitionProduceResponse] = []
        self._waiting: list[WaitingRow] = []
        self._moved: list[tuple[str, PartitionProduceResponse]] = []
        """Topics and rows of partitions that other nodes lead."""

    def verify(self) -> bool:
        """Verify the batches, if there are any to verify. Returns whether that is possible at once, and in one turn."""
        if self._verification is None:
            return True
        if len(self._rows) > ROWS_PER_TURN:
            return False
        refused = self._verification.now(self._rows)
        self._refused = refused or {}
        return refused is not None

    def append(self, turn_s: float, rows_max: int = AT_ONCE_ELEMENTS_MAX, check: Check = validate) -> bool:
        """Append batches for ``turn_s`` seconds, at most ``rows_max``, and at least one: the first with ``check``. A
        validation that takes long ends the turn before its batch. Returns whether all are appended.
        """
        rows, begin, context = self._rows, self._next, self._context
        began = real_time.monotonic() if len(rows) > 1 else 0.0
        for at in range(begin, min(begin + rows_max, len(rows))):
            if at > begin and real_time.monotonic() >= began + turn_s:
                return False
            topic, partition = rows[at]
            index = partition.index
            refusal = self._refused.get((topic, index)) if self._refused else None
            if self._denied and refusal is None:
                refusal = self._denied.get((topic, index))
            self._next = at + 1
            if refusal is not None:
                self._responses.append(_refused_partition_row(index, refusal, context))
                continue
            log: PartitionLog | None = None
            try:
                if not topic:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if context.api_version >= PRODUCE_TOPIC_ID_VERSION
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                leader = self._cluster.leader_partition(topic, index)
                log = leader.log
                _check(topic, self._request.acks, context, leader)
                records = partition.records
                if records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "Produce requests must not have null records")
                assert isinstance(records, memoryview)
                result = log.append(
                    records,
                    leader_epoch=leader.leader_epoch,
                    produce_version=context.api_version,
                    check=check,
                )
            except KafkaError as error:
                row = error_row(index, error, log)
                self._responses.append(row)
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._moved.append((topic, row))
            except LongValidation as validation:
                assert log is not None
                self._next, self._unfinished = at, (log, validation)
                return False
            else:
                response = PartitionProduceResponse(
                    index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
                )
                self._responses.append(response)
                if result.must_wait and leader.must_wait(self._request.acks):
                    self._waiting.append((leader, result.last_offset + 1, response))
            check = validate
        if not begin and len(rows) > 1:  # the turns of `append_rest` let others have theirs
            context.connection.charge(real_time.monotonic() - began)
        return self._next == len(rows)

    def rest(self) -> Pending[ProduceResponse | None]:
        """Return the response that comes when the rest is appended, in turns. Its batches are copied: they are in a
        buffer that all connections share.
        """
        for _, partition in self._rows[self._next :]:
            if partition.records is not None:
                partition.records = memoryview(bytearray(partition.records))
        return Pending(self.append_rest())

    async def append_rest(self) -> ProduceResponse | None:
        """Append what is left, in turns, and return the response after all that must be flushed."""
        rows = self._rows
        while self._next < len(rows):
            begin = self._next
            check: Check = validate
            if self._unfinished is not None:
                log, validation = self._unfinished
                self._unfinished = None
                check = await log.checked(validation)
            if self._verification is not None:
                self._refused = await self._verification.wait(rows[begin : begin + ROWS_PER_TURN])
            self.append(SLICE_S, ROWS_PER_TURN, check)
            for _, partition in rows[begin : self._next]:
                partition.records = None
            await trio.lowlevel.checkpoint()
        return await wait_for_response(self._respond(await in_slices(listed(self._topics()))))

    def response(self) -> ProduceResponse | Pending[ProduceResponse | None] | None:
        """Return the response when all rows are appended, a `DelayedProduce` where something must be flushed."""
        return self._respond(list(self._topics()))

    def _topics(self) -> Iterator[TopicProduceResponse]:
        """Yield the rows of the response."""
        remaining = iter(self._responses)
        for topic in self._request.topic_data:
            if topic.partition_data:
                rows = list(islice(remaining, len(topic.partition_data)))
                yield TopicProduceResponse(topic.name, topic.topic_id, rows)

    def _respond(
        self, topics: list[TopicProduceResponse]
    ) -> ProduceResponse | Pending[ProduceResponse | None] | None:
        response = ProduceResponse(topics)
        if self._waiting:
            # With acks=0 no response is sent, but the flush still moves the high watermark.
            return DelayedProduce(self._wait_acknowledged(response))
        if self._moved:
            self._name_leaders(response)
        return response_for_acks(response, self._request.acks)

    async def _wait_acknowledged(self, response: ProduceResponse) -> ProduceResponse | None:
        acks = self._request.acks
        deadline = real_time.monotonic() + self._request.timeout_ms / 1000
        for leader, up_to, row in self._waiting:
            try:
                await leader.wait_acknowledged(acks, up_to, deadline - real_time.monotonic())
            except KafkaError as error:
                row.error_code = error.code
                if error.code in STORAGE_ERRORS:
                    row.error_message = error.message
                    row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
                elif error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self._moved.append((leader.log.topic, row))
        if self._moved:
            self._name_leaders(response)
        return response_for_acks(response, acks)

    def _name_leaders(self, response: ProduceResponse) -> None:
        """Tell the client who leads the partitions that have moved, and where that node is (KIP-951)."""
        if self._context.api_version < LEADER_HINT_VERSION:
            return
        nodes = {node.node_id: node for node in self._cluster.nodes(self._context.connection.listener_name)}
        for topic, row in self._moved:
            current = self._cluster.current_leader(topic, row.index)
            if current is None:
                continue
            row.current_leader = LeaderIdAndEpoch(*current)
            node = nodes.pop(current[0], None)
            if node is not None:
                response.node_endpoints.append(NodeEndpoint(*node))


def rows_of(cluster: Cluster, request: ProduceRequest, context: RequestContext) -> Iterator[Row]:
    """Yield the rows of a request in their order."""
    for topic in request.topic_data:
        name = name_of(cluster, topic, context)
        for partition in topic.partition_data:
            yield name, partition


def name_of(cluster: Cluster, topic: TopicProduceData, context: RequestContext) -> str:
    """Return the topic's name, or an empty text if its id is unknown."""
    if context.api_version < PRODUCE_TOPIC_ID_VERSION:
        return topic.name
    found = cluster.topic_by_id(topic.topic_id)
    return found.name if found is not None else ""


def _check(topic: str, acks: int, context: RequestContext, leader: LeaderPartition) -> None:
    if not -1 <= acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if leader.is_replicated and acks == ACKS_ALL:
        leader.check_isr()
    if topic in PROTECTED_TOPICS and context.client_id != ADMIN_CLIENT_ID:
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
    """Return the row of a partition that an ACL denies, or `AddPartitionsToTxnManager` refused, with ``code``."""
    message = None
    if code is ErrorCode.INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    elif code in RETRIED_AS_NOT_ENOUGH_REPLICAS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and context.api_version < TRANSACTIONS_V2_PRODUCE_VERSION
    ):
        message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        )
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return PartitionProduceResponse(index, code, -1, -1, -1, [], message)


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
