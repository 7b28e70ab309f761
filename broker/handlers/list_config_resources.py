"""ListConfigResources (API key 74): lists the resources that have a configuration (KIP-1142).

Version 0 lists subscriptions to metrics of clients only.
"""

from __future__ import annotations

from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

RESOURCE_TYPES_VERSION = 1


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    resource_types = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
    wanted = request.resource_types or resource_types
    if context.api_version < RESOURCE_TYPES_VERSION:
        wanted = [CLIENT_METRICS]
    if any(resource_type not in resource_types for resource_type in wanted):
        return ListConfigResourcesResponse(0, ErrorCode.UNSUPPORTED_VERSION)
    resources = []
    for configured in (GROUP, CLIENT_METRICS):
        if configured in wanted:
            resources += [
                ConfigResource(name, configured)
                for (kind, name), overrides in services.metadata.image.configs.items()
                if kind == configured and overrides
            ]
    for of_nodes in (BROKER_LOGGER, BROKER):
        if of_nodes in wanted:
            resources += [
                ConfigResource(str(endpoint.node_id), of_nodes)
                for endpoint in services.cluster.nodes(context.connection.listener_name)
            ]
    if TOPIC in wanted:
        resources += [ConfigResource(name, TOPIC) for name in services.metadata.image.topics]
    return ListConfigResourcesResponse(0, 0, resources)
