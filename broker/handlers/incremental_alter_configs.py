"""IncrementalAlterConfigs (API key 44): sets, deletes, appends to and subtracts from single keys (KIP-339).

Resources are topics, groups, this broker, and (with an empty name) all brokers; the levels of this broker's loggers,
which are not stored; subscriptions to metrics of clients.
"""

from __future__ import annotations

from itertools import islice

from oncelog.broker.handlers.altered_configs import alter_configs
from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.config_changes import KEYS_PER_RESOURCE_MAX, AlteredResource, ConfigChange
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse | Pending[IncrementalAlterConfigsResponse]:
    resources = (
        AlteredResource(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(config.name, config.config_operation, config.value)
                for config in islice(resource.configs, KEYS_PER_RESOURCE_MAX + 1)
            ],
        )
        for resource in request.resources
    )
    return alter_configs(
        services, request, context, resources, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
    )
