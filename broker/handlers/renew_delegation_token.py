"""RenewDelegationToken (API key 39): lets a token expire later; its owner and its renewers may.

Source: ``KafkaApis.handleRenewTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.delegation_tokens import check_channel
from oncelog.broker.security.delegation_tokens import Principal
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.requests.request import RequestContext

NO_TIME = -1


def handle(
    services: AccessServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    try:
        check_channel(context)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error.code, NO_TIME)
    requester = Principal.parse(context.principal)
    expires_ms = services.delegation_tokens.renew(bytes(request.hmac), requester, request.renew_period_ms)
    return RenewDelegationTokenResponse(ErrorCode.NONE, expires_ms)
