"""PLAIN: a user's name and password in one token (RFC 4616). Source: ``PlainSaslServer``."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from oncelog.broker.security.sasl.mechanism import SaslAuthenticationError


class PlainServer:
    """See `SaslServer`. ``password_of`` returns a user's password, or None."""

    expires_at_ms: int | None = None
    is_token_authenticated = False
    refusal = None

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self._password_of = password_of
        self.is_complete = False
        self.authorization_id = ""
        self.claimed_name = ""

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslAuthenticationError(
                "Invalid SASL/PLAIN response: expected 3 tokens, got {}", len(parts)
            )
        authorization_id, name, password = parts
        self.claimed_name = name
        if not name:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        expected = self._password_of(name)
        # An unknown user takes as long as a wrong password.
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.authorization_id = name
        self.is_complete = True
        return b""
