"""DescribeDelegationToken (API key 41): lists tokens that the client may know of.

Owners and renewers may, who has DESCRIBE on the token, and who has DESCRIBE_TOKENS on its owner. Source:
``KafkaApis.handleDescribeTokensRequest``, ``DelegationTokenManager.filterToken``; KIP-48, KIP-373.
"""

from __future__ import annotations

from oncelog.broker.handlers.delegation_tokens import check_channel, told
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.requests.authorization import (
    DELEGATION_TOKEN_RESOURCE,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER_RESOURCE,
)
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.security.delegation_tokens import Principal, owners_and_renewers
from oncelog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.wire.stored.metadata import DelegationTokenRecord


def handle(
    services: AccessServices, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    check_channel(context)
    tokens = services.delegation_tokens
    tokens.require_enabled()
    owners = None
    if request.owners is not None:  # a set: many owners and many tokens cost their sum, not their product
        owners = {str(Principal(one.principal_type, one.principal_name)) for one in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac(token.token_id), context.api_version)
            for token in tokens.all()
            if _is_asked_for(token, owners) and _may_know(services, context, token)
        ]
    )


def _is_asked_for(token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    return owners is None or not owners.isdisjoint(owners_and_renewers(token))


def _may_know(services: AccessServices, context: RequestContext, token: DelegationTokenRecord) -> bool:
    allows = services.authorization.allows
    return (
        context.principal in owners_and_renewers(token)
        or allows(context, DESCRIBE, DELEGATION_TOKEN_RESOURCE, token.token_id)
        or allows(context, DESCRIBE_TOKENS, USER_RESOURCE, token.owner)
    )


def _described(token: DelegationTokenRecord, hmac: bytes, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *Principal.parse(token.owner),
        *told(Principal.parse(token.requester), version),
        token.issue_timestamp,
        token.expiration_timestamp,
        token.max_timestamp,
        token.token_id,
        hmac,
        [DescribedDelegationTokenRenewer(*Principal.parse(renewer)) for renewer in token.renewers],
    )
