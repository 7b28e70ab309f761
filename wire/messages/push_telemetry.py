"""PushTelemetry (72): a client's metrics, in the format of OpenTelemetry (KIP-714)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Uuid, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(
    Request["PushTelemetryResponse"], api_key=72, kind="request", versions="0", flexible="0+"
):
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Message, api_key=72, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
