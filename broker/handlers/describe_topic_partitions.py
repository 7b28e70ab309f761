"""DescribeTopicPartitions (API key 75): topics page by page, in the order of their names (KIP-966).

An answer holds at most ``response_partition_limit`` partitions (and ``max.request.partition.size.limit``), and where
there are more a cursor that the next request begins at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import TOPIC_OPERATIONS
from oncelog.broker.metadata.topics import check_name
from oncelog.broker.topic_names import INTERNAL_TOPICS
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    known = services.metadata.image.topics
    names = {asked.name for asked in request.topics} or known.keys()
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        return _invalid(request)
    start = "" if cursor is None else cursor.topic_name
    limit = max(
        1, min(request.response_partition_limit, services.config.current.max_request_partition_size_limit)
    )
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(name for name in names if name >= start):
        if limit == 0:
            return DescribeTopicPartitionsResponse(0, rows, Cursor(name, 0))
        topic = known.get(name)
        if topic is None:
            if request.topics:
                rows.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        page = range(first, min(first + limit, len(topic.partitions)))
        rows.append(_row(topic, page))
        limit -= len(page)
        if page.stop < len(topic.partitions):
            return DescribeTopicPartitionsResponse(0, rows, Cursor(name, page.stop))
    return DescribeTopicPartitionsResponse(0, rows)


def _invalid(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """A cursor that makes no sense: every topic of the request gets the error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, asked.name)
            for asked in request.topics
        ]
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        code, name, ZERO_UUID, name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _row(topic: Topic, page: range) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in page:
        state = topic.partitions[index]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.eligible_leader_replicas),
                last_known_elr=list(state.last_known_elr),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions, TOPIC_OPERATIONS
    )
