"""Tokens without a signature, for development: everybody can make one. Source:
``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredJws``, ``OAuthBearerValidationUtils``.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from oncelog.broker.security.sasl.oauthbearer import OAuthToken, TokenRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIX = "unsecuredValidator"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class UnsecuredTokens:
    """The validator. ``options`` are those of the JAAS text. Raises ValueError for an option that makes no sense."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._principal_claim = options.get(f"{_PREFIX}PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(f"{_PREFIX}ScopeClaimName", "").strip() or "scope"
        self._scopes = options.get(f"{_PREFIX}RequiredScope", "").split()
        self._skew_ms = _skew_ms(options.get(f"{_PREFIX}AllowableClockSkewMs", "").strip())
        self._now_ms = now_ms
        for scope in self._scopes:
            if _SCOPE.fullmatch(scope) is None:
                raise ValueError(f"Invalid scope value: {scope}")

    def __call__(self, token: str) -> OAuthToken:
        """Return the principal and the end of a token. Raises TokenRefused."""
        claims = _claims(token)
        scopes = _scopes(claims, self._scope_claim)
        expires = _number(claims, "exp")
        if expires is None:
            raise TokenRefused("No expiration time in JWT")
        principal = claims.get(self._principal_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise TokenRefused(f"No principal name in JWT claim: {self._principal_claim}")
        issued = _number(claims, "iat")
        now_ms = self._now_ms()
        if issued is not None and 1000 * issued > now_ms + self._skew_ms:
            raise TokenRefused("the token was issued in the future")
        if now_ms - self._skew_ms >= 1000 * expires:
            raise TokenRefused("the token has expired")
        if issued is not None and expires <= issued:
            raise TokenRefused("the token expires before it was issued")
        if not scopes.issuperset(self._scopes):
            raise TokenRefused(
                "the token lacks a scope", "insufficient_scope", f"[{', '.join(self._scopes)}]"
            )
        return OAuthToken(principal, round(1000 * expires))


def _skew_ms(text: str) -> int:
    option = f"{_PREFIX}AllowableClockSkewMs"
    try:
        skew_ms = int(text or 0)
    except ValueError:
        raise ValueError(f"{option}: expected a number of milliseconds") from None
    if skew_ms < 0:
        raise ValueError(f"{option}: Allowable clock skew millis must not be negative: {text}")
    return skew_ms


def _claims(token: str) -> dict[str, Any]:
    if ".." in token:
        raise TokenRefused("Malformed compact serialization contains '..'")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("a token has three parts, with dots between them")
    header, claims = _json(parts[0]), _json(parts[1])
    if header.get("alg") != "none":
        raise TokenRefused("Unsecured JWS must have 'none' for an algorithm")
    if parts[2]:
        raise TokenRefused("Unsecured JWS must not contain a digital signature")
    return claims


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("a part of the token is no JSON in Base64") from None
    return found if isinstance(found, dict) else {}


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"The '{name}' claim was not of type Number")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = float("inf")
    if not abs(seconds) < 2**53:
        raise TokenRefused(f"The '{name}' claim is out of range")
    return seconds


def _scopes(claims: Mapping[str, Any], name: str) -> set[str]:
    value = claims.get(name)
    if value is None:
        return set()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise TokenRefused(f"The '{name}' claim was not of type List")
    return {str(scope).strip() for scope in given} - {""}
