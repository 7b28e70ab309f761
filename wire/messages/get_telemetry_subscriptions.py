"""GetTelemetrySubscriptions (71): which of its metrics a client shall send, and how often (KIP-714)."""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Request,
    Uuid,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], api_key=71, kind="request", versions="0", flexible="0+"
):
    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Message, api_key=71, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
