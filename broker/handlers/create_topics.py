"""CreateTopics (API key 19): creates topics with partitions and configurations.

- Version 4 lets the broker choose the number of partitions and of replicas (-1), 5 returns the topic's configuration,
  7 its id.
- Each topic succeeds or fails on its own; one batch of metadata creates all that succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.metadata import topics
from oncelog.broker.requests.authorization import CREATE, DESCRIBE_CONFIGS, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps

CONFIGURATION_VERSION = 5
STRICT_VERSION = 6
"""From here on a quota of changes refuses topics (KIP-599); older clients are only throttled."""


def handle(
    services: Services, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse | Pending[CreateTopicsResponse]:
    return chunked_steps(_create(services, request, context))


def _create(
    services: Services, request: CreateTopicsRequest, context: RequestContext
) -> Steps[CreateTopicsResponse]:
    quota = None
    if context.usage is not None:
        quota = context.usage.mutation_quota(is_strict=context.api_version >= STRICT_VERSION)
    results = yield from topics.create(
        services.metadata,
        services.config,
        request.topics,
        validate_only=request.validate_only,
        describe=context.api_version >= CONFIGURATION_VERSION,
        rights=_rights(services.authorization, context),
        charge=None if quota is None else quota.record,
    )
    return CreateTopicsResponse(topics=results)


def _rights(authorization: Authorization, context: RequestContext) -> topics.TopicRights | None:
    if authorization.authorizer is None:
        return None
    may_describe = authorization.predicate(context, DESCRIBE_CONFIGS, TOPIC_RESOURCE, quiet=True)
    if authorization.allows(context, CREATE, *THE_CLUSTER, quiet=True):
        return topics.TopicRights(may_describe, lambda name: True)
    return topics.TopicRights(may_describe, authorization.predicate(context, CREATE, TOPIC_RESOURCE))
