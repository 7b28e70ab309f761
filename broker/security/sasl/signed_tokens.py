"""Signed tokens (JWT), checked with the keys of their issuer (JWKS, RFC 7517).

Source: ``OAuthBearerValidatorCallbackHandler``, ``BrokerJwtValidator``, ``ClaimValidationUtils``; jose4j's
``JwtConsumer`` and ``VerificationJwkSelector``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jwt
from jwt.exceptions import InvalidKeyError, InvalidSignatureError, PyJWTError

from oncelog.broker.security.sasl.claims import (
    claimed_name,
    expired,
    json_part,
    missing,
    not_yet_valid,
    shown,
    time_text,
)
from oncelog.broker.security.sasl.oauthbearer import OAuthToken, TokenRefused

_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "HS": "oct", "Ed": "OKP"}
"""The type of key by the beginning of the algorithm's name."""
_KEY_IDS_SHOWN = 5
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
        try:
            return self._checked(token)
        except TokenRefused as refused:
            refused.claimed_name = claimed_name(token, self._rules.subject_claim)
            raise

    def _checked(self, token: str) -> OAuthToken:
        parts = token.split(".")
        if [bool(part) for part in parts] != [True] * 3:
            raise TokenRefused("the token is malformed: expected header.claims.signature")
        key, algorithm = self._key_of(json_part(parts[0], "header"))
        try:
            signed = jwt.PyJWS().decode(token, jwt.PyJWK(dict(key), algorithm=algorithm).key, [algorithm])
        except InvalidSignatureError:
            raise TokenRefused(f"the token's signature is not that of {_name_of(key)}") from None
        except (PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"the token cannot be checked: {error}") from None
        claims = _claims(signed)
        expires = self._check_times(claims)
        self._check_audience(claims.get("aud"))
        self._check_issuer(claims.get("iss"))
        _check_scopes(claims, self._rules.scope_claim)
        subject = claims.get(self._rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"the token has no subject: {self._rules.subject_claim} is {shown(subject)}")
        return OAuthToken(subject.strip(), int(1000 * expires))

    def _key_of(self, header: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        """Return the key that a token's header means, and the algorithm. Raises TokenRefused."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm[:2] not in _KEY_TYPES:
            raise TokenRefused(
                f"the token's algorithm is {shown(algorithm)}: this listener takes signed tokens"
            )
        keys = self._keys.keys()
        suitable = [key for key in keys if _is_for(key, algorithm)]
        for key in suitable:
            if key_id is None or key.get("kid") == key_id:
                return key, algorithm
        if isinstance(key_id, str):
            self._keys.missed(key_id)
        if key_id is not None and not any(key.get("kid") == key_id for key in keys):
            known = ", ".join(str(key.get("kid")) for key in keys[:_KEY_IDS_SHOWN])
            more = f" and {len(keys) - _KEY_IDS_SHOWN} more" if len(keys) > _KEY_IDS_SHOWN else ""
            raise TokenRefused(
                f"the token's key id is unknown: kid is {shown(key_id)}; there are {known}{more}"
            )
        meant = "none of the keys" if key_id is None else f"no key with the key id {shown(key_id)}"
        raise TokenRefused(f"the token's algorithm is {shown(algorithm)}: {meant} is for it")

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """Return when the token expires (seconds). Raises TokenRefused."""
        expires, issued, not_before = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None:
            raise missing("exp")
        if issued is None:
            raise missing("iat")
        now, skew_s = self._now_ms() // 1000, self._rules.skew_s
        if now - skew_s >= expires:
            raise expired(expires, skew_s)
        if not_before is not None and now + skew_s < not_before:
            raise not_yet_valid("nbf", not_before, skew_s)
        if expires < max(issued, not_before or 0) or expires < 0 or issued < 0:
            raise TokenRefused(
                f"the token ends before it begins: exp is {time_text(expires)}, iat {time_text(issued)}"
            )
        return expires

    def _check_audience(self, audience: object) -> None:
        """Raise TokenRefused for a token that is for others (jose4j: ``AudValidator``). A broker that expects no
        audience takes any (``BrokerJwtValidator``).
        """
        expected = self._rules.audiences
        if not expected:
            return
        given = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(one, str) for one in given) or set(expected).isdisjoint(given):
            wanted = ", ".join(expected)
            raise TokenRefused(
                f"the token is for another audience: aud is {shown(audience)}; expected {wanted} "
                "(sasl.oauthbearer.expected.audience)"
            )

    def _check_issuer(self, issuer: object) -> None:
        expected = self._rules.issuer
        if expected is not None and issuer != expected:
            raise TokenRefused(
                f"the token is of another issuer: iss is {shown(issuer)}; expected {expected} "
                "(sasl.oauthbearer.expected.issuer)"
            )


def _is_for(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether signatures by an algorithm may be of a key."""
    return (
        key.get("kty") == _KEY_TYPES[algorithm[:2]]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm not in _CURVES or key.get("crv") == _CURVES[algorithm])
    )


def _name_of(key: Mapping[str, Any]) -> str:
    return "the issuer's key" if key.get("kid") is None else f"key {key['kid']}"


def _claims(signed: bytes) -> dict[str, Any]:
    """Return the claims of a token whose signature is valid. Raises TokenRefused."""
    try:
        claims = json.loads(signed)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefused("the token is malformed: its claims are no JSON object")
    return claims


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRefused(f"the token's {name} is no time: {shown(value)}")
    return float(value)


def _check_scopes(claims: Mapping[str, Any], name: str) -> None:
    value = claims.get(name)
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [scope.strip() if isinstance(scope, str) else "" for scope in scopes]
    if not all(texts) or len(set(texts)) < len(texts):
        raise TokenRefused(f"the token's scopes must differ, and none may be empty: {name} is {shown(value)}")


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
