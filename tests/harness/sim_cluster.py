"""Several nodes and their controller in one task tree: simulated disks, links, connections and time.

`SimCluster` runs a controller, which no fault touches, and `SimMember`s: each is a real node on a `SimFileSystem` that
outlives it. Their links are those of a `Network`, which a test cuts and delays.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.emulation.release import OURS
from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.net.server import BoundListener
from oncelog.broker.network.network import CONTROLLER_ID, Network
from oncelog.broker.node.controller import Controller, open_controller
from oncelog.broker.node.member_node import open_member
from oncelog.broker.node.node import Node
from oncelog.broker.seams.clock import MovableClock, SkewedClock
from tests.harness.clocks import VirtualWall
from tests.harness.sim_broker import DATA_DIR, EPOCH_MS, ProcessFiles
from tests.harness.sim_client import SimClient
from tests.harness.sim_network import MemoryListener
from tests.sim.files import SimFileSystem

PATIENCE_S = 120
"""Simulated seconds in which whatever a test waits for has come."""
SETTLED_S = 20
"""Simulated seconds in which nodes without faults are equal. What only a timer of a minute ends takes longer."""
STEPS_AT_ONCE_MAX = 100_000
"""A task that does not wait for anything comes to so many steps; the start of a cluster is some hundreds."""
CONFIG = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
"""What all nodes and the controller have: times short enough for a test to see what follows from them."""


class SimMember:
    """One node: its disk, and its runs, one after the other."""

    def __init__(self, cluster: SimCluster, node_id: int) -> None:
        self._cluster = cluster
        self.node_id = node_id
        texts = {**cluster.texts, "log.dirs": DATA_DIR, "node.id": str(node_id)}
        self.config = BrokerConfig({**texts, "oncelog.cluster.id": cluster.cluster_id})
        self.clock = SkewedClock(cluster.clock)
        self.files = SimFileSystem(random.Random(cluster.seed + node_id), self.clock.now_ms)
        self.files.makedirs(DATA_DIR)
        self.files.sync_dir("/")
        self.node: Node
        """That of the last run."""
        self.listener: MemoryListener
        self._process = ProcessFiles(self.files)
        self._scope = trio.CancelScope()
        self.serves = trio.Event()
        """Set while the node is unfenced, as far as it knows."""
        self.ended = trio.Event()
        self.ended.set()
        self.is_stopping = False

    @property
    def is_up(self) -> bool:
        """Whether it serves."""
        return self.serves.is_set() and not self.is_dead

    @property
    def is_dead(self) -> bool:
        """Whether its process has died, or has ended."""
        return self.ended.is_set() or self._process.dead or self.files.is_dead

    def begin(self) -> None:
        """Begin a run on the disk as it is; the one before has ended. It may take long until the node serves."""
        assert self.ended.is_set()
        self.files.restart()
        self.files.crash_at = None
        self.files.steps = 0
        self.serves, self.ended, self.is_stopping = trio.Event(), trio.Event(), False
        self._cluster.nursery.start_soon(self._run)

    async def start(self) -> None:
        """Run until it serves. The session of the run before ends at once."""
        self._cluster.controller.end_session(self.node_id)
        self.begin()
        await self.serves.wait()

    async def _run(self) -> None:
        process = self._process = ProcessFiles(self.files)
        self.listener = MemoryListener(address=(f"node-{self.node_id}", 9092))
        bound = [BoundListener("PLAINTEXT", self.listener, *self.listener.address)]
        cluster = self._cluster
        try:
            with trio.CancelScope() as self._scope:
                async with open_member(
                    self.config,
                    bound,
                    cluster.network,
                    files=process,
                    clock=self.clock,
                    rng=random.Random(cluster.rng.random()),
                    release=OURS,
                ) as self.node:
                    self.node.host.fail_on_internal_errors = True
                    async with trio.open_nursery() as nursery:
                        await nursery.start(self.node.run)
                        self.serves.set()
        except BaseException:
            # A dead process reports nothing: exceptions of its tasks while they unwind mean nothing.
            if not (process.dead or self.files.is_dead):
                raise
        finally:
            process.dead = True
            self.ended.set()

    async def stop(self) -> None:
        """Stop it cleanly: it hands over what it leads first."""
        scope, ended = self._scope, self.ended  # it may be killed meanwhile, and begin another run
        self.is_stopping = True
        if self.is_up:
            await self.node.membership.leave()
        scope.cancel()
        await ended.wait()

    async def crash(self, kind: Literal["process", "power"]) -> None:
        """``process``: the process dies, and written bytes stay. ``power``: bytes without an fsync may be lost."""
        self._process.dead = True
        if kind == "power":
            self.files.lose_power()
        else:
            self.files.kill()
        self._scope.cancel()
        await self.ended.wait()

    def connect(self) -> SimClient:
        """Raises ConnectionRefusedError if it does not serve."""
        if not self.is_up:
            raise ConnectionRefusedError
        return SimClient(self.listener.connect())


class SimCluster:
    """``async with running_cluster(seed) as cluster``: the controller runs, and all nodes serve."""

    def __init__(self, nursery: trio.Nursery, seed: int, texts: Mapping[str, str], *, encodes: bool) -> None:
        self.nursery = nursery
        self.seed = seed
        self.rng = random.Random(seed)
        self.texts = {**CONFIG, **texts, "oncelog.nodes": "3"}
        self.clock = MovableClock(VirtualWall(EPOCH_MS).now_ms)
        self.network = Network(encodes=encodes)
        self.controller: Controller
        self.cluster_id = ""
        self.nodes: dict[int, SimMember] = {}

    @property
    def image(self) -> MetadataImage:
        """The controller's metadata."""
        return self.controller.store.image

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the controller until cancelled."""
        files = SimFileSystem(random.Random(self.seed), self.clock.now_ms)
        files.makedirs(DATA_DIR)
        config = BrokerConfig({**self.texts, "log.dirs": DATA_DIR, "node.id": str(CONTROLLER_ID)})
        opened = open_controller(
            config,
            self.network,
            files=files,
            clock=self.clock,
            rng=random.Random(self.seed),
            release=OURS,
        )
        with opened as self.controller:
            self.controller.host.fail_on_internal_errors = True
            self.cluster_id = self.controller.store.cluster_id
            self.nodes = {node_id: SimMember(self, node_id) for node_id in (1, 2, 3)}
            await self.controller.run(task_status)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return who leads a partition as the controller knows; -1: nobody."""
        return self.image.topics[topic].partitions[partition].leader

    async def wait_until(self, is_so: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until a condition holds. Fails after so many simulated seconds."""
        with trio.move_on_after(seconds):
            while not is_so():
                await trio.sleep(0.05)
            return
        raise AssertionError(f"{seconds} simulated seconds have passed: {what}")


class _Watchdog(trio.abc.Instrument):
    """Cancels ``scope`` if tasks run for ever without any time passing."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self._now = -1.0
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        now = trio.current_time()
        if now > self._now:
            self._now, self._steps = now, 0
        self._steps += 1
        if self._steps == STEPS_AT_ONCE_MAX:
            self._scope.cancel()

    def check(self) -> None:
        assert self._steps < STEPS_AT_ONCE_MAX, f"tasks run for ever, and it stays {self._now}"


@asynccontextmanager
async def running_cluster(
    seed: int = 0, *, encodes: bool = False, config: Mapping[str, str] | None = None
) -> AsyncIterator[SimCluster]:
    """A controller and three nodes that serve."""
    async with trio.open_nursery() as nursery:
        watchdog = _Watchdog(nursery.cancel_scope)
        trio.lowlevel.add_instrument(watchdog)
        cluster = SimCluster(nursery, seed, config or {}, encodes=encodes)
        await nursery.start(cluster.run)
        async with trio.open_nursery() as starting:
            for node in cluster.nodes.values():
                starting.start_soon(node.start)
        yield cluster
        cluster.network.heal()
        async with trio.open_nursery() as stopping:
            for node in cluster.nodes.values():
                stopping.start_soon(node.stop)
        nursery.cancel_scope.cancel()
    watchdog.check()
