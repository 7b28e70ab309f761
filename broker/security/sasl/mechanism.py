"""The interface of a mechanism: it takes and returns tokens until it knows the client's principal. Pure."""

from __future__ import annotations

from typing import Protocol

from oncelog.broker.logging.reasons import Reason


class SaslError(Exception):
    """The log-in fails. The client learns no more than that: the message may say whether a user exists.

    The arguments are those of a `Reason`, ``reason``.
    """

    def __init__(self, kind: str, *sent: object) -> None:
        self.reason = Reason(kind, *sent)
        super().__init__(self.reason)


class SaslAuthenticationError(SaslError):
    """The log-in fails, and the client is told this message, or ``told`` if that says less."""

    def __init__(self, kind: str, *sent: object, told: str | None = None) -> None:
        super().__init__(kind, *sent)
        self.told = str(self.reason) if told is None else told


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

    @property
    def refusal(self) -> Reason | None:
        """Why the client's latest token is refused; None if it is not. The client may show another one."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a client's token. Raises SaslError."""
        ...
