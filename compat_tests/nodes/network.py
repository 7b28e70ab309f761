"""A network whose wires a test can cut and slow down: a forwarder stands on each way from one node to another.

A node resolves the names of the others by a hosts file of its own (`-Djdk.net.hosts.file`), which leads to the
forwarders that listen for it: node 3 as node 1 sees it is 127.0.1.3, and node 3 itself 127.0.3.3, with the same port.

What is sent while a wire is cut is lost, and so is its connection: when the network is healed, both ends see it end.
A connection on which nothing was sent goes on. Nobody learns of the cut before his own time-out, nor of the end of a
process behind it, but from `refuse`.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import trio

from tests.common.threads import END_S, join

CHUNK_BYTES = 1 << 16
CHUNKS_IN_FLIGHT = 64
"""As many pieces of a connection are on a wire that delays them; then the sender has to wait."""

Address = tuple[str, int]


class Direction:
    """What goes from one end of a wire to the other."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._healed = trio.Event()
        self._healed.set()

    @property
    def is_cut(self) -> bool:
        return not self._healed.is_set()

    def cut(self) -> None:
        if not self.is_cut:
            self._healed = trio.Event()

    def heal(self) -> None:
        self.delay_s = 0.0
        self._healed.set()

    async def wait_healed(self) -> None:
        await self._healed.wait()


class _Piece(NamedTuple):
    due: float
    data: bytes
    """Empty at the connection's end."""


class Network:
    """Forwarders in a thread of their own; a context manager that ends them.

    A call returns when it is in force. Ends are node ids, or CLIENTS.
    """

    def __init__(self) -> None:
        self._directions: dict[tuple[int, int], Direction] = {}
        self._ways: dict[tuple[int, int], tuple[Address, Address]] = {}
        self._listening: dict[tuple[int, int], trio.CancelScope] = {}
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: trio.run(self._run), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(END_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._nursery.cancel_scope.cancel)
        join(self._thread)

    async def _run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._started.set()
            await trio.sleep_forever()

    def _call(self, function: Callable[[], None]) -> None:
        trio.from_thread.run_sync(function, trio_token=self._token)

    def forward(self, sender: int, receiver: int, at: Address, to: Address) -> None:
        """Forward connections that `sender` makes to `at`, where the forwarder listens, to `receiver` at `to`.

        Raises OSError.
        """
        self._ways[sender, receiver] = at, to
        self.accept(sender, receiver)

    def accept(self, sender: int, receiver: int) -> None:
        """Accept the connections that `forward` names, if they were refused. Raises OSError."""
        at, to = self._ways[sender, receiver]

        async def serve(stream: trio.SocketStream) -> None:
            await self._forward(sender, receiver, stream, to)

        async def listen(listeners: list[trio.SocketListener], scope: trio.CancelScope) -> None:
            with scope:
                await trio.serve_listeners(serve, listeners, handler_nursery=self._nursery)

        async def start() -> None:
            listeners = await trio.open_tcp_listeners(at[1], host=at[0])
            scope = self._listening[sender, receiver] = trio.CancelScope()
            self._nursery.start_soon(listen, listeners, scope)

        if (sender, receiver) not in self._listening:
            trio.from_thread.run(start, trio_token=self._token)

    def refuse(self, sender: int, receiver: int) -> None:
        """Refuse them, as the machine of a process that has ended does.

        A connection that ends as soon as it is accepted is not the same: librdkafka takes the broker for an old one.
        """
        if (scope := self._listening.pop((sender, receiver), None)) is not None:
            self._call(scope.cancel)

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Let nothing more pass between them, or nothing from `one` to `other` if `one_way`."""
        for direction in self._between(one, other, one_way=one_way):
            self._call(direction.cut)

    def delay(self, one: int, other: int, *, ms: float, one_way: bool = False) -> None:
        """Let what passes between them, or from `one` to `other`, arrive `ms` later."""

        def set_delay(direction: Direction) -> None:
            direction.delay_s = ms / 1000

        for direction in self._between(one, other, one_way=one_way):
            self._call(lambda direction=direction: set_delay(direction))  # type: ignore[misc]

    def heal(self) -> None:
        """Let everything pass at once, on all wires."""

        def heal() -> None:
            for direction in self._directions.values():
                direction.heal()

        self._call(heal)

    def is_cut(self, one: int, other: int) -> bool:
        """Whether something does not pass between them."""
        return any(direction.is_cut for direction in self._between(one, other, one_way=False))

    def _between(self, one: int, other: int, *, one_way: bool) -> list[Direction]:
        ends = [(one, other)] if one_way else [(one, other), (other, one)]
        return [self._direction(*pair) for pair in ends]

    def _direction(self, sender: int, receiver: int) -> Direction:
        return self._directions.setdefault((sender, receiver), Direction())

    async def _forward(self, sender: int, receiver: int, stream: trio.SocketStream, to: Address) -> None:
        """Carry a connection until one of its ends closes it."""
        there, back = self._direction(sender, receiver), self._direction(receiver, sender)
        async with stream:
            if there.is_cut or back.is_cut:
                await there.wait_healed()
                await back.wait_healed()
                return
            try:
                connected = await trio.open_tcp_stream(*to)
            except OSError:
                return
            async with connected, trio.open_nursery() as nursery:
                for direction, source, sink in ((there, stream, connected), (back, connected, stream)):
                    nursery.start_soon(self._carry, direction, source, sink, nursery.cancel_scope)

    @staticmethod
    async def _carry(
        direction: Direction, source: trio.SocketStream, sink: trio.SocketStream, ended: trio.CancelScope
    ) -> None:
        send, receive = trio.open_memory_channel[_Piece](CHUNKS_IN_FLIGHT)

        async def take() -> None:
            data = b"-"
            while data:
                try:
                    data = await source.receive_some(CHUNK_BYTES)
                except trio.BrokenResourceError:
                    data = b""
                await send.send(_Piece(trio.current_time() + direction.delay_s, data))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            async for piece in receive:
                await trio.sleep_until(piece.due)
                if direction.is_cut:
                    await direction.wait_healed()
                    break
                if not piece.data:
                    break
                try:
                    await sink.send_all(piece.data)
                except trio.BrokenResourceError:
                    break
            ended.cancel()
