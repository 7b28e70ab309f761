"""CreatePartitions (API key 37): adds partitions to topics, on brokers that the request assigns or this broker chooses.

Versions 0 to 3 have the same fields. ``count`` is the number of partitions that the topic shall have in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.metadata import topics
from oncelog.broker.requests.authorization import ALTER, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Message
    from oncelog.wire.steps import Steps

STRICT_VERSION = 3
"""From here on a quota of changes refuses partitions (KIP-599); older clients are only throttled."""


def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse | Pending[CreatePartitionsResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> Steps[CreatePartitionsResponse]:
    """Make the response, a row at each step."""
    _, repeated = topics.once_and_twice([topic.name for topic in request.topics])
    is_repeated = frozenset(repeated)
    may_alter = services.authorization.predicate(context, ALTER, TOPIC_RESOURCE)
    denied = set()
    for topic in request.topics:
        if topic.name not in is_repeated and not may_alter(topic.name):
            denied.add(topic.name)
        yield
    results: list[CreatePartitionsTopicResult] = []
    others = (topic for topic in request.topics if topic.name not in is_repeated and topic.name not in denied)
    try:
        topics.check_more_partitions(services.metadata.image, others)
    except KafkaError as too_many:
        for topic in request.topics:
            results.append(_result(topic.name, too_many))
            yield
        return CreatePartitionsResponse(results=results)
    for name in repeated:
        results.append(_result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        yield
    quota = None
    if context.usage is not None:
        quota = context.usage.mutation_quota(is_strict=context.api_version >= STRICT_VERSION)
    charge = None if quota is None else quota.record
    image = services.metadata.image
    began = image.offset
    records_of: dict[str, list[Message]] = {}
    for topic in request.topics:
        yield
        if topic.name in is_repeated:
            continue
        if topic.name in denied:
            results.append(_result(topic.name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            continue
        try:
            new_records = topics.create_partitions(services.metadata, topic, charge)
            records_of[topic.name] = new_records
            results.append(_result(topic.name, None))
        except KafkaError as error:
            results.append(_result(topic.name, error))
    if image.offset != began:
        # The metadata changed between the steps: a topic may be gone now, or have other partitions.
        wanted = {topic.name: topic for topic in request.topics}
        for at, result in enumerate(results):
            if result.name in records_of:
                try:
                    records_of[result.name] = topics.create_partitions(services.metadata, wanted[result.name])
                except KafkaError as error:
                    del records_of[result.name]
                    results[at] = _result(result.name, error)
    if not request.validate_only:
        try:
            services.metadata.commit([record for made in records_of.values() for record in made])
        except KafkaError as error:
            results = [result if result.error_code else _result(result.name, error) for result in results]
    return CreatePartitionsResponse(results=results)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, error.code, error.message)
