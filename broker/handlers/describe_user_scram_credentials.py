"""DescribeUserScramCredentials (API key 50): lists users with SCRAM passwords, of which there are none.

A user that the request names twice gets DUPLICATE_RESOURCE. Source: ``ScramImage.describe``; KIP-554.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    is_repeated: dict[str, bool] = {}
    for user in request.users or ():
        is_repeated[user.name] = user.name in is_repeated
    results = [
        DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, f"{name} is named twice.")
        if repeated
        else DescribeUserScramCredentialsResult(
            name, ErrorCode.RESOURCE_NOT_FOUND, f"There is no user {name}."
        )
        for name, repeated in is_repeated.items()
    ]
    return DescribeUserScramCredentialsResponse(results=results)


def error_response(
    request: DescribeUserScramCredentialsRequest, version: int, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """Return the error at the top and, without names, for every user of the request."""
    row = DescribeUserScramCredentialsResult("", error.code, error.message)
    return DescribeUserScramCredentialsResponse(
        0, error.code, error.message, [row] * len(request.users or ())
    )
