"""ListConfigResources (API key 74): lists the resources that have a configuration (KIP-1142).

Version 0 lists client metrics only, of which there are none. Broker loggers are not listed: log levels cannot be
altered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

RESOURCE_TYPES_VERSION = 1


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version < RESOURCE_TYPES_VERSION:
        return ListConfigResourcesResponse()
    resource_types = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
    wanted = request.resource_types or resource_types
    if any(resource_type not in resource_types for resource_type in wanted):
        return ListConfigResourcesResponse(0, ErrorCode.UNSUPPORTED_VERSION)
    resources = []
    if GROUP in wanted:
        resources += [
            ConfigResource(name, GROUP)
            for (kind, name), overrides in services.metadata.image.configs.items()
            if kind == GROUP and overrides
        ]
    if BROKER in wanted:
        resources += [
            ConfigResource(str(endpoint.node_id), BROKER)
            for endpoint in services.cluster.nodes(context.connection.listener_name)
        ]
    if TOPIC in wanted:
        resources += [ConfigResource(name, TOPIC) for name in services.metadata.image.topics]
    return ListConfigResourcesResponse(0, 0, resources)
