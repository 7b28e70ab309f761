"""WriteTxnMarkers (API key 27): end a transaction in these partitions, whatever its coordinator says.

Kafka's coordinators send it to the leaders of a transaction's partitions; here that is a call in the process, and only
tools send it: to abort a transaction that hangs (KIP-664). Version 2 brings the transaction version.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.log.producers.state import Origin
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

Unflushed = tuple["PartitionLog", int, WritableTxnMarkerPartitionResult]

NOT_READY = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Of a group coordinator that loads; a transaction coordinator expects NOT_LEADER_OR_FOLLOWER."""


def handle(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]:
    unflushed: list[Unflushed] = []
    response = WriteTxnMarkersResponse()
    partitions = sum([len(topic.partition_indexes) for marker in request.markers for topic in marker.topics])
    answer = chunked(_answer(services, request, response, unflushed), partitions, response)
    if isinstance(answer, CoroutineType) or unflushed:
        return _wait_flushed(answer, unflushed, response)
    return answer


def _answer(
    services: Services,
    request: WriteTxnMarkersRequest,
    response: WriteTxnMarkersResponse,
    unflushed: list[Unflushed],
) -> Iterator[None]:
    """Fill ``response``, a partition at a time."""
    results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    for marker in request.markers:
        topics = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            rows = topics.setdefault(topic.name, [])
            for index in topic.partition_indexes:
                rows.append(_write(services, marker, topic.name, index, unflushed))
                yield
    response.markers = [
        WritableTxnMarkerResult(
            producer_id,
            [WritableTxnMarkerTopicResult(topic, rows) for topic, rows in topics.items()],
        )
        for producer_id, topics in results.items()
    ]


def _write(
    services: Services, marker: WritableTxnMarker, topic: str, partition: int, unflushed: list[Unflushed]
) -> WritableTxnMarkerPartitionResult:
    row = WritableTxnMarkerPartitionResult(partition, 0)
    try:
        log, up_to = _append(services, marker, topic, partition)
        if log.high_watermark < up_to:
            unflushed.append((log, up_to, row))
    except KafkaError as error:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in NOT_READY else error.code
    return row


def _append(
    services: Services, marker: WritableTxnMarker, topic: str, partition: int
) -> tuple[PartitionLog, int]:
    leader = services.cluster.leader_partition(topic, partition)
    if topic == OFFSETS_TOPIC:
        services.groups.complete_transaction(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
            committed=marker.transaction_result,
        )
        return leader.log, leader.log.log_end_offset
    result = leader.log.append(
        end_transaction_marker(
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=services.clock.now_ms(),
        ),
        leader_epoch=leader.leader_epoch,
        origin=Origin.COORDINATOR,
        transaction_version=marker.transaction_version,
    )
    return leader.log, result.last_offset + 1


async def _wait_flushed(
    answer: WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse],
    unflushed: list[Unflushed],
    response: WriteTxnMarkersResponse,
) -> WriteTxnMarkersResponse:
    if isinstance(answer, CoroutineType):
        await answer
    for log, up_to, row in unflushed:
        try:
            await log.flush(up_to)
        except KafkaError as error:
            row.error_code = error.code
    return response
