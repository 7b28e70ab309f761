"""`ControlledBroker`: a broker that a test starts, stops, kills and resets. It lives in one Trio loop.

A `Node` is one run of a broker and cannot be started twice. `ControlledBroker` has the parts that outlive it: the
address, the disk, the clock, the random numbers, the journal and the rules.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import listener_names
from oncelog.broker.control.crash_watch import CrashWatch
from oncelog.broker.control.disks import emptied_disk, fresh_disk, new_disk
from oncelog.broker.control.errors import (
    NotRunningError,
    SnapshotError,
    UnsupportedError,
)
from oncelog.broker.control.instruments import NO_EXTRAS, Extras, Instruments
from oncelog.broker.control.new_topics import create_missing
from oncelog.broker.control.operations import call_operation
from oncelog.broker.control.runs import Runs
from oncelog.broker.emulation.release import OURS, emulated
from oncelog.broker.log.data_directory import META_PROPERTIES
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.store import store_of
from oncelog.broker.node.node import open_node
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.mortal_files import without_deaths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from oncelog.broker.control.moving_time import TimeMove
    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.control.snapshots import Place, Snapshot
    from oncelog.broker.faults.active_rule import ActiveRule
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.node.node import Node

log = get_logger(__name__)


class ControlledBroker:
    """A broker with ``options``. It opens nothing before `start`. `run` must run meanwhile."""

    def __init__(self, options: BrokerOptions, extras: Extras = NO_EXTRAS) -> None:
        self.options = options
        self._rules = extras.rules
        self.config = options.broker_config()
        self.release = OURS if options.version is None else emulated(options.version)
        self.seed = options.seed
        self.random = random.Random(self.seed)
        self._instruments = Instruments(options.requests_kept, extras)
        self.lines = self._instruments.lines
        """The log lines of all its nodes."""
        self.journal = self._instruments.journal
        """The requests of clients to all its nodes since the last reset."""
        self.clock = MovableClock()
        self.moving_time = trio.Lock()
        """Held while an operation moves the clock, until all work that came due is done."""
        self.turns = trio.Lock()
        """Held while an operation starts, stops or resets the broker: several may come at the same time."""
        self.files = new_disk(self.options, self.config, self.clock)
        self.runs: Runs[Node] = Runs("broker", options.host_name, self._on_end)
        self._producer_ids_from = 0
        """Producer ids below this one were given out before a reset."""
        self._faults: FaultRules | None = None
        self._crashes = CrashWatch(self.crash)
        self._died_at: ActiveRule | None = None
        """The rule by which the latest run died, if it did."""
        self.on_crash: Callable[[], None] | None = None
        """Called at a crash point in place of the death of the node: a process of the broker's own may end itself."""
        self._snapshot: Snapshot | None = None
        """The snapshot from which it started, if it has one."""
        self._had_data = False
        """Whether the data directory on disk is older than the broker."""
        self._add_rules()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry nodes until cancelled. A node that runs then is stopped, cleanly if its data is on a disk."""
        await self.runs.carry(task_status)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Perform an operation by name (`oncelog.broker.control.operations`) and return its result.

        Raises NotRunningError if the node is killed meanwhile, or comes to a crash point by this operation.
        """
        try:
            return await call_operation(self, operation, arguments)
        except BaseException as error:
            if without_deaths(error) is not None:
                raise
            raise self._not_running() from None

    # -- what there is now

    @property
    def bootstrap_servers(self) -> str:
        """See `Controlled`."""
        return self.runs.bootstrap_servers

    @property
    def listening(self) -> dict[str, str]:
        """See `Controlled`."""
        return self.runs.listening

    @property
    def node_id(self) -> int:
        """See `Controlled`."""
        return self.config.node_id

    async def prepare_rules(self) -> bool:
        """See `Controlled`: a node knows its topics."""
        return True

    @property
    def is_running(self) -> bool:
        """Whether a node serves."""
        return self.runs.is_running and not self.files.is_dead

    @property
    def node(self) -> Node:
        """The node that serves. Raises NotRunningError, and BrokerFailedError if it ended by itself."""
        if self.runs.failure is None and not self.is_running:
            raise self._not_running()
        return self.runs.current

    @property
    def serving(self) -> Sequence[Node]:
        """The only node. Raises as `node`."""
        return (self.node,)

    def time_move(self) -> TimeMove:
        """Return a move of the broker's time. Raises as `node`."""
        from oncelog.broker.control.moving_time import TimeMove

        node = self.node

        def check() -> None:
            if self.node is not node:
                raise NotRunningError("the broker was started again while its time was moved")

        return TimeMove((node,), self.clock, check, self.pauses)

    def _not_running(self) -> NotRunningError:
        if self.is_running:  # another operation was faster
            return NotRunningError("the broker died meanwhile, and was started again")
        what = "is stopped" if self._died_at is None else f"died at {self._died_at}"
        return NotRunningError(f"the broker {what}: start() starts it again")

    def check_started(self) -> None:
        """Raises NotRunningError before the first start."""
        if self.runs.latest is None:
            raise NotRunningError("the broker was not started yet")

    @property
    def connections(self) -> Collection[Connection]:
        """See `Controlled`."""
        return self.node.server.connections if self.is_running else ()

    @property
    def config_texts(self) -> Mapping[str, str]:
        """The configuration that the broker was started with, without defaults; of a snapshot, too."""
        loaded = {} if self._snapshot is None else self._snapshot.manifest.config
        return {**loaded, **self.options.config}

    def places(self) -> list[Place]:
        """Return where its data is."""
        from oncelog.broker.control.snapshots import Place

        return [Place("", self.files, self.config.data_dir, is_running=self.is_running)]

    @property
    def cluster_id(self) -> str:
        """The cluster id; the same after a restart and a reset."""
        return self.runs.latest_for("has no cluster id").logs.cluster_id

    @property
    def faults(self) -> FaultRules:
        """The rules for what goes wrong between clients and handlers."""
        if self._faults is None:
            from oncelog.broker.faults.fault_rules import FaultRules
            from oncelog.broker.faults.rule import TargetLimits

            limits = TargetLimits(listeners=listener_names(self.config), nodes=())
            self._faults = FaultRules(random.Random(self.seed), limits)
            self._faults.on_change.append(self._crashes.update)
            if self.is_running:
                self._faults.attach(self.node)
        return self._faults

    def _add_rules(self) -> None:
        for rule in self._rules:
            self.faults.add(rule)

    def pauses(self, client_id: str) -> bool:
        """Whether a rule holds every request of this client id."""
        return self._faults is not None and self._faults.pauses(client_id)

    # -- its runs

    async def start(self) -> None:
        """Start a node on the disk as it is, at the address of the node before. Nothing happens if one runs.

        Topics of the options that are missing are created. The first start loads the snapshot of the options. Raises
        BrokerFailedError if it cannot start, InvalidArgumentError for a topic that cannot be created, SnapshotError.
        """
        if self.is_running:
            return
        await self.runs.wait_ended()  # it may be dying
        self._died_at = None
        self.files.restart()
        if self.options.from_snapshot is not None and self._snapshot is None:
            await self._load_snapshot(self.options.from_snapshot)
        elif self.runs.latest is None:
            self._had_data = self.files.exists(f"{self.config.data_dir}/{META_PROPERTIES}")
        await self.runs.start(self._open())

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Node]:
        """Open a node on the disk as it is."""
        with (
            self._instruments.logging(self.clock),
            self.runs.ports.listen(self.config) as listeners,
            open_node(
                self.config,
                listeners,
                files=self.files,
                clock=self.clock,
                rng=self.random,
                release=self.release,
                users=self.options.users,
                acls=self.options.acls,
                keeps_data=self.options.data_dir is not None,  # unless it is stopped to be started again
                on_loaded=self._prepare,
            ) as node,
        ):
            yield node

    async def stop(self) -> None:
        """Stop the node cleanly, as SIGTERM does. Nothing happens if none runs."""
        if self.runs.latest is not None:
            self.runs.latest.served.logs.keeps_data = True
            await self.runs.end()

    async def kill(self) -> None:
        """End the node as SIGKILL does: what it wrote stays, everything else is lost."""
        self.files.kill()
        await self.runs.end()

    def crash(self, rule: ActiveRule) -> None:
        """Let the node die now, at the crash point of a rule: a step of it that uses a file gets ProcessDied."""
        log.warning("the broker dies", crash_at=rule.rule.value)
        if self.on_crash is not None:
            self.on_crash()
        self._died_at = rule
        self.files.kill()
        if self.runs.latest is not None:
            self.runs.latest.scope.cancel()

    async def lose_power(self) -> None:
        """End the node as a loss of power does: what it had not flushed is lost, too. Raises UnsupportedError if the
        data is on a real disk.
        """
        try:
            self.files.lose_power()
        except OSError as error:
            raise UnsupportedError(f"lose_power: {error.strerror}") from None
        await self.runs.end()

    async def reset(self) -> None:
        """Make the broker as it was after its first start, with the same address and cluster id. No topic id and no
        producer id is given out again. Connections are closed. Raises UnsupportedError if it would delete data that is
        older than the broker.
        """
        metadata = self.node.metadata
        if self._had_data:
            raise UnsupportedError(
                f"reset: data was in {self.options.data_dir} before this broker, and would be deleted"
            )
        self._producer_ids_from = metadata.image.next_producer_id
        await self.runs.end()
        if self._faults is not None:
            self._faults.clear()
        self._add_rules()  # only now: a request to the old node must not count
        self.journal.clear()
        self.clock = MovableClock()
        if self._snapshot is None:
            self.files = emptied_disk(self.files, self.options, self.config, self.clock)
        else:
            self.files = fresh_disk(self.files, self.options, self.config, self.clock)
            await self._use_snapshot(self._snapshot)
        await self.start()

    async def _load_snapshot(self, source: str | bytes) -> None:
        """Read, check and use a snapshot: the path of its file, or its content. Raises SnapshotError."""
        from oncelog.broker.control import snapshots

        snapshot = await snapshots.read(source, self.options.snapshot_bytes_max, nodes=1)
        if snapshot.left_out:
            with self._instruments.logging(self.clock):
                log.warning(
                    "keys in the snapshot's configuration that a broker has of its own have no effect",
                    keys=", ".join(snapshot.left_out),
                )
        try:
            config = self.options.broker_config(snapshot.manifest.config)
        except ConfigError as error:
            raise SnapshotError(f"the configuration in the snapshot cannot be used: {error}") from error
        await self._use_snapshot(snapshot)
        self.config, self._snapshot = config, snapshot

    async def _use_snapshot(self, snapshot: Snapshot) -> None:
        """Make it the data and the clock of the next node. The disk is empty. Raises SnapshotError."""
        from oncelog.broker.control import snapshots

        clock = snapshot.manifest.new_clock()
        [place] = self.places()
        await snapshots.load_place(snapshot, place, clock.now_ms())
        self.clock = clock

    def _on_end(self) -> None:
        """Called at the end of a node."""
        if self._faults is not None:
            self._faults.detach()
        self.journal.detach()
        if self.files.is_dead:
            self.files.release_all()

    def _prepare(self, node: Node) -> None:
        """Called before the node listens."""
        self._instruments.attach(node)
        store_of(node.metadata).skip_producer_ids(self._producer_ids_from)
        create_missing(node, self.options.topics)
        if self._faults is not None:
            self._faults.attach(node)
