"""ExpireDelegationToken (API key 40): changes when a token expires, or removes it; its owner and its renewers may.

Source: ``KafkaApis.handleExpireTokenRequest``, ``DelegationTokenControlManager``; KIP-48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.delegation_tokens import check_channel
from oncelog.broker.security.delegation_tokens import Principal
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.requests.request import RequestContext

NO_TIME = -1


def handle(
    services: AccessServices, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    try:
        check_channel(context)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error.code, NO_TIME)
    requester = Principal.parse(context.principal)
    expires_ms = services.delegation_tokens.expire(
        bytes(request.hmac), requester, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(ErrorCode.NONE, expires_ms)
