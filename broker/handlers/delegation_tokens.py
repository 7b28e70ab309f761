"""The common part of the APIs of delegation tokens: which connections they are for, and changes of an expiry."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.requests.request import RequestContext
from oncelog.broker.security.delegation_tokens import Principal
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.steps import Steps

ANONYMOUS = Principal("User", "ANONYMOUS")
REQUESTER_FROM_VERSION = 3
NO_TIME = -1


def told(requester: Principal, version: int) -> Principal:
    """Return who asked for a token, as a response of this version tells it (KIP-373)."""
    return requester if version >= REQUESTER_FROM_VERSION else Principal("", "")


def changed_expiry(
    context: RequestContext, change: Callable[[Principal], Steps[int]]
) -> Steps[tuple[ErrorCode, int]]:
    """Return the error and the new expiry of a token, in milliseconds. ``change`` makes it for who asks; may raise
    KafkaError.
    """
    try:
        check_channel(context)
    except KafkaError as error:
        return error.code, NO_TIME
    return ErrorCode.NONE, (yield from change(Principal.parse(context.principal)))


def check_channel(context: RequestContext) -> None:
    """Raises KafkaError (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client has shown who it is, and not by a
    token (``KafkaApis.allowTokenRequests``).
    """
    connection = context.connection
    protocol = connection.security_protocol
    if (
        connection.is_token_authenticated
        or protocol == "PLAINTEXT"
        or (protocol == "SSL" and context.principal == str(ANONYMOUS))
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
