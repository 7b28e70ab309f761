"""CreatePartitions (API key 37): more partitions for a topic, on brokers of our choice or as assigned.

Versions 0 to 3 say the same; the number in the request is the total that is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata import topics
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.wire.schema import Message


def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    _, twice = topics.once_and_twice([topic.name for topic in request.topics])
    rows = [_row(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")) for name in twice]
    records: list[Message] = []
    for topic in request.topics:
        if topic.name in twice:
            continue
        try:
            made = topics.grow(services.metadata.image, topic)
            topics.check_record_count(len(records) + len(made))
            records.extend(made)
            rows.append(_row(topic.name, None))
        except KafkaError as error:
            rows.append(_row(topic.name, error))
    if not request.validate_only:
        try:
            services.metadata.commit(records)
        except KafkaError as error:
            rows = [row if row.error_code else _row(row.name, error) for row in rows]
    return CreatePartitionsResponse(results=rows)


def _row(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, error.code, error.message)
