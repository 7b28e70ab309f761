"""A blocking client that sends what a test tells it to, right or wrong, and shows what came back."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from compat_tests.definitions import Fields, api_key, decode, encode, is_flexible

ANSWER_TIMEOUT_S = 20
CLOSED = "closed"


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


class Connection:
    """One TCP connection to a broker."""

    def __init__(self, bootstrap: str, client_id: str | None = "frames") -> None:
        self.socket = socket.create_connection(address(bootstrap), timeout=ANSWER_TIMEOUT_S)
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
        """A request header v2 (v1 where not flexible) with the next correlation id."""
        self._correlation_id += 1
        text = None if self._client_id is None else self._client_id.encode()
        head = struct.pack(">hhih", key, version, self._correlation_id, -1 if text is None else len(text))
        return head + (text or b"") + (b"\0" if flexible else b"")

    def send_frame(self, payload: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes | None:
        """The next answer without its size; None where the broker closed. Raises TimeoutError."""
        try:
            head = self._receive(4)
            return None if head is None else self._receive(struct.unpack(">i", head)[0])
        except ConnectionError:
            return None

    def _receive(self, size: int) -> bytes | None:
        got = bytearray()
        while len(got) < size:
            some = self.socket.recv(min(size - len(got), 1 << 20))
            if not some:
                assert not got, f"closed after {len(got)} of {size} bytes"
                return None
            got += some
        return bytes(got)

    def send(self, api: str, version: int, values: Fields) -> int:
        """Send a request; its correlation id."""
        body = encode(f"{api}Request", version, values)
        self.send_frame(self.header(api_key(api), version, flexible=is_flexible(api, version)) + body)
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Fields | str:
        """The answer to the oldest unanswered request, or CLOSED."""
        frame = self.receive_frame()
        if frame is None:
            return CLOSED
        assert struct.unpack_from(">i", frame) == (correlation_id,)
        tagged = (
            is_flexible(api, version) and api != "ApiVersions"
        )  # whose answer never has a flexible header
        assert not tagged or frame[4] == 0, "tags in a response header"
        return decode(f"{api}Response", version, frame[5 if tagged else 4 :])

    def call(self, api: str, version: int, values: Fields | None = None) -> Any:
        """Send and receive; CLOSED where the broker closed the connection instead of answering."""
        return self.receive(api, version, self.send(api, version, values or {}))
