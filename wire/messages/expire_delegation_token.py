"""ExpireDelegationToken (40): changes when a delegation token expires (KIP-48)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request["ExpireDelegationTokenResponse"], api_key=40, kind="request", versions="1-2", flexible="2+"
):
    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api_key=40, kind="response", versions="1-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
