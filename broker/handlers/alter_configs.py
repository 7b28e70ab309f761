"""AlterConfigs (API key 33): a resource's settings, all at once; what is not named goes back to its default.

Kafka calls it legacy, but it is the only way that some clients have (aiokafka, kafkajs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata.config_changes import SET, ConfigChange, Resource, alter
from oncelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse | Coroutine[Any, Any, AlterConfigsResponse]:
    resources = (
        Resource(
            asked.resource_type,
            asked.resource_name,
            [ConfigChange(config.name, SET, config.value) for config in asked.configs],
            replaces=True,
        )
        for asked in request.resources
    )
    rows: list[AlterConfigsResourceResponse] = []
    steps = alter(
        services.metadata,
        services.config,
        resources,
        rows,
        AlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
    return chunked(steps, len(request.resources), AlterConfigsResponse(responses=rows))
