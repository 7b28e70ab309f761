"""ExpireDelegationToken (API key 40): changes when a token expires, or removes it; its owner and its renewers may.

Source: ``KafkaApis.handleExpireTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.delegation_tokens import changed_expiry
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.wire.steps import Steps


def handle(
    services: AccessServices, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse | Pending[ExpireDelegationTokenResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: AccessServices, request: ExpireDelegationTokenRequest, context: RequestContext
) -> Steps[ExpireDelegationTokenResponse]:
    hmac, period_ms, tokens = bytes(request.hmac), request.expiry_time_period_ms, services.delegation_tokens
    return ExpireDelegationTokenResponse(
        *(yield from changed_expiry(context, lambda requester: tokens.expire(hmac, requester, period_ms)))
    )
