"""What the APIs of delegation tokens share: over which connections they are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.security.delegation_tokens import Principal
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.requests.request import RequestContext

ANONYMOUS = Principal("User", "ANONYMOUS")
REQUESTER_FROM_VERSION = 3


def told(requester: Principal, version: int) -> Principal:
    """Return who asked for a token, as a response of this version tells it (KIP-373)."""
    return requester if version >= REQUESTER_FROM_VERSION else Principal("", "")


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
