"""A blocking client that sends any request, valid or not, and returns the response as it came."""

import socket
from types import TracebackType
from typing import Any, Self

from oncelog.wire.framing import FrameReader, encode_frame
from oncelog.wire.header import encode_request_header, has_tagged_response_header, read_response_header
from tests.common.definitions import Fields, api_key, decode, encode, is_flexible

RESPONSE_TIMEOUT_S = 60
CLOSED = "closed"


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def receive_frame(sock: socket.socket) -> bytes | None:
    """The next frame without its size; None if the peer closed the connection. Raises TimeoutError.

    It reads not a byte more: a test may read from the socket itself.
    """
    frames = FrameReader()
    try:
        while missing := frames.missing():
            some = sock.recv(min(missing, 1 << 20))
            if not some:
                assert not len(frames), f"the connection closed {missing} bytes before a frame's end"
                return None
            frames.feed(some)
    except ConnectionError:
        return None
    return frames.next_frame()


class Connection:
    """One TCP connection to a broker, from the address `source` if that is given."""

    def __init__(self, bootstrap: str, client_id: str | None = "frames", source: str | None = None) -> None:
        self.socket = socket.create_connection(
            address(bootstrap),
            timeout=RESPONSE_TIMEOUT_S,
            source_address=None if source is None else (source, 0),
        )
        self._client_id = client_id
        self._correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def header(self, key: int, version: int, *, flexible: bool) -> bytes:
        """A request header with the next correlation id: version 2, or 1 if not `flexible`."""
        self._correlation_id += 1
        return encode_request_header(key, version, self._correlation_id, self._client_id, flexible)

    def send_frame(self, payload: bytes) -> None:
        self.socket.sendall(encode_frame(payload))

    def receive_frame(self) -> bytes | None:
        """The next response without its size; None if the broker closed the connection. Raises TimeoutError."""
        return receive_frame(self.socket)

    def send(self, api: str, version: int, values: Fields) -> int:
        """Send a request; returns its correlation id."""
        body = encode(f"{api}Request", version, values)
        self.send_frame(self.header(api_key(api), version, flexible=is_flexible(api, version)) + body)
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Fields | str:
        """The response to the oldest request without one; CLOSED if the broker closed the connection."""
        frame = self.receive_frame()
        if frame is None:
            return CLOSED
        tagged = has_tagged_response_header(api_key(api), is_flexible(api, version))
        found, size = read_response_header(frame, tagged)
        assert found == correlation_id
        assert size == 4 + tagged, "a response header with tagged fields"
        fields = decode(f"{api}Response", version, frame[size:])
        # No other bytes have these fields: who compares fields compares bytes.
        assert encode(f"{api}Response", version, fields) == frame[size:], (
            f"{api} v{version}: {frame[size:]!r}"
        )
        return fields

    def call(self, api: str, version: int, values: Fields | None = None) -> Any:
        """Send a request and receive its response; CLOSED if the broker closed the connection instead."""
        return self.receive(api, version, self.send(api, version, values or {}))

    def log_in(self, user: str, password: str) -> None:
        """Log in by PLAIN."""
        shown = f"\0{user}\0{password}".encode()
        for api, version, values in (
            ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
            ("SaslAuthenticate", 2, {"auth_bytes": shown}),
        ):
            response = self.call(api, version, values)
            assert response != CLOSED, api
            assert response["error_code"] == 0, response
