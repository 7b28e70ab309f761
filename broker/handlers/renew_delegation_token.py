"""RenewDelegationToken (API key 39): lets a token expire later; its owner and its renewers may.

Source: ``KafkaApis.handleRenewTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.delegation_tokens import changed_expiry
from oncelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.requests.request import RequestContext


def handle(
    services: AccessServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    hmac, period_ms, tokens = bytes(request.hmac), request.renew_period_ms, services.delegation_tokens
    return RenewDelegationTokenResponse(
        *changed_expiry(context, lambda requester: tokens.renew(hmac, requester, period_ms))
    )
