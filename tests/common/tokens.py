"""Tokens for tests: unsecured, and signed by an issuer with a key of its own."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key

from tests.common.threads import join


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
        """Return a token with these claims, and in its header the key id unless `header` changes it (None: none)."""
        fields = {"kid": self.key_id, **header}
        shown = {name: value for name, value in fields.items() if value is not None}
        return jwt.encode(claims, self._key, "ES256", headers=shown)


def key_set(*issuers: Issuer) -> bytes:
    """Return the JWKS document with the keys of the issuers."""
    return json.dumps({"keys": [issuer.public_key for issuer in issuers]}).encode()


class Served:
    """What the server of keys serves. ``read`` is released by every request for it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.url = ""
        self.read = threading.Semaphore(0)


@contextmanager
def serve_keys(content: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Serve a JWKS document at ``url``, until the end of the context; with ``tls`` by https."""
    served = Served(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(served.content)))
            self.end_headers()
            self.wfile.write(served.content)
            served.read.release()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        served.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/keys"
        try:
            yield served
        finally:
            server.shutdown()
            join(thread)
