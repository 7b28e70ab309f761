"""RenewDelegationToken (39): renews a delegation token (KIP-48)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(
    Request["RenewDelegationTokenResponse"], api_key=39, kind="request", versions="1-2", flexible="2+"
):
    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api_key=39, kind="response", versions="1-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
