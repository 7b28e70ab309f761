"""`Reactor`: calls a function whenever a connection is readable, without waking a task for it.

Trio wakes a task for each event: it arms the socket, puts the task into its queue and walks the task's stack of
coroutines. A request that only passes costs less than that. `SocketReactor` waits in Trio's place: when Trio is about
to wait for events, it waits for those of its own sockets and for Trio's together, and calls the functions at once
(``Instrument.before_io_wait``).
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import trio

from oncelog.broker.seams import forks
from oncelog.broker.seams.machine_time import perf_counter
from oncelog.broker.seams.platforms import HERE, Platform
from oncelog.broker.seams.transport import Transport

EVENTS_MAX = 64
"""Sockets whose functions are called before Trio's events are looked for again."""

Turn = Callable[[float], bool]
"""Called when the connection is readable, with the real time in seconds. Returns whether to call it again. It may not
wait."""


class Reactor(Protocol):
    """The reactor of one proxy. Without an epoll of its own it can watch nothing."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch while the context lasts. Before and after it nothing can be watched."""

    def can_watch(self, transport: Transport) -> bool:
        """Whether `turns` works for a connection."""

    async def turns(self, transport: Transport, turn: Turn) -> None:
        """Call ``turn`` whenever ``transport`` is readable, until it returns False. Raises what it raises, and
        trio.ClosedResourceError if the transport is closed meanwhile.
        """


class _Watch:
    """A connection that is watched, and the task that waits until this ends."""

    __slots__ = ("error", "task", "turn")

    def __init__(self, turn: Turn, task: trio.lowlevel.Task) -> None:
        self.turn = turn
        self.task = task
        self.error: Exception | None = None
        """What the task raises then."""


class SocketReactor(trio.abc.Instrument):
    """The `Reactor` of a proxy on the operating system's sockets, by epoll."""

    def __init__(self, platform: Platform = HERE) -> None:
        self._has_epoll = platform.has_epoll
        self._epoll: select.epoll
        self._token: trio.lowlevel.TrioToken
        self._ahead = 0.0
        """Seconds by which Trio's clock is ahead of `perf_counter`. To read this one takes fewer steps."""
        self._trio_fd = -1
        """Trio's epoll; -1 while nothing can be watched."""
        self._watches: dict[int, _Watch] = {}
        self._has_scheduled = False
        """Whether a task has become runnable since Trio decided how long to wait."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        trio_fd = await _find_trio_epoll() if self._has_epoll else None
        if trio_fd is None:
            yield
            return
        self._token = trio.lowlevel.current_trio_token()
        self._ahead = trio.current_time() - perf_counter()
        with forks.changing:
            self._epoll = select.epoll()
            forks.note(self, SocketReactor._close)
        self._epoll.register(trio_fd, select.EPOLLIN)
        self._trio_fd = trio_fd
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
            self._trio_fd = -1
            self._close()

    def _close(self) -> None:
        with forks.changing:
            self._epoll.close()

    def can_watch(self, transport: Transport) -> bool:
        return self._trio_fd != -1 and transport.connection is not None

    async def turns(self, transport: Transport, turn: Turn) -> None:
        connection = transport.connection
        assert connection is not None, "can_watch says so"
        if connection is not transport:  # TLS, which may hold what the connection does not show
            turn = _until_received(transport, turn)
            if transport.has_received and not turn(trio.current_time()):
                return
        fd = connection.fileno()
        if fd == -1:
            raise trio.ClosedResourceError("this transport is closed")
        self._epoll.register(fd, select.EPOLLIN)
        watch = self._watches[fd] = _Watch(turn, trio.lowlevel.current_task())
        connection.on_close = lambda: self._end(fd, trio.ClosedResourceError("closed by another task"))

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget(fd)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            connection.on_close = None
        if watch.error is not None:
            raise watch.error

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self._has_scheduled = True

    def before_io_wait(self, timeout: float) -> None:
        """Wait in Trio's place, for so many seconds, and take turns; see `trio.abc.Instrument`."""
        watches = self._watches
        if not watches:
            return
        read_clock, ahead = perf_counter, self._ahead
        until = read_clock() + timeout
        left = timeout
        self._has_scheduled = False
        while True:
            events = self._epoll.poll(left, EVENTS_MAX)
            now = read_clock()
            is_trio_ready = False
            for fd, _ in events:
                watch = watches.get(fd)
                if watch is None:
                    is_trio_ready = is_trio_ready or fd == self._trio_fd
                    continue
                try:
                    if not watch.turn(now + ahead):
                        self._end(fd, None)
                except Exception as error:
                    self._end(fd, error)
            if is_trio_ready or not timeout:
                return
            left = until - now
            if self._has_scheduled or left <= 0:
                # Trio is going to wait for its whole time-out: this ends its wait at once.
                self._token.run_sync_soon(_do_nothing, idempotent=True)
                return

    def _end(self, fd: int, error: Exception | None) -> None:
        """End a watch, if there is one: its task raises ``error``, or goes on."""
        watch = self._watches.get(fd)
        if watch is not None:
            watch.error = error
            self._forget(fd)
            trio.lowlevel.reschedule(watch.task)

    def _forget(self, fd: int) -> None:
        del self._watches[fd]
        self._epoll.unregister(fd)


def _until_received(transport: Transport, turn: Turn) -> Turn:
    """Return a turn that takes all that ``transport`` has received already."""

    def turns(now: float) -> bool:
        while turn(now):
            if not transport.has_received:
                return True
        return False

    return turns


def _do_nothing() -> None:
    pass


async def _find_trio_epoll() -> int | None:
    """Return the descriptor of the epoll in which Trio's tasks wait, or None if the kernel does not tell (proc(5)).

    Trio does not name it, so a task waits for a pipe, and the epoll that watches this pipe is looked for.
    """
    marker, other_end = os.pipe()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.wait_readable, marker)
            for _ in range(2):  # the task's first step may come after the next one of this task, not later
                await trio.lowlevel.checkpoint()
            found = [fd for fd in _epolls() if marker in _watched_by(fd)]
            nursery.cancel_scope.cancel()
    finally:
        trio.lowlevel.notify_closing(marker)
        os.close(marker)
        os.close(other_end)
    return found[0] if len(found) == 1 else None


def _epolls() -> Iterator[int]:
    """Yield this process's epolls."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return
    for name in names:
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                yield int(name)
        except OSError:  # closed by another thread, or the one that listed them
            continue


def _watched_by(epoll: int) -> set[int]:
    """Return the descriptors that an epoll watches."""
    try:
        text = Path(f"/proc/self/fdinfo/{epoll}").read_text(encoding="ascii")
    except OSError:
        return set()
    return {int(fd) for fd in re.findall(r"^tfd:\s*(\d+)", text, re.MULTILINE)}
