"""SaslHandshake (API key 17): a client chooses a SASL mechanism.

A log-in is over before a request comes here (`oncelog.broker.security.sasl.login`): one on a listener without SASL, or
after the log-in, is refused.
"""

from __future__ import annotations

from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    services: AccessServices, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
