"""`ThreadCarrier`: a broker on a thread of its own, with a Trio loop of its own."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from outcome import Error, Outcome, Value

from oncelog.broker.control.errors import NotRunningError
from oncelog.broker.embedded.carrier import closing
from oncelog.broker.seams.machine_time import MachineClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.control.controlled import ControlledOptions


class ThreadCarrier:
    """See `Carrier`. The thread begins at once; the broker with the operation ``start``.

    If it is forgotten, or the interpreter ends, it is closed, too.
    """

    def __init__(self, options: ControlledOptions) -> None:
        self._loop = _Loop(options)
        # The thread is a daemon: the interpreter does not wait for it, but calls this before it ends.
        self._close = closing(self, self._loop.close)

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        return self._loop.submit(operation, arguments, on_done)

    def close(self) -> None:
        self._close()


class _Loop:
    """The thread, what runs on it, and how others reach it."""

    def __init__(self, options: ControlledOptions) -> None:
        begun = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._failed: BaseException | None = None
        """The error that ended the thread before the broker began."""
        self._broker = options.controlled()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="oncelog", daemon=True)
        self._thread.start()
        begun.wait()
        if self._failed is not None:
            raise NotRunningError(
                f"the broker's thread could not begin: {type(self._failed).__name__}: {self._failed}"
            ) from self._failed

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        scope = trio.CancelScope()
        try:
            self._token.run_sync_soon(self._begin, operation, arguments, scope, on_done)
        except trio.RunFinishedError:
            raise NotRunningError("the broker was closed: make a new one") from None

        def cancel() -> None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(scope.cancel)

        return cancel

    def close(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- on the thread

    def _run(self, begun: threading.Event) -> None:
        try:
            trio.run(self._main, begun, clock=MachineClock(), strict_exception_groups=True)
        except BaseException as error:
            if begun.is_set():
                raise
            self._failed = error
        finally:
            begun.set()

    async def _main(self, begun: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._broker.run)
            self._broker_scope = nursery.cancel_scope
            async with trio.open_nursery() as self._nursery:
                begun.set()
                await trio.sleep_forever()

    def _end(self) -> None:
        self._broker_scope.cancel()

    def _begin(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        scope: trio.CancelScope,
        on_done: Callable[[Outcome[Any]], None],
    ) -> None:
        if self._broker_scope.cancel_called:
            on_done(Error(NotRunningError("the broker was closed: make a new one")))
        else:
            self._nursery.start_soon(self._perform, operation, arguments, scope, on_done)

    async def _perform(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        scope: trio.CancelScope,
        on_done: Callable[[Outcome[Any]], None],
    ) -> None:
        outcome: Outcome[Any] = Error(NotRunningError("the broker was closed meanwhile"))
        try:
            with scope:
                try:
                    outcome = Value(await self._broker.call(operation, arguments))
                except trio.Cancelled:
                    raise
                except BaseException as error:
                    outcome = Error(error)
        finally:
            on_done(outcome)
