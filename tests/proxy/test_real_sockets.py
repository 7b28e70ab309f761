"""Random frames between real sockets through a proxy, with and without its shortcuts: they arrive as they were sent.

The cluster is a thread that answers each request with bytes which follow from the request, so that a client can tell
its own responses, all of them and in order.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

import pytest
import trio

from oncelog.broker.net.server import BoundListener
from oncelog.broker.proxy.proxy import open_proxy
from oncelog.broker.proxy.settings import ProxySettings
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.pipes import SocketPipes
from oncelog.broker.seams.reactor import SocketReactor
from oncelog.broker.seams.transport import SocketListener, connect
from oncelog.broker.security.listener import ListenerSecurity
from oncelog.broker.security.sasl.users import Users
from oncelog.wire.framing import FrameReader, encode_frame, encode_request
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from oncelog.wire.messages.offset_commit import OffsetCommitRequest
from tests.common.certificates import Authority
from tests.common.frames import receive_frame
from tests.harness.requests import produce_request
from tests.proxy.proxy_config import ProxyConfig

AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
LIMIT_S = 120
CLIENTS = 4
REQUESTS = 60
IN_FLIGHT = 8
SIZES = (0, 10, 300, 5_000, 70_000, 400_000)
"""Bytes of records in a request, or in a response: some are read at once, some in parts, some are spliced."""
API_VERSIONS_KEY, METADATA_KEY = 18, 3


def response_to(payload: bytes) -> bytes:
    """Return the response's payload: the correlation id, a checksum of the request, and bytes that follow from it."""
    checksum = zlib.crc32(payload)
    rng = random.Random(checksum)
    return payload[4:8] + struct.pack(">I", checksum) + rng.randbytes(rng.choice(SIZES))


class Cluster:
    """One node, with a thread for each connection. They end before the stack: the proxy must have ended then."""

    def __init__(self, stack: ExitStack, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)
        stack.callback(self._end)

    def _start(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def _end(self) -> None:
        """Later tests look at the threads and sockets of the process: none of these may go on, or end, meanwhile."""
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends the wait for connections
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._start(partial(self._serve, self._listener.accept()[0]))

    def _serve(self, sock: socket.socket) -> None:
        with (
            suppress(OSError),  # the proxy waits for no response at its end
            sock if self.tls is None else self.tls.wrap_socket(sock, server_side=True) as sock,
        ):
            while payload := receive_frame(sock):
                key = struct.unpack_from(">h", payload)[0]
                if key == API_VERSIONS_KEY:
                    keys = [ApiVersion(number, 0, 12) for number in (0, 1, 3, 8)] + [ApiVersion(18, 0, 4)]
                    response = payload[4:8] + ApiVersionsResponse(0, keys).encode(4)
                elif key == METADATA_KEY:
                    nodes = MetadataResponse(brokers=[MetadataResponseBroker(1, *self.address)])
                    response = payload[4:8] + b"\0" + nodes.encode(12)
                else:
                    response = response_to(payload)
                sock.sendall(encode_frame(b"", response))


def requests(rng: random.Random) -> list[bytes]:
    """Return frames whose responses pass unread."""
    frames = []
    for number in range(REQUESTS):
        kind = rng.randrange(3)
        if kind == 0:
            frames.append(encode_request(produce_request("t", rng.randbytes(rng.choice(SIZES))), 9, number))
        elif kind == 1:
            frames.append(encode_request(FetchRequest(), 12, number))
        else:
            frames.append(encode_request(OffsetCommitRequest(f"g{number}"), 8, number))
    return frames


async def converse(stream: trio.abc.Stream, seed: int) -> None:
    """Send requests in pieces, some in flight at once, and check the responses."""
    rng = random.Random(seed)
    frames = requests(rng)
    room = trio.Semaphore(IN_FLIGHT)

    async def send() -> None:
        for frame in frames:
            await room.acquire()
            position = 0
            while position < len(frame):
                size = rng.choice((1, 20, 1_000, 100_000, 10**6))
                await stream.send_all(frame[position : position + size])
                position += size

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        reader = FrameReader()
        for frame in frames:
            while (response := reader.next_frame()) is None:
                some = await stream.receive_some()
                assert some, "the proxy closed the connection"
                reader.feed(some)
            assert response == response_to(frame[4:])
            room.release()


async def run_client(address: tuple[str, int], seed: int, tls: ssl.SSLContext | None) -> None:
    """Connect, and `converse`."""
    stream = await trio.open_tcp_stream(*address)
    await converse(stream if tls is None else trio.SSLStream(stream, tls, server_hostname="localhost"), seed)


async def through_a_proxy(*, has_pipes: bool, has_reactor: bool, tls: str) -> None:
    def bind(main: BoundListener, node_id: int, port: int) -> BoundListener:
        listener = SocketListener.bind("127.0.0.1", 0, 50)
        return main._replace(listener=listener, port=listener.address[1], node_id=node_id)

    with ExitStack() as stack:
        cluster = Cluster(stack, SERVER.server_context() if tls in ("upstream", "both") else None)
        protocol = "SSL" if tls in ("clients", "both") else "PLAINTEXT"
        config = ProxyConfig(
            {
                "listeners": f"{protocol}://127.0.0.1:0",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": SERVER.key.decode(),
                "ssl.keystore.certificate.chain": SERVER.chain.decode(),
            }
        )
        listener = SocketListener.bind("127.0.0.1", 0, 50)
        security = None if protocol == "PLAINTEXT" else ListenerSecurity(protocol, protocol, config)
        bound = BoundListener(protocol, listener, *listener.address, protocol, security)
        trusting = None if security is None else ssl.create_default_context(cadata=AUTHORITY.pem.decode())
        logins = UpstreamLogins(
            {
                "security.protocol": "PLAINTEXT" if cluster.tls is None else "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": AUTHORITY.pem.decode(),
            }
        )
        opened = open_proxy(
            ProxySettings(config, [], [cluster.address], None, Users({}), logins),
            [bound],
            connect=connect,
            bind_node=bind,
            files=MemoryFileSystem(),
            clock=SystemClock(),
            rng=random.Random(1),
            pipes=SocketPipes() if has_pipes else None,
            reactor=SocketReactor() if has_reactor else None,
        )
        with opened as proxy:
            proxy.host.fail_on_internal_errors = True
            async with trio.open_nursery() as nursery:
                await nursery.start(proxy.run)
                node = next(one for one in proxy.server.listeners if one.node_id == 1)
                async with trio.open_nursery() as clients:
                    for seed in range(CLIENTS):
                        clients.start_soon(run_client, node.listener.address, seed, trusting)
                nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("has_reactor", [False, True])
@pytest.mark.parametrize(
    ("has_pipes", "tls"), [(False, ""), (True, ""), (True, "upstream"), (True, "clients"), (True, "both")]
)
def test_frames_arrive_as_they_were_sent(has_reactor: bool, has_pipes: bool, tls: str) -> None:
    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            await through_a_proxy(has_pipes=has_pipes, has_reactor=has_reactor, tls=tls)

    trio.run(main)
