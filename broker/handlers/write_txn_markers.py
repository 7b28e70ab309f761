"""WriteTxnMarkers (API key 27): writes markers that end transactions in partitions.

A coordinator sends it to the nodes that lead the other partitions of a transaction; tools send it to abort a hanging
transaction (KIP-664). Version 2 adds the transaction version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.requests.request import Pending, wait_for_response
from oncelog.broker.seams.clock import real_time
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
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import LeaderPartition
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext

UncommittedResult = tuple["LeaderPartition", int, WritableTxnMarkerPartitionResult]

COORDINATOR_LOADING = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors of a group coordinator that is loading. A transaction coordinator expects NOT_LEADER_OR_FOLLOWER instead."""


def handle(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    uncommitted: list[UncommittedResult] = []
    response = WriteTxnMarkersResponse()
    topics = [topic for marker in request.markers for topic in marker.topics]
    rows = len(request.markers) + len(topics) + sum([len(topic.partition_indexes) for topic in topics])
    filled = chunked(_fill(services, request, response, uncommitted), rows, response)
    if isinstance(filled, Pending) or uncommitted:
        return Pending(_wait_committed(services, filled, uncommitted, response))
    return filled


def _fill(
    services: Services,
    request: WriteTxnMarkersRequest,
    response: WriteTxnMarkersResponse,
    uncommitted: list[UncommittedResult],
) -> Iterator[None]:
    """Fill ``response``, a partition at each step. ``uncommitted`` gets the results to return after a wait."""
    results: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    for marker in request.markers:
        topics = results.setdefault(marker.producer_id, {})
        yield
        for topic in marker.topics:
            yield
            results_of_topic = topics.setdefault(topic.name, [])
            for index in topic.partition_indexes:
                results_of_topic.append(_write(services, marker, topic.name, index, uncommitted))
                yield
    for producer_id, topics in results.items():
        marker_result = WritableTxnMarkerResult(producer_id)
        response.markers.append(marker_result)
        yield
        for name, results_of_topic in topics.items():
            marker_result.topics.append(WritableTxnMarkerTopicResult(name, results_of_topic))
            yield


def _write(
    services: Services,
    marker: WritableTxnMarker,
    topic: str,
    partition: int,
    uncommitted: list[UncommittedResult],
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition, 0)
    try:
        leader, end_offset = _append(services, marker, topic, partition)
        if leader.log.high_watermark < end_offset:
            uncommitted.append((leader, end_offset, result))
    except KafkaError as error:
        result.error_code = (
            ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in COORDINATOR_LOADING else error.code
        )
    return result


def _append(
    services: Services, marker: WritableTxnMarker, topic: str, partition: int
) -> tuple[LeaderPartition, int]:
    leader = services.cluster.leader_partition(topic, partition)
    if marker.producer_id < 0 or marker.producer_epoch < 0:  # Kafka fails here, too, and tells no reason
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if topic == OFFSETS_TOPIC:
        services.groups.complete_transaction(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
            committed=marker.transaction_result,
        )
        return leader, leader.log.log_end_offset
    leader.check_isr()
    result = leader.log.append(
        end_transaction_marker(
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=services.clock.now_ms(),
        ),
        leader_epoch=leader.leader_epoch,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=marker.transaction_version,
    )
    return leader, result.last_offset + 1


async def _wait_committed(
    services: Services,
    filled: WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse],
    uncommitted: list[UncommittedResult],
    response: WriteTxnMarkersResponse,
) -> WriteTxnMarkersResponse:
    await wait_for_response(filled)
    until = real_time.monotonic() + services.config.current.request_timeout_ms / 1000
    for leader, end_offset, result in uncommitted:
        try:
            await leader.wait_committed(end_offset, max(0.0, until - real_time.monotonic()))
        except KafkaError as error:
            result.error_code = error.code
    return response
