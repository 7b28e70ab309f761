"""AlterConfigs (API key 33): replaces all settings of a resource; a key that is not named returns to its default.

Kafka calls it legacy, but some clients have nothing else (aiokafka, kafkajs).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.handlers.config_rights import config_refusal
from oncelog.broker.metadata.config_changes import (
    KEYS_PER_RESOURCE_MAX,
    SET,
    AlteredResource,
    ConfigChange,
    alter,
)
from oncelog.broker.metadata.image import CLIENT_METRICS
from oncelog.broker.requests.authorization import ALTER_CONFIGS
from oncelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext


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
    responses: list[AlterConfigsResourceResponse] = []
    steps = alter(
        services.metadata,
        services.config,
        resources,
        responses,
        AlterConfigsResourceResponse,
        validate_only=request.validate_only,
        refusal=config_refusal(services, context, ALTER_CONFIGS),
    )
    return chunked(
        steps,
        len(request.resources),
        AlterConfigsResponse(responses=responses),
        are_costly=any(resource.resource_type == CLIENT_METRICS for resource in request.resources),
    )
