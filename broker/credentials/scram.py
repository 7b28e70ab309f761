"""SCRAM's mechanisms and the arithmetic of its keys, for both ends of a log-in (RFC 5802).

Source: ``ScramFormatter``, ``ScramMechanism``.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple


class ScramMechanism(NamedTuple):
    """One hash. ``number`` is the one that the protocol has for it (``UserScramCredentialRecord``)."""

    name: str
    number: int
    hash: str
    iterations_min: int
    iterations_max: int


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 4096, 16384)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 4096, 16384)
SCRAM_MECHANISMS = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}

TOKEN_AUTH = "tokenauth"
"""The extension by which a client says that its name is a token's id."""


class ScramCredential(NamedTuple):
    """The broker's credential for a password: salt, iterations and keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_credential(
    mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password (KIP-554: clients send it so)."""
    client_key = keyed_hash(mechanism, salted_password, b"Client Key")
    return ScramCredential(
        salt,
        hashlib.new(mechanism.hash, client_key).digest(),
        keyed_hash(mechanism, salted_password, b"Server Key"),
        iterations,
    )


def credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password."""
    return salted_credential(
        mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations
    )


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return a password as both ends hash it. It takes milliseconds, as it is meant to."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def keyed_hash(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """Return the HMAC of a message."""
    return hmac.digest(key, message, mechanism.hash)
