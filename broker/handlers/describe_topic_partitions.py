"""DescribeTopicPartitions (API key 75): lists topics page by page, in the order of their names (KIP-966).

A page has at most ``response_partition_limit`` partitions, and at most ``max.request.partition.size.limit``. If more
follow, the response has a cursor, at which the next request begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import PARTITIONS_A_STEP, chunked_steps
from oncelog.broker.metadata.replica_directories import offline_replicas
from oncelog.broker.metadata.topics import check_name
from oncelog.broker.requests.authorization import DESCRIBE, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Set

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import MetadataImage, Topic
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse | Pending[DescribeTopicPartitionsResponse]:
    return chunked_steps(_describe(services, request, context))


def _describe(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    """Make the response, a topic at each step."""
    existing = services.metadata.image.topics
    names = {topic.name for topic in request.topics} or existing.keys()
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        return _invalid_cursor(request)
    start = "" if cursor is None else cursor.topic_name
    limit = max(
        1, min(request.response_partition_limit, services.config.current.max_request_partition_size_limit)
    )
    authorization = services.authorization
    alive = services.cluster.alive(context.connection.listener_name)
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=not request.topics)
    allowed: list[str] = []
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in [name for name in names if name >= start]:
        if may_describe(name):
            allowed.append(name)
        elif request.topics:
            denied.append(_denied(name))
        yield
    topics: list[DescribeTopicPartitionsResponseTopic] = []

    def respond(next_cursor: Cursor | None = None) -> Steps[DescribeTopicPartitionsResponse]:
        for row in topics:
            row.topic_authorized_operations = authorization.operations(
                context, TOPIC_RESOURCE, row.name or ""
            )
            yield
        return DescribeTopicPartitionsResponse(0, topics + denied, next_cursor)

    allowed.sort()
    for name in allowed:
        yield
        if limit == 0:
            return (yield from respond(Cursor(name, 0)))
        topic = existing.get(name)
        if topic is None:
            if request.topics:
                topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        page = range(first, min(first + limit, len(topic.partitions)))
        topics.append((yield from _topic_page(services.metadata.image, topic, page, alive)))
        limit -= len(page)
        if page.stop < len(topic.partitions):
            return (yield from respond(Cursor(name, page.stop)))
    return (yield from respond())


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return a row that does not tell whether the topic exists."""
    return DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, ZERO_UUID, False)


def _invalid_cursor(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Return INVALID_REQUEST for every topic of the request: its cursor is wrong."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, topic.name)
            for topic in request.topics
        ]
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(code, name, ZERO_UUID, name in INTERNAL_TOPICS)


def _topic_page(
    image: MetadataImage, topic: Topic, page: range, alive: Set[int]
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    for index in page:
        if index % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
            yield
        partition = topic.partitions[index]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.eligible_leader_replicas),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=offline_replicas(image, partition, alive),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions
    )
