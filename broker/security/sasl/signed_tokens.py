"""Signed tokens (JWT), checked with the keys of their issuer (JWKS, RFC 7517).

Source: ``OAuthBearerValidatorCallbackHandler``, ``BrokerJwtValidator``, ``ClaimValidationUtils``; jose4j's
``JwtConsumer`` and ``VerificationJwkSelector``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jwt
from jwt.exceptions import InvalidKeyError, PyJWTError

from oncelog.broker.security.sasl.oauthbearer import OAuthToken, TokenRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "HS": "oct", "Ed": "OKP"}
"""The type of key by the beginning of the algorithm's name."""
_CURVES = {"ES256": "P-256", "ES256K": "secp256k1", "ES384": "P-384", "ES512": "P-521"}


class KeySet(Protocol):
    """The keys of an issuer."""

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """Return the keys as they are known now (JWK). Raises TokenRefused if they cannot be read."""
        ...

    def missed(self, key_id: str) -> None:
        """Note an unknown key that a token names: the issuer may have made it since."""
        ...


class TokenRules(NamedTuple):
    """The claims that a token must have (``sasl.oauthbearer.…``)."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class SignedTokens:
    """The validator. The times in a token are compared with ``now_ms`` (wall time of the broker)."""

    def __init__(self, keys: KeySet, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms

    def __call__(self, token: str) -> OAuthToken:
        """Return the principal and the end of a token. Raises TokenRefused."""
        if [bool(part) for part in token.split(".")] != [True] * 3:
            raise TokenRefused(
                "Malformed JWT provided; expected three sections (header, payload, and signature)"
            )
        try:
            claims = self._verified(token)
        except (PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"Could not validate the access token: {error}") from None
        expires = self._check_times(claims)
        _check_scopes(claims, self._rules.scope_claim)
        subject = claims.get(self._rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"{self._rules.subject_claim} value must be non-empty text")
        return OAuthToken(subject.strip(), int(1000 * expires))

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims of a token with a valid signature."""
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm[:2] not in _KEY_TYPES:
            raise TokenRefused(f"the token's algorithm is {algorithm}")
        key = _select(self._keys.keys(), algorithm, key_id)
        if key is None:
            if isinstance(key_id, str):
                self._keys.missed(key_id)
            raise TokenRefused("there is no suitable key to verify the token")
        claims: dict[str, Any] = jwt.decode(
            token,
            jwt.PyJWK(dict(key), algorithm=algorithm).key,
            algorithms=[algorithm],
            audience=list(self._rules.audiences) or None,
            issuer=self._rules.issuer,
            options={
                "require": ["exp", "iat"],
                # By the broker's clock, below.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return when the token expires (seconds). Raises TokenRefused."""
        expires, issued, not_before = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        assert expires is not None
        now = self._now_ms() // 1000
        if now - self._rules.skew_s >= expires:
            raise TokenRefused("The JWT is no longer valid: it has expired")
        if not_before is not None and now + self._rules.skew_s < not_before:
            raise TokenRefused("The JWT is not yet valid")
        if expires < max(issued or 0, not_before or 0) or expires < 0 or (issued or 0) < 0:
            raise TokenRefused("The JWT ends before it begins")
        return expires


def _select(keys: Sequence[Mapping[str, Any]], algorithm: str, key_id: object) -> Mapping[str, Any] | None:
    """Return the key that the header of a token means, or None."""
    key_type = _KEY_TYPES[algorithm[:2]]
    found = [
        key
        for key in keys
        if key.get("kty") == key_type
        and (key_id is None or key.get("kid") == key_id)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm not in _CURVES or key.get("crv") == _CURVES[algorithm])
    ]
    return found[0] if found else None


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRefused(f"Could not extract the '{name}' claim from the access token")
    return float(value)


def _check_scopes(claims: Mapping[str, Any], name: str) -> None:
    value = claims.get(name)
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [scope.strip() if isinstance(scope, str) else "" for scope in scopes]
    if not all(texts) or len(set(texts)) < len(texts):
        raise TokenRefused(f"{name} value must have scopes that differ, and are not empty")


def parse_keys(content: bytes) -> list[dict[str, Any]]:
    """Return the keys of a JWKS document. Raises ValueError."""
    try:
        found = json.loads(content)
        keys = [key for key in found["keys"] if isinstance(key, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is no JSON Web Key Set") from None
    for key in keys:
        try:
            jwt.PyJWK(dict(key), algorithm=key.get("alg") or _any_algorithm(key))
        except (InvalidKeyError, PyJWTError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"key {key.get('kid')}: {error}") from None
    return keys


def _any_algorithm(key: Mapping[str, Any]) -> str:
    if key.get("kty") == "EC":
        return next((name for name, curve in _CURVES.items() if curve == key.get("crv")), "ES256")
    return {"RSA": "RS256", "oct": "HS256", "OKP": "EdDSA"}.get(str(key.get("kty")), "")
