"""RenewDelegationToken (API key 39): lets a token expire later; its owner and its renewers may.

Source: ``KafkaApis.handleRenewTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from oncelog.broker.handlers.delegation_tokens import changed_expiry
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


def handle(
    services: AccessServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    hmac, period_ms, tokens = bytes(request.hmac), request.renew_period_ms, services.delegation_tokens
    return RenewDelegationTokenResponse(
        *changed_expiry(context, lambda requester: tokens.renew(hmac, requester, period_ms))
    )
