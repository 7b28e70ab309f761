"""DeleteShareGroupOffsets (API key 92): deletes the states of an empty share group's topics.

UNKNOWN_TOPIC_OR_PARTITION for a topic without initialized states. NON_EMPTY_GROUP while the group has members;
UNSUPPORTED_VERSION while ``share.version`` is 0. Source: ``KafkaApis.handleDeleteShareGroupOffsetsRequest``,
``GroupCoordinatorService.deleteShareGroupOffsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.share_requests import check_group
from oncelog.broker.requests.authorization import READ, TOPIC_DENIED, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.groups.share.offsets import DeletedOffsets
    from oncelog.wire.steps import Steps


def handle(
    services: Services, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse | Pending[DeleteShareGroupOffsetsResponse]:
    check_group(services, context)
    return chunked_steps(_look_and_delete(services, request, context))


def _look_and_delete(
    services: Services, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> Steps[DeleteShareGroupOffsetsResponse | Pending[DeleteShareGroupOffsetsResponse]]:
    """Look at a topic at each step, then delete the states."""
    from oncelog.coordinator.groups.share.offsets import delete

    may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)
    refused, names = [], []
    for topic in request.topics:
        yield
        if may_read(topic.topic_name):
            names.append(topic.topic_name)
        else:
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message=TOPIC_DENIED,
                )
            )
    try:
        found = delete(services.groups.shard(request.group_id), request.group_id, names)
    except KafkaError as error:
        return _error_response(to_client_error(error))
    return Pending(_delete(services, request.group_id, found, refused))


async def _delete(
    services: Services,
    group_id: str,
    found: DeletedOffsets,
    refused: list[DeleteShareGroupOffsetsResponseTopic],
) -> DeleteShareGroupOffsetsResponse:
    from oncelog.coordinator.groups.share.offsets import deleted

    errors = await services.share_group_states.delete(group_id, found.deletion)
    by_topic = {topic_id: error for (topic_id, _), error in errors.items()}
    done = [topic_id for topic_id in found.deletion if topic_id not in by_topic]
    try:
        shard = services.groups.shard(group_id)
        if done:
            deleted(shard, group_id, done)
    except KafkaError as error:
        return _error_response(to_client_error(error))
    rows = []
    for topic_id in sorted(found.deletion, key=by_topic.__contains__):
        topic = services.metadata.image.topics_by_id.get(topic_id)
        row = DeleteShareGroupOffsetsResponseTopic("" if topic is None else topic.name, topic_id)
        if topic_id in by_topic:
            row.error_code, row.error_message = by_topic[topic_id].code, by_topic[topic_id].message
        rows.append(row)
    response = DeleteShareGroupOffsetsResponse(responses=[*refused, *rows, *found.errors])
    return await services.groups.runtime.respond_durable([shard], response, _error_response)


def _error_response(error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
