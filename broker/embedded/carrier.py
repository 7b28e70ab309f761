"""`Carrier`: where a broker runs, apart from its user's loop and threads: a thread or a child process."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import trio
from outcome import Error, Value

from oncelog.broker.control.errors import (
    InvalidArgumentError,
    NotRunningError,
    OncelogError,
    UnsupportedError,
    WaitTimeoutError,
)
from oncelog.broker.seams import forks
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcome import Outcome

    from oncelog.broker.control.controlled import ControlledOptions


class Carrier(Protocol):
    """Carries one `ControlledBroker` or `ControlledProxy`. All but `submit`'s callback is for the user's threads."""

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        """Begin an operation (`oncelog.broker.control.operations`). ``on_done`` is called once with its outcome, in
        another thread. Returns a function that cancels it. Raises NotRunningError if the carrier was closed.
        """
        ...

    def close(self) -> None:
        """End the broker and what carries it: no thread, process or socket is left. Blocks for milliseconds; with the
        data on a disk, until it is flushed. A second call does nothing.
        """
        ...


def closing(carrier: Carrier, close: Callable[[], None]) -> weakref.finalize[..., Any]:
    """Return what closes ``carrier``: when it is called, when the carrier is forgotten, or as the interpreter ends. In
    a child made by fork it does nothing: thread and process are its parent's.
    """
    process = os.getpid()

    def close_own() -> None:
        if os.getpid() == process:
            close()

    return weakref.finalize(carrier, close_own)


def new_carrier(options: ControlledOptions, *, process: bool) -> Carrier:
    """Return a carrier for a broker or a proxy: a child process, or a thread. Forks of this process leave its sockets
    and locks to it from now on. Raises UnsupportedError in a process that gevent has changed, NotRunningError.
    """
    _check_gevent(process=process)
    forks.close_in_children()
    if process:
        from oncelog.broker.embedded.process_carrier import ProcessCarrier

        return ProcessCarrier(options)
    from oncelog.broker.embedded.thread_carrier import ThreadCarrier

    return ThreadCarrier(options)


def _check_gevent(*, process: bool) -> None:
    """Refuse what would wait for ever: the loop of a broker needs threads, sockets and an epoll that are not gevent's.
    A child process has its own; to reach it takes a thread and a socket of one kind.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None:
        return
    has_threads, has_sockets, has_select = map(monkey.is_module_patched, ("threading", "socket", "select"))
    if (has_threads == has_sockets) if process else not (has_threads or has_sockets or has_select):
        return
    raise UnsupportedError(
        "gevent's monkey.patch_all() has replaced what a broker's loop needs in this process: say process=True"
        + ("" if has_threads and has_sockets else ", and patch_all() with its threads and its sockets")
    )


def _in_event_loop() -> bool:
    """Return whether this thread runs Trio or asyncio."""
    if trio.lowlevel.in_trio_run():
        return True
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _result(outcome: Outcome[Any]) -> Any:
    """Return an operation's result, or raise its error. An error that is meant for the caller comes without the frames
    of the broker's own thread; of a defect these tell where it is.
    """
    if isinstance(outcome, Error):
        if isinstance(outcome.error, InvalidArgumentError):
            raise outcome.error.with_traceback(None) from None
        if isinstance(outcome.error, OncelogError | KafkaError):
            raise outcome.error.with_traceback(None)
    return outcome.unwrap()


class Calls:
    """Calls a carrier's operations for synchronous code, asyncio and Trio. Refuses to in a child made by fork."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._process = os.getpid()
        self._unclosed: weakref.finalize[..., Calls] | None = None

    def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Return the operation's result; the calling thread waits. Raises what the operation raises."""
        self._check_process()
        done = threading.Event()
        outcomes: list[Outcome[Any]] = []

        def on_done(outcome: Outcome[Any]) -> None:
            outcomes.append(outcome)
            done.set()

        cancel = self._carrier.submit(operation, arguments, on_done)
        try:
            done.wait()
        except BaseException:  # Ctrl-C
            cancel()
            raise
        outcome = outcomes.pop()
        if isinstance(outcome, Error) and isinstance(outcome.error, WaitTimeoutError) and _in_event_loop():
            outcome.error.add_note(
                "This wait blocked the event loop that it was called in: use AsyncBroker (with pytest: async_kafka)."
            )
        return _result(outcome)

    async def call_async(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Return the operation's result; other tasks of the calling asyncio or Trio loop run meanwhile. A cancellation
        cancels the operation. Raises what the operation raises.
        """
        self._check_process()
        if trio.lowlevel.in_trio_run():
            return _result(await self._in_trio(operation, arguments))
        return _result(await self._in_asyncio(operation, arguments))

    async def _in_trio(self, operation: str, arguments: Mapping[str, Any]) -> Outcome[Any]:
        token = trio.lowlevel.current_trio_token()
        task = trio.lowlevel.current_task()
        waiting = True

        def wake(outcome: Outcome[Any]) -> None:
            if waiting:
                trio.lowlevel.reschedule(task, Value(outcome))

        def on_done(outcome: Outcome[Any]) -> None:
            with suppress(trio.RunFinishedError):  # nobody waits any more
                token.run_sync_soon(wake, outcome)

        def abort(_: object) -> trio.lowlevel.Abort:
            nonlocal waiting
            waiting = False
            cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        cancel = self._carrier.submit(operation, arguments, on_done)
        outcome: Outcome[Any] = await trio.lowlevel.wait_task_rescheduled(abort)
        return outcome

    async def _in_asyncio(self, operation: str, arguments: Mapping[str, Any]) -> Outcome[Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome[Any]] = loop.create_future()

        def resolve(outcome: Outcome[Any]) -> None:
            if not future.done():
                future.set_result(outcome)

        def on_done(outcome: Outcome[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(resolve, outcome)

        cancel = self._carrier.submit(operation, arguments, on_done)
        try:
            return await future
        except asyncio.CancelledError:
            cancel()
            raise

    def warn_unless_closed(self, broker: str) -> None:
        """Give a ResourceWarning about ``broker`` if this is forgotten before `close`, but not at the end of the
        interpreter. The carrier closes itself then.
        """
        if self._unclosed is None:
            self._unclosed = weakref.finalize(self, _warn, broker, self._process)
            self._unclosed.atexit = False

    def close(self) -> None:
        """Close the carrier."""
        if self._unclosed is not None:
            self._unclosed.detach()
        self._carrier.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise NotRunningError(
                f"this broker belongs to process {self._process}, which forked this one ({os.getpid()}): "
                "connect to its bootstrap_servers, or start a broker of your own here"
            )


def _warn(broker: str, process: int) -> None:
    if os.getpid() == process:
        warnings.warn(
            f"{broker} was started and never closed: use it in a with statement, or call close()",
            ResourceWarning,
            stacklevel=2,
        )
