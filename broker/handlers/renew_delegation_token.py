"""RenewDelegationToken (API key 39): lets a token expire later; its owner and its renewers may.

Source: ``KafkaApis.handleRenewTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.delegation_tokens import changed_expiry
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from oncelog.wire.steps import Steps


def handle(
    services: AccessServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse | Pending[RenewDelegationTokenResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: AccessServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> Steps[RenewDelegationTokenResponse]:
    hmac, period_ms, tokens = bytes(request.hmac), request.renew_period_ms, services.delegation_tokens
    return RenewDelegationTokenResponse(
        *(yield from changed_expiry(context, lambda requester: tokens.renew(hmac, requester, period_ms)))
    )
