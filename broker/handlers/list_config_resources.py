"""ListConfigResources (API key 74): lists the resources that have a configuration (KIP-1142).

Version 0 lists subscriptions to metrics of clients only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from oncelog.broker.requests.request import Pending
    from oncelog.wire.steps import Steps


RESOURCE_TYPES_VERSION = 1


def handle(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse | Pending[ListConfigResourcesResponse]:
    resource_types = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
    wanted = request.resource_types or resource_types
    if context.api_version < RESOURCE_TYPES_VERSION:
        wanted = [CLIENT_METRICS]
    if any(resource_type not in resource_types for resource_type in wanted):
        return ListConfigResourcesResponse(0, ErrorCode.UNSUPPORTED_VERSION)
    return chunked_steps(_list(services, wanted, context))


def _list(
    services: Services, wanted: Collection[int], context: RequestContext
) -> Steps[ListConfigResourcesResponse]:
    image = services.metadata.image
    resources: list[ConfigResource] = []
    for configured in (GROUP, CLIENT_METRICS):
        for (kind, name), overrides in list(image.configs.items()) if configured in wanted else ():
            if kind == configured and overrides:
                resources.append(ConfigResource(name, configured))
            yield
    for of_nodes in (BROKER_LOGGER, BROKER):
        if of_nodes in wanted:
            resources += [
                ConfigResource(str(endpoint.node_id), of_nodes)
                for endpoint in services.cluster.nodes(context.connection.listener_name)
            ]
    for name in list(image.topics) if TOPIC in wanted else ():
        resources.append(ConfigResource(name, TOPIC))
        yield
    return ListConfigResourcesResponse(0, 0, resources)
