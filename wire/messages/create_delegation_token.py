"""CreateDelegationToken (38): makes a delegation token (KIP-48, KIP-373)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(
    Request["CreateDelegationTokenResponse"], api_key=38, kind="request", versions="1-3", flexible="2+"
):
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, api_key=38, kind="response", versions="1-3", flexible="2+"):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()
