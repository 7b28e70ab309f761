"""The claims of a token (JWT, RFC 7519), as both validators of OAUTHBEARER read them and speak of them. Pure."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

from oncelog.broker.security.sasl.oauthbearer import TokenRefused

SHOWN_CHARS_MAX = 100
"""A reason shows so much of what a token says."""


def json_part(part: str, name: str) -> dict[str, Any]:
    """Return the JSON object in a part of a token, its ``header`` or ``claims``; empty for JSON of another type.
    Raises TokenRefused.
    """
    try:
        found = json.loads(b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused(f"the token is malformed: its {name} part is no JSON in Base64") from None
    return found if isinstance(found, dict) else {}


def claimed_name(token: str, claim: str) -> str:
    """Return the principal that a token claims, whether or not it is valid; empty if none can be read."""
    try:
        name = json_part(token.split(".")[1], "claims").get(claim)
    except (IndexError, TokenRefused):
        return ""
    return name.strip() if isinstance(name, str) else ""


def shown(value: object) -> str:
    """Return a value from a token as JSON, shortened."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def time_text(seconds: float) -> str:
    """Return a time in a token (seconds) in the form of the log's timestamps; the number, if no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def expired(expires: float, skew_s: float) -> TokenRefused:
    """Return the refusal of a token whose time ``exp`` is over."""
    return TokenRefused(f"the token has expired: exp is {time_text(expires)}{_skew(skew_s)}")


def not_yet_valid(claim: str, seconds: float, skew_s: float) -> TokenRefused:
    """Return the refusal of a token whose time ``nbf`` or ``iat`` is to come."""
    return TokenRefused(f"the token is not yet valid: {claim} is {time_text(seconds)}{_skew(skew_s)}")


def missing(claim: str) -> TokenRefused:
    """Return the refusal of a token that lacks a claim."""
    return TokenRefused(f"the token has no {claim}")


def _skew(seconds: float) -> str:
    return f" (clocks may differ by {seconds:g} s)" if seconds else ""
