"""`Changes`: wakes all waits for a state of a broker, so that none polls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

import trio

from oncelog.broker.control.errors import InvalidArgumentError, WaitTimeoutError
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.seams.clock import real_time

TIMEOUT_MAX_S = 24 * 3600.0

T = TypeVar("T")


class Changes:
    """The changes of one broker."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        """The next change; None if nobody waits."""

    def note(self) -> None:
        """Something has changed."""
        if self._event is not None:
            self._event.set()
            self._event = None

    def next(self) -> trio.Event:
        """Return the event of the next change."""
        if self._event is None:
            self._event = trio.Event()
        return self._event


class _Watcher:
    """Waits for a log to change (`LogWaiter`)."""

    __slots__ = ("_changes",)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def notify(self, log: PartitionLog) -> None:
        self._changes.note()


def check_timeout(timeout: float) -> float:
    """Return the time-out in seconds. Raises InvalidArgumentError."""
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 <= timeout <= TIMEOUT_MAX_S:
        raise InvalidArgumentError(f"timeout={timeout!r}: expected seconds, from 0 to {TIMEOUT_MAX_S:.0f}")
    return timeout


async def wait_until(
    changes: Changes,
    check: Callable[[], Awaitable[T | None]],
    logs: Callable[[], Iterable[PartitionLog]],
    timeout: float,
    explain: Callable[[], Awaitable[str]],
) -> T:
    """Return what ``check`` returns as soon as that is not None. It is called now and after each change.

    ``logs``: whose changes count, too. It is called before each check. Raises WaitTimeoutError with the text of
    ``explain`` after ``timeout`` seconds of real time, and what ``check`` and ``logs`` raise.
    """
    deadline = real_time.monotonic() + timeout
    watcher = _Watcher(changes)
    while True:
        event = changes.next()
        with ExitStack() as watched:
            for log in logs():
                log.waiters.add(watcher)
                watched.callback(log.waiters.discard, watcher)
            found = await check()
            if found is not None:
                return found
            if real_time.monotonic() >= deadline:
                break
            with real_time.move_on_at(deadline):
                await event.wait()
    raise WaitTimeoutError(await explain())
