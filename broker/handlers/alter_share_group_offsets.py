"""AlterShareGroupOffsets (API key 91): sets the start offsets of an empty share group's partitions.

The group is created if there is none. NON_EMPTY_GROUP while it has members; UNSUPPORTED_VERSION while ``share.version``
is 0. Source: ``KafkaApis.handleAlterShareGroupOffsetsRequest``, ``GroupCoordinatorService.alterShareGroupOffsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.share_requests import check_group
from oncelog.broker.requests.authorization import READ, TOPIC_DENIED, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.groups.share.initialization import Initialization
    from oncelog.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic
    from oncelog.wire.steps import Steps

UNKNOWN = "This server does not host this topic-partition."


def handle(
    services: Services, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse | Pending[AlterShareGroupOffsetsResponse]:
    check_group(services, context)
    return chunked_steps(_alter(services, request, context))


def _alter(
    services: Services, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> Steps[AlterShareGroupOffsetsResponse | Pending[AlterShareGroupOffsetsResponse]]:
    """Look at a topic at each step, then set the offsets."""
    from oncelog.coordinator.groups.share.offsets import alter, wanted

    may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)
    refused, topics = [], []
    for topic in request.topics:
        yield
        if not may_read(topic.topic_name):
            refused.append(_refused(services, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED))
        elif topic.topic_name not in services.metadata.image.topics:
            refused.append(_refused(services, topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN))
        else:
            topics.append(topic)
    found = yield from wanted(services.groups.context.topics, topics)
    try:
        initialization = alter(services.groups.shard(request.group_id), request.group_id, found)
    except KafkaError as error:
        return _error_response(to_client_error(error))
    return Pending(_initialize(services, request.group_id, initialization, found.rows, refused))


def _refused(
    services: Services, topic: AlterShareGroupOffsetsRequestTopic, code: ErrorCode, text: str
) -> AlterShareGroupOffsetsResponseTopic:
    known = services.metadata.image.topics.get(topic.topic_name)
    row = AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(row.partition_index, code, text)
            for row in topic.partitions
        ],
    )
    if known is not None:
        row.topic_id = known.topic_id
    return row


async def _initialize(
    services: Services,
    group_id: str,
    initialization: Initialization | None,
    rows: list[AlterShareGroupOffsetsResponseTopic],
    refused: list[AlterShareGroupOffsetsResponseTopic],
) -> AlterShareGroupOffsetsResponse:
    try:
        if initialization is not None:
            errors = await services.share_group_states.initialize(initialization)
            for topic in rows if errors else ():
                for row in topic.partitions:
                    error = errors.get((topic.topic_id, row.partition_index))
                    if error is not None and not row.error_code:
                        row.error_code, row.error_message = error.code, error.message
        shard = services.groups.shard(group_id)
    except KafkaError as error:
        return _error_response(to_client_error(error))
    response = AlterShareGroupOffsetsResponse(responses=refused + rows)
    return await services.groups.runtime.respond_durable([shard], response, _error_response)


def _error_response(error: KafkaError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
