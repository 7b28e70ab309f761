"""CreatePartitions (API key 37): adds partitions to topics, on brokers that the request assigns or this broker chooses.

Versions 0 to 3 have the same fields. ``count`` is the number of partitions that the topic shall have in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import ALTER, TOPIC_RESOURCE
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

STRICT_VERSION = 3
"""From here on a quota of changes refuses partitions (KIP-599); older clients are only throttled."""


def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    _, repeated = topics.once_and_twice([topic.name for topic in request.topics])
    results = [
        _result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")) for name in repeated
    ]
    may_alter = services.authorization.filter(context, ALTER, TOPIC_RESOURCE)
    quota = None
    if context.usage is not None:
        quota = context.usage.mutation_quota(is_strict=context.api_version >= STRICT_VERSION)
    charge = None if quota is None else quota.record
    records: list[Message] = []
    for topic in request.topics:
        if topic.name in repeated:
            continue
        if not may_alter(topic.name):
            results.append(_result(topic.name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            continue
        try:
            new_records = topics.create_partitions(services.metadata.image, topic, charge)
            topics.check_record_count(len(records) + len(new_records))
            records.extend(new_records)
            results.append(_result(topic.name, None))
        except KafkaError as error:
            results.append(_result(topic.name, error))
    if not request.validate_only:
        try:
            services.metadata.commit(records)
        except KafkaError as error:
            results = [result if result.error_code else _result(result.name, error) for result in results]
    return CreatePartitionsResponse(results=results)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, error.code, error.message)
