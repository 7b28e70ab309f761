"""Envelope (58): a client's request, which a broker forwards to the controller with the client's principal (KIP-590).

``request_data`` and ``response_data`` begin with their header.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, bytes_, int16


class EnvelopeRequest(Request["EnvelopeResponse"], api_key=58, kind="request", versions="0", flexible="0+"):
    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+")
    client_host_address: bytes = bytes_()


class EnvelopeResponse(Message, api_key=58, kind="response", versions="0", flexible="0+"):
    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: int = int16()
