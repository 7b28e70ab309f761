"""IncrementalAlterConfigs (API key 44): set, delete, append to and subtract from single keys (KIP-339).

Resources are topics, groups, this broker, and (with an empty name) all brokers. Log levels and client metrics have no
configuration here and are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.metadata.config_changes import ConfigChange, Resource, alter
from oncelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse | Coroutine[Any, Any, IncrementalAlterConfigsResponse]:
    resources = (
        Resource(
            asked.resource_type,
            asked.resource_name,
            [ConfigChange(config.name, config.config_operation, config.value) for config in asked.configs],
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
    return chunked(steps, len(request.resources), IncrementalAlterConfigsResponse(responses=rows))
