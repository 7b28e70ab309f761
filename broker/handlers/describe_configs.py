"""DescribeConfigs (API key 32): returns configuration values, the source of each, and the values it overrides.

- Resources are topics, groups, this broker, and (with an empty name) the dynamic defaults of all brokers; the levels of
  this broker's loggers; subscriptions to metrics of clients.
- Synonyms are returned on request; version 3 adds the types, and documentation on request.
- Without an error the message is empty, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.handlers.config_rights import config_refusal
from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata import configs
from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, MetadataImage
from oncelog.broker.metadata.logger_levels import logger_rows
from oncelog.broker.metadata.topics import check_name
from oncelog.broker.requests.authorization import DESCRIBE_CONFIGS
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_TYPES = frozenset((TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


def handle(
    services: Services, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse | Pending[DescribeConfigsResponse]:
    types = {resource.resource_type for resource in request.resources}
    # Kafka refuses the whole request if one type is unknown.
    is_malformed = not types <= _TYPES
    error = KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED) if is_malformed else None
    response = DescribeConfigsResponse()
    return chunked(
        _describe_all(services, context, request, response.results, error),
        len(request.resources),
        response,
    )


def _describe_all(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    results: list[DescribeConfigsResult],
    malformed: KafkaError | None,
) -> Iterator[None]:
    image, config = services.metadata.image, services.config
    refusal = config_refusal(services, context, DESCRIBE_CONFIGS)
    denied: list[DescribeConfigsResult] = []
    # Equal resources share one result: a short request may ask for a hundred megabytes.
    results_by_key: dict[tuple[int, str, tuple[str, ...] | None], DescribeConfigsResult] = {}
    for resource in request.resources:
        error = malformed
        if error is None and refusal is not None:
            error = refusal(resource.resource_type, resource.resource_name)
            if error is not None:
                denied.append(_result(resource, [], error))
                yield
                continue
        keys = resource.configuration_keys
        key = (resource.resource_type, resource.resource_name, None if keys is None else tuple(keys))
        result = results_by_key.get(key)
        if result is None:
            result = results_by_key[key] = (
                _result(resource, [], error) if error else _describe_one(image, config, resource, request)
            )
        results.append(result)
        yield
    results += denied


def _describe_one(
    image: MetadataImage,
    config: DynamicBrokerConfig,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    try:
        config_rows = _describe(image, config, resource, documentation=request.include_documentation)
    except KafkaError as error:
        return _result(resource, [], error)
    if not request.include_synonyms:
        for config_row in config_rows:
            config_row.synonyms = []
    return _result(resource, config_rows, None)


def _describe(
    image: MetadataImage,
    config: DynamicBrokerConfig,
    resource: DescribeConfigsResource,
    *,
    documentation: bool,
) -> list[DescribeConfigsResourceResult]:
    name, keys = resource.resource_name, resource.configuration_keys
    if resource.resource_type == TOPIC:
        check_name(name)
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return configs.topic_rows(image, config, name, keys, documentation=documentation)
    if resource.resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return configs.group_rows(image, config, name, keys, documentation=documentation)
    if resource.resource_type == BROKER_LOGGER:
        return logger_rows(config.current.node_id, name, keys)
    if resource.resource_type == CLIENT_METRICS:
        if not name:
            text = "Client metrics subscription name must not be empty"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return configs.client_metrics_rows(image, name, keys, documentation=documentation)
    if not name:
        return configs.cluster_rows(image, config, keys, documentation=documentation)
    node_id = configs.parse_node_id(name)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id != config.current.node_id:
        text = f"Unexpected broker id, expected {config.current.node_id} or empty string, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return configs.broker_rows(image, config, keys, documentation=documentation)


def _result(
    resource: DescribeConfigsResource,
    config_rows: list[DescribeConfigsResourceResult],
    error: KafkaError | None,
) -> DescribeConfigsResult:
    code, text = (error.code, error.message or "") if error else (0, "")
    return DescribeConfigsResult(code, text, resource.resource_type, resource.resource_name, config_rows)
