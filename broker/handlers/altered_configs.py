"""The common part of AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.handlers.config_rights import config_refusal
from oncelog.broker.handlers.services import Services
from oncelog.broker.metadata.config_changes import AlteredResource, alter
from oncelog.broker.metadata.image import CLIENT_METRICS
from oncelog.broker.requests.authorization import ALTER_CONFIGS
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.schema import Message

R = TypeVar("R", bound="Message")


def alter_configs(
    services: Services,
    request: Any,
    context: RequestContext,
    resources: Iterable[AlteredResource],
    new_response: Callable[..., R],
    new_row: Callable[..., Any],
) -> R | Pending[R]:
    """Alter the resources of a request; return the response, whose rows ``new_row`` makes."""
    if context.forwarded_by is not None:
        resources = (resource._replace(asked=context.forwarded_by) for resource in resources)
    responses: list[Any] = []
    steps = alter(
        services.metadata,
        services.config,
        resources,
        responses,
        new_row,
        validate_only=request.validate_only,
        refusal=config_refusal(services, context, ALTER_CONFIGS),
    )
    return chunked(
        steps,
        len(request.resources),
        new_response(responses=responses),
        are_costly=any(resource.resource_type == CLIENT_METRICS for resource in request.resources),
    )
