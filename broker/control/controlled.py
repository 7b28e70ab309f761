"""`Controlled`: the interface of a `ControlledBroker` and a `ControlledProxy`, for the operations on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from oncelog.broker.control.journal import Journal
    from oncelog.broker.control.log_lines import LogLines
    from oncelog.broker.control.runs import Runs
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.net.base_connection import BaseConnection


class Controlled(Protocol):
    """A `ControlledBroker` or a `ControlledProxy`. It lives in one Trio loop."""

    journal: Journal
    lines: LogLines
    runs: Runs[Any]
    turns: trio.Lock
    seed: int

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry its runs until cancelled."""

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Perform an operation by name and return its result. Raises KeyError for an unknown name, UnsupportedError for
        an operation that it cannot perform.
        """

    @property
    def is_running(self) -> bool:
        """Whether it serves."""

    @property
    def connections(self) -> Collection[BaseConnection]:
        """The connections of clients that are open."""

    @property
    def cluster_id(self) -> str:
        """The cluster id. Raises NotRunningError before the first start."""

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all listeners, separated by commas. Raises NotRunningError before the first
        start.
        """

    @property
    def listening(self) -> dict[str, str]:
        """The addresses at which it listens, by the listener's name; of several nodes the first one's. Raises as
        `bootstrap_servers`.
        """

    @property
    def node_id(self) -> int:
        """The broker's id; -1 for a proxy."""

    @property
    def faults(self) -> FaultRules:
        """The rules for what goes wrong."""

    async def prepare_rules(self) -> bool:
        """Learn which topics there are, before a rule is added. Returns whether all are known."""

    async def start(self) -> None:
        """Start it, if it does not run. Raises BrokerFailedError."""

    async def stop(self) -> None:
        """Stop it cleanly."""

    async def kill(self) -> None:
        """End it as SIGKILL does."""


class ControlledOptions(Protocol):
    """Options of a broker or a proxy, which a `Carrier` can make from them."""

    def controlled(self) -> Controlled:
        """Return it, not started."""
