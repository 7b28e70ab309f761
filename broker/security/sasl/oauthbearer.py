"""OAUTHBEARER: the client sends a token, and a validator returns its principal (RFC 7628, KIP-255).

Source: ``OAuthBearerSaslServer``, ``OAuthBearerClientInitialResponse``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from oncelog.broker.credentials.jaas import OAUTH_PACKAGE
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.security.sasl.mechanism import SaslAuthenticationError, SaslError

SIGNED = f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler"
UNSECURED = f"{OAUTH_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01({_PAIRS})\x01")
_AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_AFTER_ERROR = b"\x01"


class OAuthToken(NamedTuple):
    """A valid token: its principal and its end (wall time, ms)."""

    principal: str
    expires_at_ms: int


class TokenRefused(Exception):  # noqa: N818 - the client is told, and goes on
    """The token is not valid. ``reason`` is for the broker's log and tests, which show no more of the token;
    ``status`` (RFC 7628) and ``scope`` are for the client.
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope
        self.claimed_name = ""
        """The principal that the token claims."""

    @property
    def json(self) -> str:
        """The error message for the client (RFC 7628)."""
        scope = "" if self.scope is None else f', "scope":"{self.scope}"'
        return f'{{"status":"{self.status}"{scope}}}'


class OAuthBearerServer:
    """See `SaslServer`. ``validate`` returns the principal and the end of a token, or raises TokenRefused."""

    is_token_authenticated = False

    def __init__(self, validate: Callable[[str], OAuthToken]) -> None:
        self._validate = validate
        self._refused: TokenRefused | None = None
        self.is_complete = False
        self.authorization_id = ""
        self.claimed_name = ""
        self.expires_at_ms: int | None = None

    @property
    def refusal(self) -> Reason | None:
        """See `SaslServer`."""
        return None if self._refused is None else Reason("{}", self._refused)

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`. A refused token fails the log-in only with the client's next message, which must confirm
        the error message.
        """
        refused = self._refused
        if refused is not None and token == _AFTER_ERROR:
            raise SaslAuthenticationError("{}", refused, told=refused.json)
        self._refused = None
        authorization_id, shown = parse_initial_response(token)
        try:
            said = self._validate(shown)
        except TokenRefused as error:
            self._refused = error
            self.claimed_name = error.claimed_name
            return error.json.encode()
        self.claimed_name = said.principal
        if authorization_id not in ("", said.principal):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id ({}) that is different from the token's "
                "principal name ({})",
                authorization_id,
                said.principal,
            )
        self.authorization_id, self.expires_at_ms = said
        self.is_complete = True
        return b""


def parse_initial_response(message: bytes) -> tuple[str, str]:
    """Return the authorization id, which may be empty, and the token of a client's first message. The extensions
    (KIP-342) are checked and forgotten. Raises SaslError, which does not quote the message.
    """
    found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found[2].split("\x01") if pair)
    if "auth" not in pairs:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"])
    if auth is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth[1].lower() != "bearer":
        raise SaslError("Invalid scheme in OAUTHBEARER client first message")
    return found[1] or "", auth[2]
