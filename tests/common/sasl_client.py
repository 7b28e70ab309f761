"""A blocking client that logs in by SASL and sends any request: for what no stock client does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from functools import lru_cache
from types import TracebackType
from typing import Self, TypeVar

from oncelog.wire.framing import FrameReader, decode_response, encode_frame, encode_request
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.wire.schema import Message, Request

ResponseT = TypeVar("ResponseT", bound=Message, covariant=True)
TIMEOUT_S = 60
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Closed(Exception):  # noqa: N818 - what a test looks for
    """The broker has closed the connection."""


class LoginFailed(Exception):  # noqa: N818 - what a test looks for
    """The broker has refused the log-in, with this error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class SaslClient:
    """A connection to ``bootstrap`` (``HOST:PORT``), over TLS if there is a context for it."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        if tls is not None:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._frames = FrameReader()
        self.lifetime_ms = 0
        """What the broker has said of the session's length."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def receive(self) -> bytes:
        """The next frame without its size. Raises Closed."""
        try:
            while missing := self._frames.missing():
                some = self.socket.recv(missing)
                if not some:
                    raise Closed
                self._frames.feed(some)
        except ConnectionError:
            raise Closed from None
        frame = self._frames.next_frame()
        assert frame is not None
        return bytes(frame)

    def call(self, request: Request[ResponseT], version: int) -> ResponseT:
        """The response to a request. Raises Closed."""
        try:
            self.socket.sendall(encode_request(request, version, 5, "sasl"))
        except ConnectionError:
            raise Closed from None
        return decode_response(type(request), version, self.receive())[1]

    def bare(self, token: bytes) -> bytes:
        """The answer to a token without a header (after SaslHandshake v0). Raises Closed."""
        self.socket.sendall(encode_frame(token))
        return self.receive()

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        """The response to a SaslHandshake. Raises Closed."""
        return self.call(SaslHandshakeRequest(mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> bytes:
        """The answer to a token. Raises LoginFailed, Closed."""
        response: SaslAuthenticateResponse = self.call(SaslAuthenticateRequest(token), version)
        if response.error_code:
            raise LoginFailed(response.error_code, response.error_message)
        self.lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    def log_in(self, mechanism: str, name: str, password: str, extensions: str = "") -> None:
        """Log in by PLAIN, SCRAM or OAUTHBEARER (where ``password`` is the token). Raises LoginFailed, Closed."""
        self.handshake(mechanism)
        if mechanism == "PLAIN":
            self.authenticate(f"\0{name}\0{password}".encode())
        elif mechanism == "OAUTHBEARER":
            answer = self.authenticate(f"n,,\1auth=Bearer {password}\1\1".encode())
            if answer:
                self.authenticate(b"\1")
        else:
            first = ScramClient(mechanism, name, password, extensions)
            final = first.final(self.authenticate(first.first()))
            assert first.is_server(self.authenticate(final))


@lru_cache
def _salted(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


class ScramClient:
    """The client's side of SCRAM."""

    def __init__(self, mechanism: str, name: str, password: str, extensions: str = "") -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={secrets.token_hex(12)}{extensions}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The second message, after the server's."""
        fields = dict(field.split("=", 1) for field in answer.decode().split(","))
        salted = _salted(self._hash, self._password, base64.b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        messages = f"{self._bare},{answer.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, messages, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), messages, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_server(self, answer: bytes) -> bool:
        """Whether the server's last message proves that it knows the password, too."""
        return base64.b64decode(answer.removeprefix(b"v=")) == self._signature


def frame_of(request: Message, version: int) -> bytes:
    """A request's frame without its size."""
    return encode_request(request, version, 1, "fuzz")[struct.calcsize(">i") :]
