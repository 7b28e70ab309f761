"""ListOffsets (API key 2): offsets by place or by time.

Timestamps below zero ask for a place instead of a time (Kafka: ``ListOffsetsRequest``); each is known from a version
on. Without tiered storage the earliest local offset is the log start, and there is nothing tiered.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.chunked import chunked
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MIN_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
CONSUMER_REPLICA_ID = -1
READ_COMMITTED = 1
LEADER_EPOCH_VERSION = 4


def handle(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    counts = Counter(
        [(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions]
    )
    answer = ListOffsetsResponse()
    steps = _answer(services, request, context.api_version, counts, answer.topics)
    return chunked(steps, counts.total() + len(request.topics), answer)


def _answer(
    services: Services,
    request: ListOffsetsRequest,
    version: int,
    counts: Counter[tuple[str, int]],
    topics: list[ListOffsetsTopicResponse],
) -> Iterator[None]:
    """Fill ``topics``, a partition at a time. ``counts``: how often each is asked for."""
    for topic in request.topics:
        rows: dict[int, ListOffsetsPartitionResponse] = {}  # a partition asked for twice is answered once
        for asked in topic.partitions:
            try:
                if counts[(topic.name, asked.partition_index)] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                rows[asked.partition_index] = _find(services, topic.name, asked, request, version)
            except KafkaError as error:
                rows[asked.partition_index] = ListOffsetsPartitionResponse(asked.partition_index, error.code)
            yield
        if rows:
            topics.append(ListOffsetsTopicResponse(topic.name, list(rows.values())))


def _find(
    services: Services, topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest, version: int
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if timestamp < 0 and (
        timestamp < EARLIEST_PENDING_UPLOAD or version < MIN_VERSION_OF.get(timestamp, version)
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    log = services.cluster.log(topic, asked.partition_index, asked.current_leader_epoch)
    last_fetchable = _last_fetchable(log, request)
    row = ListOffsetsPartitionResponse(asked.partition_index)
    if timestamp == LATEST:
        row.offset = last_fetchable
        epoch = services.cluster.leader_partition(topic, asked.partition_index).leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        row.offset = log.log_start_offset
        epoch = log.epoch_of(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return row
    else:
        found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is None or found.offset >= last_fetchable:
            return row
        row.timestamp, row.offset, epoch = found
    if version >= LEADER_EPOCH_VERSION:
        row.leader_epoch = epoch
    return row


def _last_fetchable(log: PartitionLog, request: ListOffsetsRequest) -> int:
    """Where the asker's view of the log ends, exclusive."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
