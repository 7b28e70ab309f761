"""DeleteTopics (API key 20): topics by name or by id.

- Versions 1 to 6: 5 answers with error messages, 6 names topics by id as well.
- With ``delete.topic.enable=false`` versions 1 and 2 know no error for it but INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata import topics
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

DELETION_DISABLED_VERSION = 3
"""The first version with TOPIC_DELETION_DISABLED."""
TOPICS_VERSION = 6


def handle(
    services: Services, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse | Coroutine[Any, Any, DeleteTopicsResponse]:
    wanted = request.topics
    if context.api_version < TOPICS_VERSION:
        wanted = [DeleteTopicState(name) for name in request.topic_names]
    answer = DeleteTopicsResponse()
    if services.config.current.delete_topic_enable:
        steps = topics.delete(services.metadata, wanted, answer.responses)
    else:
        steps = _refuse(wanted, answer.responses, context.api_version)
    return chunked(steps, len(wanted), answer)


def _refuse(wanted: list[DeleteTopicState], rows: list[DeletableTopicResult], version: int) -> Iterator[None]:
    error = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    if version < DELETION_DISABLED_VERSION:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
    for asked in wanted:
        rows.append(DeletableTopicResult(asked.name, asked.topic_id, error.code, error.message))
        yield
