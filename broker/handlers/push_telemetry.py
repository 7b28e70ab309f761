"""PushTelemetry (API key 72): takes metrics of a client, in the format of OpenTelemetry (KIP-714)."""

from __future__ import annotations

from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(
    services: Services, request: PushTelemetryRequest, context: RequestContext
) -> Pending[PushTelemetryResponse]:
    return Pending(_respond(services, request, context))


async def _respond(
    services: Services, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    await services.client_metrics.push(context, request)
    return PushTelemetryResponse()
