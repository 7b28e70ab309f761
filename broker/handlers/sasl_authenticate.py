"""SaslAuthenticate (API key 36): a SASL token.

A log-in is over before a request comes here (`oncelog.broker.security.sasl.login`): one on a listener without SASL, or
after the log-in, is refused.
"""

from __future__ import annotations

from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(
    services: AccessServices, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
    )
