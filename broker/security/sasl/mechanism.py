"""The interface of a mechanism: it takes and returns tokens until it knows the client's principal. Pure."""

from __future__ import annotations

from typing import Protocol


class SaslError(Exception):
    """The log-in fails. The client learns no more than that: the message may say whether a user exists."""


class SaslAuthenticationError(SaslError):
    """The log-in fails, and the client is told this message."""


class SaslServer(Protocol):
    """The server's side of one log-in by one mechanism (Java: ``javax.security.sasl.SaslServer``)."""

    is_complete: bool
    """Whether the client has proved who it is."""
    authorization_id: str
    """The user's name, once complete."""
    claimed_name: str
    """The name that the client gave, proved or not; empty until it gives one."""
    expires_at_ms: int | None
    """When the credentials end (wall time), if they do."""
    is_token_authenticated: bool
    """Whether a delegation token was shown."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a client's token. Raises SaslError."""
        ...
