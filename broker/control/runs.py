"""`Runs`: the runs of a broker or a proxy under control, one after the other, each at the addresses of the first."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import trio

from oncelog.broker.config.definitions import StartError
from oncelog.broker.control.errors import BrokerFailedError, NotRunningError
from oncelog.broker.control.kept_ports import KeptPorts
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.mortal_files import without_deaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.host.served import Runnable
    from oncelog.broker.net.server import BoundListener


ServedT = TypeVar("ServedT", bound="Runnable")


class Run(NamedTuple, Generic[ServedT]):
    """One run."""

    served: ServedT
    scope: trio.CancelScope
    ended: trio.Event


class Runs(Generic[ServedT]):
    """``what`` it is: a broker, or a proxy; ``host_name``: see `KeptPorts`. ``on_end`` is called at the end of each
    run.
    """

    def __init__(self, what: str, host_name: str, on_end: Callable[[], None]) -> None:
        self.ports = KeptPorts(host_name)
        self.latest: Run[ServedT] | None = None
        """The latest run that has started."""
        self.failure: BaseException | None = None
        """Why the latest run ended, if nobody asked it to."""
        self._what = what
        self._on_end = on_end
        self._has_failed = trio.Event()
        self._nursery: trio.Nursery

    async def carry(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry the runs until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self.ports.close()

    @property
    def is_running(self) -> bool:
        """Whether a run serves."""
        return self.latest is not None and not self.latest.ended.is_set()

    @property
    def current(self) -> ServedT:
        """The node or proxy that serves. Raises NotRunningError, and BrokerFailedError if it ended by itself."""
        if self.latest is not None and self.is_running:
            return self.latest.served
        if self.failure is not None:
            raise BrokerFailedError(f"the {self._what} ended by itself: {self.failure!r}")
        raise NotRunningError(f"the {self._what} is stopped: start() starts it again")

    def latest_for(self, fact: str) -> ServedT:
        """Return the latest node or proxy, for a ``fact`` that outlives it. Raises NotRunningError before the first
        start.
        """
        if self.latest is None:
            raise NotRunningError(f"the {self._what} {fact} before its first start")
        return self.latest.served

    @property
    def listeners(self) -> list[BoundListener]:
        """The listeners of the latest run, without those of upstream nodes."""
        return [] if self.latest is None else self.latest.served.host.listeners

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all listeners, separated by commas; the same after a restart."""
        listeners = self.latest_for("has no address").host.listeners
        return ",".join(address_text(row.host, row.port) for row in listeners)

    @property
    def listening(self) -> dict[str, str]:
        """The addresses at which it listens, by the listener's name. They are not those of ``advertised.listeners``."""
        listeners = self.latest_for("has no address").host.listeners
        return {row.name: address_text(*row.listener.address) for row in listeners}

    async def wait_failed(self) -> BaseException:
        """Wait until a run ends by itself. Returns why."""
        await self._has_failed.wait()
        assert self.failure is not None
        return self.failure

    async def wait_ended(self) -> None:
        """Wait for the end of the latest run, which may be dying."""
        if self.latest is not None:
            await self.latest.ended.wait()

    async def start(self, opened: AbstractAsyncContextManager[ServedT]) -> None:
        """Begin a run of ``opened``. The one before has ended. Raises BrokerFailedError if it cannot start."""
        # `run` may have been cancelled, and its nursery closed, before its starter goes on.
        await trio.lowlevel.checkpoint_if_cancelled()
        self.failure = None
        try:
            self.latest = await self._nursery.start(self._run, opened)
        except StartError as error:
            raise BrokerFailedError(str(error)) from error

    async def end(self) -> None:
        """End the run that serves, if there is one, and wait for its end."""
        if self.latest is not None:
            self.latest.scope.cancel()
            await self.latest.ended.wait()

    async def _run(
        self, opened: AbstractAsyncContextManager[ServedT], task_status: trio.TaskStatus[Run[ServedT]]
    ) -> None:
        """Carry one run to its end. An error before it serves is raised; a later one is kept for the next call."""
        ended, is_ready = trio.Event(), False
        try:
            with trio.CancelScope() as scope:
                async with opened as served, trio.open_nursery() as nursery:
                    await nursery.start(served.run)
                    is_ready = True
                    task_status.started(Run(served, scope, ended))
        except BaseException as error:
            failure = without_deaths(error)
            if not is_ready:
                raise failure or NotRunningError(f"the {self._what} was killed while it started") from None
            self.failure = failure
            if failure is not None:
                self._has_failed.set()
            if isinstance(failure, KeyboardInterrupt | SystemExit | trio.Cancelled):
                raise
        finally:
            self._on_end()
            ended.set()
