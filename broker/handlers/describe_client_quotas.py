"""DescribeClientQuotas (API key 48): lists the quotas of clients, of which there are none.

Filters are checked as in Kafka. Source: ``ClientQuotasImage.describe``; KIP-546.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def handle(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    _check(request.components)
    return DescribeClientQuotasResponse()


def error_response(
    request: DescribeClientQuotasRequest, version: int, error: KafkaError
) -> DescribeClientQuotasResponse:
    """Return the error without any entries."""
    return DescribeClientQuotasResponse(0, error.code, error.message, None)


def _check(components: Sequence[ComponentData]) -> None:
    """Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION."""
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A type of entity is empty.")
        if entity_type in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The filter names the type {entity_type} twice.")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"There are no entities of the type {entity_type}."
            )
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no match type {component.match_type}.")
        if (component.match is None) == (component.match_type == EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "An exact match, and no other, has a name to match.")
        seen.add(entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An address is no part of another entity.")
