"""Tokens without a signature, for development: everybody can make one. Source:
``OAuthBearerUnsecuredValidatorCallbackHandler``, ``OAuthBearerUnsecuredJws``, ``OAuthBearerValidationUtils``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from oncelog.broker.security.sasl.claims import (
    claimed_name,
    expired,
    json_part,
    missing,
    not_yet_valid,
    shown,
)
from oncelog.broker.security.sasl.oauthbearer import OAuthToken, TokenRefused

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
        try:
            return self._checked(token)
        except TokenRefused as refused:
            refused.claimed_name = claimed_name(token, self._principal_claim)
            raise

    def _checked(self, token: str) -> OAuthToken:
        claims = _claims(token)
        scopes = _scopes(claims, self._scope_claim)
        expires = _number(claims, "exp")
        if expires is None:
            raise missing("exp")
        principal = claims.get(self._principal_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise TokenRefused(f"the token has no principal: {self._principal_claim} is {shown(principal)}")
        issued = _number(claims, "iat")
        now_ms = self._now_ms()
        if issued is not None and 1000 * issued > now_ms + self._skew_ms:
            raise not_yet_valid("iat", issued, self._skew_ms / 1000)
        if now_ms - self._skew_ms >= 1000 * expires:
            raise expired(expires, self._skew_ms / 1000)
        if issued is not None and expires <= issued:
            raise TokenRefused("the token expires before it was issued")
        if not scopes.issuperset(self._scopes):
            lacking = ", ".join(scope for scope in self._scopes if scope not in scopes)
            raise TokenRefused(
                f"the token lacks the scope {lacking}",
                "insufficient_scope",
                f"[{', '.join(self._scopes)}]",
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
    parts = token.split(".")
    if ".." in token or len(parts) != 3:
        raise TokenRefused("the token is malformed: expected header.claims. with nothing after the last dot")
    header, claims = json_part(parts[0], "header"), json_part(parts[1], "claims")
    if header.get("alg") != "none":
        raise TokenRefused(
            f"the token's algorithm is {shown(header.get('alg'))}: this listener takes unsigned tokens only, of the "
            'algorithm "none"'
        )
    if parts[2]:
        raise TokenRefused("the token has a signature, and its algorithm is none")
    return claims


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token's {name} is no number: {shown(value)}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = float("inf")
    if not abs(seconds) < 2**53:
        raise TokenRefused(f"the token's {name} is out of range")
    return seconds


def _scopes(claims: Mapping[str, Any], name: str) -> set[str]:
    value = claims.get(name)
    if value is None:
        return set()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise TokenRefused(f"the token's {name} is no text and no list: {shown(value)}")
    return {str(scope).strip() for scope in given} - {""}
