"""ListOffsets (API key 2): returns offsets by timestamp; negative timestamps stand for places in the log.

Each of those is known from a version on (Kafka: ``ListOffsetsRequest``). There is no tiered storage: the earliest local
offset is the log start offset, and there is no tiered offset.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.requests.authorization import DESCRIBE, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.results import TimestampOffset
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.steps import Steps

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MIN_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
"""A reader of any replica, to its end."""
READ_COMMITTED = 1
LEADER_EPOCH_VERSION = 4
OFFSET_NOT_AVAILABLE_VERSION = 5


def handle(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Pending[ListOffsetsResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> Steps[ListOffsetsResponse | Pending[ListOffsetsResponse]]:
    """Make the response, a partition at each step; what must be searched for follows in turns with others."""
    searches: list[_Search] = []
    response = ListOffsetsResponse()
    results = response.topics
    topics = request.topics
    denied: list[ListOffsetsTopic] = []
    if services.authorization.authorizer is not None:
        may_describe = services.authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)
        topics = []
        for topic in request.topics:
            (topics if may_describe(topic.name) else denied).append(topic)
            yield
    counts = Counter(
        [(topic.name, partition.partition_index) for topic in topics for partition in topic.partitions]
    )
    yield from _fill(services.cluster, request, topics, context.api_version, counts, results, searches)
    yield from _refuse(denied, results)
    return Pending(_searched(response, searches)) if searches else response


class _Search(NamedTuple):
    """A search by time in a log, and the ``row`` for what it finds before ``last_fetchable``."""

    log: PartitionLog
    steps: Steps[TimestampOffset | None]
    row: ListOffsetsPartitionResponse
    last_fetchable: int
    has_epoch: bool
    error_beyond: ErrorCode
    """The error if there is no such record before ``last_fetchable``."""


async def _searched(response: ListOffsetsResponse, searches: list[_Search]) -> ListOffsetsResponse:
    """Return the response after its searches."""
    for search in searches:
        row = search.row
        try:
            found = await search.log.searched(search.steps)
        except KafkaError as error:
            row.error_code = error.code
            continue
        if found is not None and found.offset < search.last_fetchable:
            row.timestamp, row.offset = found.timestamp, found.offset
            if search.has_epoch:
                row.leader_epoch = found.leader_epoch
        else:
            row.error_code = search.error_beyond
    return response


def _refuse(denied: list[ListOffsetsTopic], topics: list[ListOffsetsTopicResponse]) -> Iterator[None]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in denied:
        refused = ListOffsetsTopicResponse(topic.name)
        topics.append(refused)
        for partition in topic.partitions:
            refused.partitions.append(ListOffsetsPartitionResponse(partition.partition_index, code))
            yield
        yield


def _fill(
    cluster: Cluster,
    request: ListOffsetsRequest,
    asked: list[ListOffsetsTopic],
    version: int,
    counts: Counter[tuple[str, int]],
    topics: list[ListOffsetsTopicResponse],
    searches: list[_Search],
) -> Iterator[None]:
    """Fill ``topics`` with the results for those ``asked`` for, a partition at each step. ``counts`` says how often the
    request names each. Results by time are filled by the ``searches``.
    """
    for topic in asked:
        # A partition that is named twice has one result.
        results: dict[int, ListOffsetsPartitionResponse] = {}
        for partition in topic.partitions:
            try:
                if counts[(topic.name, partition.partition_index)] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                results[partition.partition_index] = _find(
                    cluster, topic.name, partition, request, version, searches
                )
            except KafkaError as error:
                results[partition.partition_index] = ListOffsetsPartitionResponse(
                    partition.partition_index, error.code
                )
            yield
        if results:
            topics.append(ListOffsetsTopicResponse(topic.name, list(results.values())))


def _find(
    cluster: Cluster,
    topic: str,
    partition: ListOffsetsPartition,
    request: ListOffsetsRequest,
    version: int,
    searches: list[_Search],
) -> ListOffsetsPartitionResponse:
    timestamp = partition.timestamp
    if timestamp < 0 and (
        timestamp < EARLIEST_PENDING_UPLOAD or version < MIN_VERSION_OF.get(timestamp, version)
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    index, replica_id = partition.partition_index, request.replica_id
    if replica_id == DEBUGGING_REPLICA_ID:
        hosted = cluster.readable_partition(topic, index, partition.current_leader_epoch)
        log = hosted.log_at(partition.current_leader_epoch)
    else:
        log = cluster.log(topic, index, partition.current_leader_epoch)
        hosted = cluster.leader_partition(topic, index)
    error = ErrorCode.NONE
    if replica_id == CONSUMER_REPLICA_ID and hosted.epoch_start_offset > log.high_watermark:
        # A new leader does not know yet what its predecessor had committed.
        error = ErrorCode.OFFSET_NOT_AVAILABLE
        if version < OFFSET_NOT_AVAILABLE_VERSION:
            error = ErrorCode.LEADER_NOT_AVAILABLE
    last_fetchable = _last_fetchable(log, request)
    result = ListOffsetsPartitionResponse(index)
    if timestamp == LATEST:
        if error:
            raise KafkaError(error)
        result.offset = last_fetchable
        epoch = hosted.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        epoch = log.epoch_of(log.log_start_offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return result
    else:
        steps = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        has_epoch = version >= LEADER_EPOCH_VERSION
        searches.append(_Search(log, steps, result, last_fetchable, has_epoch, error))
        return result
    if version >= LEADER_EPOCH_VERSION:
        result.leader_epoch = epoch
    return result


def _last_fetchable(log: PartitionLog, request: ListOffsetsRequest) -> int:
    """Return the end offset (exclusive) of what the requester may read."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
