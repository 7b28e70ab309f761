"""The client's side of each SASL mechanism: challenges in, tokens out. Pure.

Source: ``PlainSaslClient``, ``ScramSaslClient``, ``OAuthBearerSaslClient``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from oncelog.broker.credentials.scram import TOKEN_AUTH, ScramMechanism, keyed_hash

ITERATIONS_MAX = 1_000_000
"""Of SCRAM: a broker that asks for more would only keep this process busy. Kafka's stores at most 16384."""

_CHANNEL = "n,,"
"""SCRAM's header: no channel binding, no other user."""
_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+=*),i=([1-9][0-9]{0,9})(?:,.*)?")
_FINAL = re.compile(r"(?:e=([^,]+)|v=([A-Za-z0-9+/]+=*))(?:,.*)?")
_AFTER_ERROR = b"\x01"


class ChallengeRefused(Exception):  # noqa: N818 - what this side does
    """The broker's message makes no sense, or does not prove that the broker knows the password."""


class SaslClient(Protocol):
    """One log-in by one mechanism (Java: ``javax.security.sasl.SaslClient``)."""

    def first(self) -> bytes:
        """Return the first token."""

    def following(self, challenge: bytes) -> bytes | None:
        """Return the token after this response, None after the last one. Raises ChallengeRefused."""


class PlainClient:
    """PLAIN. See `SaslClient`."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """See `SaslClient`."""
        return self._token

    def following(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`."""
        return None


class ScramClient:
    """SCRAM. See `SaslClient`.

    ``salted``: hashes the password with salt and iterations. With ``is_token`` the user is a delegation token's id.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        salted: Callable[[bytes, int], bytes],
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._salted = salted
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (f",{TOKEN_AUTH}=true" if is_token else "")
        self._signature: bytes | None = None
        """The broker's last message must have it."""

    def first(self) -> bytes:
        """See `SaslClient`."""
        return f"{_CHANNEL}{self._bare}".encode()

    def following(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`."""
        text = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._final(text).encode()
        found = _FINAL.fullmatch(text)
        if found is None or found[1] is not None:
            raise ChallengeRefused(
                f"{self._mechanism.name}: {text[:80] if found else 'malformed last message'}"
            )
        if not hmac.compare_digest(base64.b64decode(found[2] + "==="), self._signature):
            raise ChallengeRefused(f"{self._mechanism.name}: the broker does not know the password")
        return None

    def _final(self, challenge: str) -> str:
        mechanism = self._mechanism
        found = _FIRST.fullmatch(challenge)
        if found is None or not found[1].startswith(self._nonce):
            raise ChallengeRefused(f"{mechanism.name}: malformed first message")
        iterations = int(found[3])
        if not mechanism.iterations_min <= iterations <= ITERATIONS_MAX:
            raise ChallengeRefused(
                f"{mechanism.name}: {iterations} iterations; expected {mechanism.iterations_min} to {ITERATIONS_MAX}"
            )
        salted = self._salted(base64.b64decode(found[2] + "==="), iterations)
        without_proof = f"c={base64.b64encode(_CHANNEL.encode()).decode()},r={found[1]}"
        proven = f"{self._bare},{challenge},{without_proof}".encode()
        client_key = keyed_hash(mechanism, salted, b"Client Key")
        stored_key = hashlib.new(mechanism.hash, client_key).digest()
        signature = keyed_hash(mechanism, stored_key, proven)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = keyed_hash(mechanism, keyed_hash(mechanism, salted, b"Server Key"), proven)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"


class OAuthBearerClient:
    """OAUTHBEARER. See `SaslClient`."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._token = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def first(self) -> bytes:
        """See `SaslClient`."""
        return self._token

    def following(self, challenge: bytes) -> bytes | None:
        """See `SaslClient`. To a refusal this replies that it was read; the broker's next response is the error."""
        return _AFTER_ERROR if challenge else None
