"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, KIP-84), also with a delegation token in place of a user (KIP-48).

Source: ``ScramSaslServer``, ``ScramMessages``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from oncelog.broker.credentials.scram import TOKEN_AUTH, ScramCredential, ScramMechanism, keyed_hash
from oncelog.broker.security.sasl.mechanism import SaslAuthenticationError, SaslError

MESSAGE_BYTES_MAX = 16 * 1024
"""Bytes of a message of the client: its name, a nonce, extensions, a proof. Kafka has no such limit."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token, with the token's owner and end (wall time, ms)."""

    credential: ScramCredential
    owner: str
    expires_at_ms: int


_SAFE = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]"  # neither , nor =
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = rf"(?:{_SAFE}|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,((?:m={_VALUE},)?n=({_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))")
_FINAL = re.compile(rf"(c=({_BASE64}),r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})")


class ScramServer:
    """See `SaslServer`.

    ``credential_of`` returns a user's credential, ``token_of`` a token's by its id, or None. ``new_nonce`` returns
    printable text without commas that nobody can guess.
    """

    refusal = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential | None],
        token_of: Callable[[str], TokenCredential | None],
        new_nonce: Callable[[], str],
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._new_nonce = new_nonce
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._messages = ""
        """The client's first message, bare, and the server's, as the proof covers them."""
        self._name = ""
        self._has_failed = False
        self.is_complete = False
        self.authorization_id = ""
        self.claimed_name = ""
        self.expires_at_ms: int | None = None
        self.is_token_authenticated = False

    def evaluate(self, token: bytes) -> bytes:
        """See `SaslServer`."""
        if self.is_complete or self._has_failed:
            raise SaslError("a token after the end")
        try:
            if len(token) > MESSAGE_BYTES_MAX:
                raise SaslError(f"a SCRAM message of {len(token)} bytes; the limit is {MESSAGE_BYTES_MAX}")
            text = token.decode("utf-8", "replace")
            return (
                self._first(text) if self._credential is None else self._final(text, self._credential)
            ).encode()
        except SaslError:
            self._has_failed = True
            raise

    def _first(self, text: str) -> str:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise SaslError("Invalid SCRAM client first message format")
        authorization_id, bare, name, client_nonce, extensions = found.groups()
        name = self.claimed_name = _user_name(name)
        self._find_credential(name, _extensions(extensions))
        if authorization_id and authorization_id != name:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        assert self._credential is not None
        if self._credential.iterations < self._mechanism.iterations_min:
            raise SaslError(
                "Iterations {} is less than the minimum {} for {}",
                self._credential.iterations,
                self._mechanism.iterations_min,
                self._mechanism.name,
            )
        self._nonce = client_nonce + self._new_nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{bare},{answer}"
        return answer

    def _find_credential(self, name: str, extensions: dict[str, str]) -> None:
        if extensions.get(TOKEN_AUTH, "").lower() == "true":
            token = self._token_of(name)
            if token is None:
                raise SaslError("Token Authentication failed: Invalid tokenId : {}", name)
            self._credential, self._name, self.expires_at_ms = token
            self.is_token_authenticated = True
        else:
            self._credential, self._name = self._credential_of(name), name
            if self._credential is None:
                raise SaslError("Authentication failed: Invalid user credentials")

    def _final(self, text: str, credential: ScramCredential) -> str:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise SaslError("Invalid SCRAM client final message format")
        without_proof, _, nonce, proof = found.groups()
        if nonce != self._nonce:
            raise SaslError("Invalid client nonce in the final client message.")
        proven = f"{self._messages},{without_proof}".encode()
        signature = keyed_hash(self._mechanism, credential.stored_key, proven)
        shown = base64.b64decode(proof)
        if len(shown) != len(signature):
            raise SaslError("Invalid client credentials")
        client_key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise SaslError("Invalid client credentials")
        self.authorization_id = self._name
        self.is_complete = True
        server_signature = keyed_hash(self._mechanism, credential.server_key, proven)
        return f"v={base64.b64encode(server_signature).decode()}"


def _user_name(sasl_name: str) -> str:
    """Return a name without its escapes. Raises SaslError."""
    name = sasl_name.replace("=2C", ",")
    if name.replace("=3D", "").find("=") >= 0:
        raise SaslError("Invalid username")
    return name.replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {key: value for key, _, value in pairs}
