"""SaslAuthenticate (36): the tokens of a SASL mechanism (KIP-152). Version 1 has the session's lifetime (KIP-368)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, bytes_, int16, int64, string


class SaslAuthenticateRequest(
    Request["SaslAuthenticateResponse"], api_key=36, kind="request", versions="0-2", flexible="2+"
):
    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, api_key=36, kind="response", versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
