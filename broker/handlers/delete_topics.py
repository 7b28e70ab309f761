"""DeleteTopics (API key 20): deletes topics by name or by id.

- Version 5 adds error messages, 6 topic ids.
- With ``delete.topic.enable=false`` versions 1 and 2 get INVALID_REQUEST, since they do not know
  TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata import topics
from oncelog.broker.requests.authorization import DELETE, DESCRIBE, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import Pending, RequestContext

DELETION_DISABLED_VERSION = 3
"""The first version with TOPIC_DELETION_DISABLED."""
TOPICS_VERSION = 6
STRICT_VERSION = 5
"""From here on a quota of changes refuses deletions (KIP-599); older clients are only throttled."""


def handle(
    services: Services, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse | Pending[DeleteTopicsResponse]:
    wanted = request.topics
    if context.api_version < TOPICS_VERSION:
        wanted = [DeleteTopicState(name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    if services.config.current.delete_topic_enable:
        rights = _rights(services.authorization, context)
        quota = None
        if context.usage is not None:
            quota = context.usage.mutation_quota(is_strict=context.api_version >= STRICT_VERSION)
        charge = None if quota is None else quota.record
        steps = topics.delete(services.metadata, wanted, response.responses, rights, charge)
    else:
        steps = _refuse_all(wanted, response.responses, context.api_version)
    return chunked(steps, len(wanted), response)


def _rights(authorization: Authorization, context: RequestContext) -> topics.TopicRights | None:
    if authorization.authorizer is None or authorization.allows(context, DELETE, *THE_CLUSTER, quiet=True):
        return None
    return topics.TopicRights(
        authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE),
        authorization.predicate(context, DELETE, TOPIC_RESOURCE),
    )


def _refuse_all(
    wanted: list[DeleteTopicState], results: list[DeletableTopicResult], version: int
) -> Iterator[None]:
    error = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    if version < DELETION_DISABLED_VERSION:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
    for topic in wanted:
        results.append(DeletableTopicResult(topic.name, topic.topic_id, error.code, error.message))
        yield
