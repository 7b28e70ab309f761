"""Connections opened through the transport seam: over TCP, and over the simulated network in its place."""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.seams.transport import (
    WOULD_BLOCK,
    Connect,
    SocketListener,
    SocketTransport,
    Transport,
    connect,
)
from tests.common.process import free_ports
from tests.harness.sim_network import MemoryListener, MemoryNetwork

ListenerConfig = SocketListener | MemoryListener


async def accepted(listener: ListenerConfig) -> Transport:
    while (transport := listener.accept()) is None:
        await listener.wait_for_connection()
    return transport


async def received(transport: Transport, size: int) -> bytes:
    buffer, found = memoryview(bytearray(100)), b""
    while len(found) < size:
        count = transport.receive_into(buffer)
        if count == WOULD_BLOCK:
            await transport.wait_readable()
        elif count == 0:
            break
        else:
            found += buffer[:count]
    return found


async def both_ways(listener: ListenerConfig, open_transport: Connect) -> None:
    ours = await open_transport(*listener.address)
    theirs = await accepted(listener)
    assert ours.peer == f"{listener.address[0]}:{listener.address[1]}"
    for one, other in ((ours, theirs), (theirs, ours)):
        assert one.receive_into(memoryview(bytearray(10))) == WOULD_BLOCK
        assert other.send(b"hello") == 5
        assert await received(one, 5) == b"hello"
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await theirs.wait_readable()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        theirs.close()
    assert await received(ours, 1) == b""
    ours.close()
    ours.close()


async def refused(listener: ListenerConfig, open_transport: Connect) -> None:
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await open_transport(*listener.address)


@pytest.mark.parametrize("check", [both_ways, refused], ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["tcp", "simulated"])
def test_opening_a_connection(kind: str, check: Callable[[ListenerConfig, Connect], Awaitable[None]]) -> None:
    async def main() -> None:
        if kind == "tcp":
            listener = SocketListener.bind("127.0.0.1", free_ports(1)[0], 10)
            try:
                await check(listener, connect)
            finally:
                listener.close()
        else:
            network = MemoryNetwork()
            await check(network.listen("here", 1), network.connect)

    trio.run(main)


def test_a_host_that_does_not_exist() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"\w"):
            await connect("nowhere.invalid", 9092)

    trio.run(main)


def test_the_first_address_that_accepts() -> None:
    """A host has several addresses: those that refuse are passed over."""

    class Names(trio.abc.HostnameResolver):
        async def getaddrinfo(
            self, host: object, port: object, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
        ) -> Any:
            assert isinstance(port, int)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
                for address in ("127.0.0.2", "127.0.0.1")
            ]

        async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
            raise NotImplementedError

    async def main() -> None:
        trio.socket.set_custom_hostname_resolver(Names())
        listener = SocketListener.bind("127.0.0.1", free_ports(1)[0], 10)
        transport = await connect("host.with.two.addresses", listener.address[1])
        assert transport.peer == f"127.0.0.1:{listener.address[1]}"
        transport.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await connect("host.with.two.addresses", listener.address[1])

    trio.run(main)


def test_a_cancelled_connect_leaves_no_socket_behind() -> None:
    """The listen queue is full, so that connecting blocks. pytest fails if a socket is left to the collector."""

    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            opened: list[SocketTransport] = []
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:

                async def fill() -> None:
                    with scope:
                        while True:
                            opened.append(await connect(*full.getsockname()))

                nursery.start_soon(fill)
                with trio.move_on_after(5):
                    await trio.testing.wait_all_tasks_blocked(0.05)
                scope.cancel()
            assert scope.cancelled_caught
            for one in opened:
                one.close()

    trio.run(main)


def test_a_listener_without_a_host_is_on_every_address_of_both_families() -> None:
    async def main() -> None:
        listener = SocketListener.bind("", 0, 10)
        host, port = listener.address
        assert host == "0.0.0.0"
        for address in ("127.0.0.1", "::1"):
            ours = await connect(address, port)
            theirs = await accepted(listener)
            assert theirs.peer.rpartition(":")[0] == address, "rights of a host are for its address"
            ours.close()
            theirs.close()
        listener.close()

    trio.run(main)


def test_a_name_with_several_addresses_is_its_first_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java chooses, whatever stands first in the machine's list of hosts."""
    kind = (socket.SOCK_STREAM, 6, "")

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET6, *kind, ("::1", port, 0, 0)), (socket.AF_INET, *kind, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        listener = SocketListener.bind("some.name", 0, 10)
        assert listener.address[0] == "127.0.0.1"
        listener.close()

    trio.run(main)
