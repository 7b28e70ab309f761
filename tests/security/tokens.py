"""Tokens for tests: unsecured, and signed by an issuer with a key of its own."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key


def unsecured(claims: object, header: object = None, signature: str = "") -> str:
    """Return a token with these claims and the algorithm none."""
    parts = [{"alg": "none"} if header is None else header, claims]
    return ".".join([*(_base64(json.dumps(part).encode()) for part in parts), signature])


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


class Issuer:
    """Signs tokens by ES256 with a new key."""

    def __init__(self, key_id: str = "key-1") -> None:
        self.key_id = key_id
        self._key = new_ec_key(SECP256R1())

    @property
    def public_key(self) -> dict[str, Any]:
        """The public key (JWK)."""
        key = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {**key, "kid": self.key_id, "alg": "ES256", "use": "sig"}

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        """Return a token with these claims."""
        return jwt.encode(claims, self._key, "ES256", headers={"kid": self.key_id, **header})


def key_set(*issuers: Issuer) -> bytes:
    """Return the JWKS document with the keys of the issuers."""
    return json.dumps({"keys": [issuer.public_key for issuer in issuers]}).encode()
