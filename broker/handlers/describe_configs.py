"""DescribeConfigs (API key 32): values, where each comes from, and what would hold without it.

- Resources: topics, groups, this broker, and (with an empty name) what is set for all brokers. Log levels and client
  metrics have no configuration here.
- Versions 1 to 4: synonyms on request; 3 adds the type, and the documentation on request.
- An error message is empty where there is none, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata import configs
from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.broker.metadata.topics import check_name
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

_NOT_SERVED = {BROKER_LOGGER: "BROKER_LOGGER", CLIENT_METRICS: "CLIENT_METRICS"}
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


def handle(
    services: Services, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    types = {asked.resource_type for asked in request.resources}
    # One unknown type and Kafka refuses the whole request.
    is_malformed = not types <= {TOPIC, BROKER, GROUP, *_NOT_SERVED}
    error = KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED) if is_malformed else None
    response = DescribeConfigsResponse()
    return chunked(_answers(services, request, response.results, error), len(request.resources), response)


def _answers(
    services: Services,
    request: DescribeConfigsRequest,
    results: list[DescribeConfigsResult],
    error: KafkaError | None,
) -> Iterator[None]:
    # What is asked again is answered with the same row: a short request may ask for a hundred megabytes.
    known: dict[tuple[int, str, tuple[str, ...] | None], DescribeConfigsResult] = {}
    for asked in request.resources:
        keys = asked.configuration_keys
        key = (asked.resource_type, asked.resource_name, None if keys is None else tuple(keys))
        found = known.get(key)
        if found is None:
            found = known[key] = _result(asked, [], error) if error else _answer(services, asked, request)
        results.append(found)
        yield


def _answer(
    services: Services, asked: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        rows = _describe(services, asked, documentation=request.include_documentation)
    except KafkaError as error:
        return _result(asked, [], error)
    if not request.include_synonyms:
        for row in rows:
            row.synonyms = []
    return _result(asked, rows, None)


def _describe(
    services: Services, asked: DescribeConfigsResource, *, documentation: bool
) -> list[DescribeConfigsResourceResult]:
    name, keys = asked.resource_name, asked.configuration_keys
    if asked.resource_type == TOPIC:
        check_name(name)
        if name not in services.metadata.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return configs.topic_rows(
            services.metadata.image, services.config, name, keys, documentation=documentation
        )
    if asked.resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return configs.group_rows(
            services.metadata.image, services.config, name, keys, documentation=documentation
        )
    if asked.resource_type in _NOT_SERVED:
        text = f"Unsupported resource type: {_NOT_SERVED[asked.resource_type]}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if not name:
        return configs.cluster_rows(
            services.metadata.image, services.config, keys, documentation=documentation
        )
    node_id = configs.parse_node_id(name)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id != services.config.current.node_id:
        text = f"Unexpected broker id, expected {services.config.current.node_id} or empty string, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return configs.broker_rows(services.metadata.image, services.config, keys, documentation=documentation)


def _result(
    asked: DescribeConfigsResource, rows: list[DescribeConfigsResourceResult], error: KafkaError | None
) -> DescribeConfigsResult:
    code, text = (error.code, error.message or "") if error else (0, "")
    return DescribeConfigsResult(code, text, asked.resource_type, asked.resource_name, rows)
