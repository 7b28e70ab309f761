"""A peer that resets its first connection, in the middle of the client's first message."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resetting_peer() -> Iterator[tuple[str, int]]:
    """Its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset() -> None:
            peer, _ = server.accept()
            peer.recv(1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()

        thread = threading.Thread(target=reset)
        thread.start()
        yield server.getsockname()
        thread.join()
