"""DescribeClientQuotas (API key 48): lists the quotas of clients, users and addresses that match a filter (KIP-546)."""

from __future__ import annotations

from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.metadata.client_quota_changes import select
from oncelog.broker.metadata.client_quotas import KEYS
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(
    services: AccessServices, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    found = select(services.metadata.image.client_quotas, request.components, strict=request.strict)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                [EntityData(entity_type, name) for entity_type, name in entity],
                [ValueData(key, values[key]) for key in KEYS if key in values],
            )
            for entity, values in found
        ]
    )
