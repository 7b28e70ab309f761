"""DescribeClientQuotas (API key 48): lists the quotas of clients, users and addresses that match a filter (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.metadata.client_quota_changes import filter_of
from oncelog.broker.metadata.client_quotas import KEYS
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.metadata.client_quotas import ClientQuotasImage, Entity
    from oncelog.broker.requests.request import Pending
    from oncelog.wire.steps import Steps


def handle(
    services: AccessServices, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse | Pending[DescribeClientQuotasResponse]:
    wanted = filter_of(request.components, strict=request.strict)
    return chunked_steps(_describe(services.metadata.image.client_quotas, wanted))


def _describe(
    image: ClientQuotasImage, wanted: Callable[[Entity], bool]
) -> Steps[DescribeClientQuotasResponse]:
    rows = []
    for entity, values in list(image.entities.items()):
        if wanted(entity):
            rows.append(
                EntryData(
                    [EntityData(entity_type, name) for entity_type, name in entity],
                    [ValueData(key, values[key]) for key in KEYS if key in values],
                )
            )
        yield
    return DescribeClientQuotasResponse(entries=rows)
