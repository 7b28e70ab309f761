"""GetTelemetrySubscriptions (API key 71): tells a client which metrics it shall send, and how often (KIP-714)."""

from __future__ import annotations

from oncelog.broker.client_metrics.manager import CODECS
from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    services: Services, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> Pending[GetTelemetrySubscriptionsResponse]:
    return Pending(_respond(services, request, context))


async def _respond(
    services: Services, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    instance = await services.client_metrics.ask(context, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        0,
        0,
        instance.instance_id,
        instance.subscription_id,
        list(CODECS),
        instance.interval_ms,
        services.client_metrics.bytes_max,
        True,
        instance.metrics,
    )
