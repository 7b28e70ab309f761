"""CreateTopics (API key 19): topics with partitions and configurations, each on its own.

- Versions 2 to 7: 4 lets the broker choose the number of partitions and replicas (-1), 5 answers with the topic's
  configuration, 7 with its id.
- Every topic succeeds or fails for itself; all that succeed are made by one batch of metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata import topics
from oncelog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(services: Services, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    rows = topics.create(
        services.metadata, services.config, request.topics, validate_only=request.validate_only
    )
    return CreateTopicsResponse(topics=rows)
