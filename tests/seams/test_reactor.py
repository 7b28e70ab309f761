"""What a reactor does for both kinds of connection, and how that of sockets shares a thread with Trio."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, cast

import pytest
import trio
import trio.testing

from oncelog.broker.seams.platforms import HERE
from oncelog.broker.seams.reactor import Reactor, SocketReactor
from oncelog.broker.seams.tls import TlsTransport, new_client_context
from oncelog.broker.seams.transport import SocketTransport, Transport
from tests.common.certificates import Authority
from tests.harness.sim_network import memory_pair
from tests.proxy.memory_reactor import MemoryReactor

AUTHORITY = Authority()
BUFFER_BYTES = 1_000
LIMIT_S = 60.0
"""After this a test has failed; nothing waits so long."""

needs_epoll = pytest.mark.skipif(not HERE.has_epoll, reason="epoll is Linux's")


class Ends(NamedTuple):
    """A connection: ``far`` sends, ``near`` is watched."""

    far: Transport
    near: Transport


def socket_ends() -> Ends:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    return Ends(SocketTransport(far, "near"), SocketTransport(near, "far"))


async def tls_ends() -> Ends:
    """Return both ends of a TLS connection, after the handshake. ``far`` is the client: the tickets that a server sends
    unasked (TLS 1.3) would be a turn.
    """
    plain = socket_ends()
    far = TlsTransport(cast("SocketTransport", plain.far), client_context(), "localhost")
    near = TlsTransport(cast("SocketTransport", plain.near), AUTHORITY.identity("server").server_context())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(far.handshake)
        nursery.start_soon(near.handshake)
    return Ends(far, near)


def client_context() -> ssl.SSLContext:
    context = new_client_context()
    context.load_verify_locations(cadata=AUTHORITY.pem.decode())
    return context


@asynccontextmanager
async def running(kind: str) -> AsyncIterator[tuple[Reactor, Ends]]:
    """A reactor and a connection."""
    reactor: Reactor = MemoryReactor() if kind == "memory" else SocketReactor()
    if kind == "tls":
        ends = await tls_ends()
    else:
        ends = socket_ends() if kind == "sockets" else Ends(*memory_pair())
    try:
        with trio.fail_after(LIMIT_S):
            async with reactor.running():
                yield reactor, ends
    finally:
        for end in ends:
            end.close()


class StepCounter(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


def received(transport: Transport) -> bytes:
    """Return what can be received now."""
    buffer = bytearray(BUFFER_BYTES)
    count = transport.receive_into(memoryview(buffer))
    return bytes(buffer[: max(count, 0)])


def in_real_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a plain pytest test of an async one: the sockets are real, and so is the clock."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        trio.run(partial(test, *args, **kwargs))

    return run


class Until:
    """A turn that receives, until it has so many bytes."""

    def __init__(self, transport: Transport, size: int) -> None:
        self.data = b""
        self.turns = 0
        self.now = 0.0
        self._transport = transport
        self._size = size

    def __call__(self, now: float) -> bool:
        self.turns += 1
        self.now = now
        self.data += received(self._transport)
        return len(self.data) < self._size


KINDS = pytest.mark.parametrize(
    "kind", ["memory", *(pytest.param(kind, marks=needs_epoll) for kind in ("sockets", "tls"))]
)


@KINDS
@in_real_time
async def test_a_turn_for_all_that_comes_until_it_has_enough(kind: str) -> None:
    async with running(kind) as (reactor, (far, near)), trio.open_nursery() as nursery:
        turn = Until(near, 6)
        ended = trio.Event()

        async def watch() -> None:
            await reactor.turns(near, turn)
            ended.set()

        assert reactor.can_watch(near)
        far.send(b"is")  # before anybody watches
        nursery.start_soon(watch)
        while turn.data != b"is":
            await trio.sleep(0)
        far.send(b" it")
        while turn.data != b"is it":
            await trio.sleep(0)
        assert not ended.is_set()
        far.send(b"?")
        await ended.wait()
        assert 0 <= trio.current_time() - turn.now < LIMIT_S
        far.send(b"more")
        await near.wait_readable()
        assert (turn.data, received(near)) == (b"is it?", b"more")


@KINDS
@in_real_time
async def test_what_a_turn_has_no_room_for_is_left_to_the_next(kind: str) -> None:
    data = bytes(range(250)) * (5 * BUFFER_BYTES // 500)
    async with running(kind) as (reactor, (far, near)):
        far.send(data)
        await near.wait_readable()
        first = received(near)  # before anybody watches
        turn = Until(near, len(data) - len(first))
        await reactor.turns(near, turn)
        assert first + turn.data == data
        assert turn.turns > 1


@KINDS
@in_real_time
async def test_the_end_of_the_stream_is_readable(kind: str) -> None:
    async with running(kind) as (reactor, (far, near)):
        far.close()
        await reactor.turns(near, lambda now: False)
        assert near.receive_into(memoryview(bytearray(1))) == 0


@KINDS
@in_real_time
async def test_the_error_of_a_turn_is_raised(kind: str) -> None:
    def fail(now: float) -> bool:
        raise ConnectionResetError("in a turn")

    async with running(kind) as (reactor, (far, near)):
        far.send(b"x")
        with pytest.raises(ConnectionResetError, match="in a turn"):
            await reactor.turns(near, fail)
        await reactor.turns(near, lambda now: False)  # the socket is still readable, and can be watched again


@KINDS
@in_real_time
async def test_a_transport_that_closes_meanwhile(kind: str) -> None:
    async with running(kind) as (reactor, (far, near)), trio.open_nursery() as nursery:

        async def watch() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await reactor.turns(near, lambda now: True)

        nursery.start_soon(watch)
        await trio.testing.wait_all_tasks_blocked()
        near.close()
        far.close()


@KINDS
@in_real_time
async def test_a_closed_transport(kind: str) -> None:
    async with running(kind) as (reactor, (_, near)):
        near.close()
        with pytest.raises(trio.ClosedResourceError):
            await reactor.turns(near, lambda now: True)


@KINDS
@in_real_time
async def test_a_cancelled_wait_takes_no_more_turns(kind: str) -> None:
    async with running(kind) as (reactor, (far, near)):
        turn = Until(near, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reactor.turns, near, turn)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        far.send(b"x")
        await near.wait_readable()
        assert (turn.turns, received(near)) == (0, b"x")


@KINDS
@in_real_time
async def test_a_turn_may_wake_other_tasks(kind: str) -> None:
    async with running(kind) as (reactor, (far, near)), trio.open_nursery() as nursery:
        woken = trio.Event()

        def turn(now: float) -> bool:
            received(near)
            woken.set()
            return True

        nursery.start_soon(reactor.turns, near, turn)
        await trio.testing.wait_all_tasks_blocked()
        far.send(b"x")
        await woken.wait()
        nursery.cancel_scope.cancel()


@needs_epoll
@in_real_time
async def test_connections_that_are_always_readable_keep_nobody_else_waiting() -> None:
    async with running("sockets") as (reactor, (far, near)), trio.open_nursery() as nursery:
        turns = 0

        def turn(now: float) -> bool:
            nonlocal turns
            turns += 1
            return True  # what came stays there: the next turn is due at once

        far.send(b"x")
        nursery.start_soon(reactor.turns, near, turn)
        await trio.sleep(0.01)  # a deadline
        await trio.to_thread.run_sync(lambda: None)  # another thread
        other = socket_ends()  # a socket that Trio waits for
        other.far.send(b"y")
        await other.near.wait_readable()
        assert turns > 0
        for end in other:
            end.close()
        nursery.cancel_scope.cancel()


@needs_epoll
@in_real_time
async def test_a_turn_takes_no_task() -> None:
    async with running("sockets") as (reactor, (far, near)), trio.open_nursery() as nursery:
        steps = StepCounter()
        turn = Until(near, 100)

        def answer(now: float) -> bool:
            """As a peer would, which has its answer and sends the next request."""
            goes_on = turn(now)
            far.send(b"x")
            return goes_on

        far.send(b"x")
        trio.lowlevel.add_instrument(steps)
        await reactor.turns(near, answer)
        trio.lowlevel.remove_instrument(steps)
        assert turn.turns == 100
        assert steps.count < 10
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@needs_epoll
@in_real_time
async def test_nothing_is_left_behind() -> None:
    gc.collect()  # what other tests left
    before = os.listdir("/proc/self/fd")
    reactor = SocketReactor()
    far, near = socket_ends()
    assert not reactor.can_watch(near)
    async with reactor.running():
        assert reactor.can_watch(near)
        assert not reactor.can_watch(memory_pair()[0])
    assert not reactor.can_watch(near)
    far.close()
    near.close()
    assert os.listdir("/proc/self/fd") == before


@needs_epoll
@in_real_time
async def test_beside_epolls_of_others() -> None:
    """Another thread's Trio has an epoll, too, and the reactor must find its own."""
    others = trio.Event()
    async with trio.open_nursery() as nursery:
        token = trio.lowlevel.current_trio_token()
        release = threading.Event()

        async def wait() -> None:
            token.run_sync_soon(others.set)
            await trio.to_thread.run_sync(release.wait)

        nursery.start_soon(trio.to_thread.run_sync, trio.run, wait)
        await others.wait()
        try:
            async with running("sockets") as (reactor, (far, near)):
                turn = Until(near, 1)
                far.send(b"x")
                await reactor.turns(near, turn)
                assert turn.data == b"x"
        finally:
            release.set()


@in_real_time
async def test_without_an_epoll_nothing_is_watched() -> None:
    reactor = SocketReactor(HERE._replace(has_epoll=False))
    far, near = socket_ends()
    async with reactor.running():
        assert not reactor.can_watch(near)
    far.close()
    near.close()
