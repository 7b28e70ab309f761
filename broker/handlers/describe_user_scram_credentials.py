"""DescribeUserScramCredentials (API key 50): lists users with SCRAM passwords.

A user that the request names twice gets DUPLICATE_RESOURCE. Source: ``ScramImage.describe``; KIP-554.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps


def handle(
    services: AccessServices, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse | Pending[DescribeUserScramCredentialsResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: AccessServices, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Make the response, a row at each step."""
    found: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in services.metadata.image.scram_credentials.items():
        found.setdefault(name, []).append(CredentialInfo(mechanism, credential.iterations))
    times = Counter([user.name for user in request.users] if request.users else list(found))
    response = DescribeUserScramCredentialsResponse()
    for name, number in times.items():
        response.results.append(_result(name, number, found.get(name)))
        yield
    return response


def _result(
    name: str, times: int, credentials: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if credentials is None:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(name, credential_infos=credentials)
