"""`ControlledNode`: one node of a controlled cluster: its disk, its ports, and its runs, one after the other."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from oncelog.broker.control.crash_watch import CrashWatch
from oncelog.broker.control.disks import emptied_disk, fresh_disk, new_disk
from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.control.runs import Runs
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.node.member_node import open_member
from oncelog.broker.seams.clock import SkewedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractContextManager

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.control.snapshots import Place, Snapshot
    from oncelog.broker.emulation.release import Release
    from oncelog.broker.faults.active_rule import ActiveRule
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.network.network import Network
    from oncelog.broker.node.node import Node
    from oncelog.broker.seams.clock import Clock

log = get_logger(__name__)


class ControlledNode:
    """The node of ``config``, one of several with ``options``. It opens nothing before `start`; `Runs.carry` must run
    meanwhile.

    ``clock`` is that of all nodes. ``logging`` gives a context in which its log lines are kept. ``on_loaded`` is called
    before it listens, and ``on_end`` at the end of each run. ``running`` gives all nodes that run.
    """

    def __init__(
        self,
        options: BrokerOptions,
        config: BrokerConfig,
        network: Network,
        *,
        clock: Clock,
        rng: random.Random,
        release: Release,
        logging: Callable[[Clock], AbstractContextManager[None]],
        on_loaded: Callable[[Node], None],
        on_end: Callable[[], None],
        running: Callable[[], Iterable[Node]],
    ) -> None:
        self.config = config
        self.clock = SkewedClock(clock)
        self.files = new_disk(options, config, self.clock)
        self._options = options
        self._network = network
        self._random = rng
        self._release = release
        self._logging = logging
        self._on_loaded = on_loaded
        self._on_ended = on_end
        self._crashes = CrashWatch(self.crash, config.node_id, running)
        self.callers: set[trio.CancelScope] = set()
        """Of calls of the test kit to it that are under way: its end ends them."""
        self.died_at: ActiveRule | None = None
        """The rule by which the latest run died, if it did."""
        self.runs: Runs[Node] = Runs(f"node {config.node_id}", options.host_name, self._on_end)

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self.runs.is_running and not self.files.is_dead

    @property
    def node(self) -> Node:
        """The node that serves. Raises NotRunningError, BrokerFailedError."""
        return self.runs.current

    async def start(self) -> None:
        """Start it on the disk as it is, at the address of its last run; it serves when it is unfenced. Nothing happens
        if it runs. Raises BrokerFailedError if it cannot start.
        """
        if self.is_running:
            return
        await self.runs.wait_ended()
        self.died_at = None
        self.files.restart()
        await self.runs.start(self._open())

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Node]:
        with self._logging(self.clock), self.runs.ports.listen(self.config) as listeners:
            async with open_member(
                self.config,
                [one._replace(node_id=self.config.node_id) for one in listeners],
                self._network,
                files=self.files,
                clock=self.clock,
                rng=self._random,
                release=self._release,
                users=self._options.users,
                keeps_data=self._options.data_dir is not None,
                on_loaded=self._on_loaded,
            ) as node:
                yield node

    async def stop(self) -> None:
        """Stop it cleanly: it hands over what it leads first. Nothing happens if it does not run."""
        if self.is_running:
            node = self.runs.current
            await node.membership.leave()
            node.logs.keeps_data = True
        await self.runs.end()

    async def kill(self) -> None:
        """End it as SIGKILL does: what it wrote stays, everything else is lost."""
        self.files.kill()
        await self.runs.end()

    async def lose_power(self) -> None:
        """End it as a loss of power does: what it had not flushed is lost, too. Raises UnsupportedError if the data is
        on a real disk.
        """
        try:
            self.files.lose_power()
        except OSError as error:
            raise UnsupportedError(f"lose_power: {error.strerror}") from None
        await self.runs.end()

    async def reset(self, clock: Clock, snapshot: Snapshot | None) -> None:
        """Empty its disk, but for its identity, or load ``snapshot`` in place of that. It does not run; ``clock`` is
        that of all nodes from now on.
        """
        self.clock = SkewedClock(clock)
        if snapshot is None:
            self.files = emptied_disk(self.files, self._options, self.config, self.clock)
        else:
            self.files = fresh_disk(self.files, self._options, self.config, self.clock)
            await self.load(snapshot)

    async def load(self, snapshot: Snapshot) -> None:
        """Make what a snapshot has of it the data of its next run. Its disk is empty. Raises SnapshotError."""
        from oncelog.broker.control.snapshots import load_place

        await load_place(snapshot, self.place(), self.clock.now_ms())

    def place(self) -> Place:
        """Return where its data is."""
        from oncelog.broker.control.snapshots import Place, folder_of

        folder = folder_of(self.config.node_id)
        return Place(folder, self.files, self.config.data_dir, is_running=self.is_running)

    def watch_crash_points(self, node: Node, rules: FaultRules) -> None:
        """Let ``node``, its latest run, die where ``rules`` say so."""
        self._crashes.update(node, rules)

    def crash(self, rule: ActiveRule) -> None:
        """Let it die now, at the crash point of a rule: see `ControlledBroker.crash`."""
        log.warning("the node dies", crash_at=rule.rule.value)
        self.died_at = rule
        self.die()

    def die(self) -> None:
        """Let it die now, in the middle of what it does."""
        self.files.kill()
        if self.runs.latest is not None:
            self.runs.latest.scope.cancel()

    def _on_end(self) -> None:
        for scope in self.callers:
            scope.cancel()
        self._on_ended()
        if self.files.is_dead:
            self.files.release_all()
