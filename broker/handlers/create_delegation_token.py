"""CreateDelegationToken (API key 38): makes a token by which its owner can log in.

Who asks for the token of somebody else needs CREATE_TOKENS on that user.

Source: ``KafkaApis.handleCreateTokenRequest``; KIP-48, KIP-373.
"""

from __future__ import annotations

from oncelog.broker.handlers.delegation_tokens import NO_TIME, check_channel, told
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.authorization import CREATE_TOKENS, USER_RESOURCE
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.security.delegation_tokens import USER_TYPE, Principal
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


def handle(
    services: AccessServices, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = Principal.parse(context.principal)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(one.principal_type, one.principal_name) for one in request.renewers]
    try:
        check_channel(context)
        if request.owner_principal_name and request.owner_principal_type is None:
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if owner != requester and not services.authorization.allows(
            context, CREATE_TOKENS, USER_RESOURCE, str(owner)
        ):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        return _refused(error, owner, requester, context.api_version, NO_TIME)
    tokens = services.delegation_tokens
    try:
        token = tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return _refused(error, owner, requester, context.api_version, 0)
    return CreateDelegationTokenResponse(
        0,
        *owner,
        *told(requester, context.api_version),
        token.issue_timestamp,
        token.expiration_timestamp,
        token.max_timestamp,
        token.token_id,
        tokens.hmac(token.token_id),
    )


def _refused(
    error: KafkaError, owner: Principal, requester: Principal, version: int, at_ms: int
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(error.code, *owner, *told(requester, version), at_ms, at_ms, at_ms)
