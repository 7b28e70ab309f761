"""AlterConfigs (API key 33): replaces all settings of a resource; a key that is not named returns to its default.

Kafka calls it legacy, but some clients have nothing else (aiokafka, kafkajs).
"""

from __future__ import annotations

from itertools import islice

from oncelog.broker.handlers.altered_configs import alter_configs
from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.config_changes import (
    KEYS_PER_RESOURCE_MAX,
    SET,
    AlteredResource,
    ConfigChange,
)
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    services: Services, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse | Pending[AlterConfigsResponse]:
    resources = (
        AlteredResource(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(config.name, SET, config.value)
                for config in islice(resource.configs, KEYS_PER_RESOURCE_MAX + 1)
            ],
            replaces=True,
        )
        for resource in request.resources
    )
    return alter_configs(
        services, request, context, resources, AlterConfigsResponse, AlterConfigsResourceResponse
    )
