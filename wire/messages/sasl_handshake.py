"""SaslHandshake (17): a client chooses a SASL mechanism.

After version 0, tokens follow as bare frames without a request header; after version 1, in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, array, int16, string


class SaslHandshakeRequest(
    Request["SaslHandshakeResponse"], api_key=17, kind="request", versions="0-1", flexible="none"
):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, kind="response", versions="0-1", flexible="none"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
