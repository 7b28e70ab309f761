"""`ControlledCluster`: several nodes and their controller, which a test starts, stops, kills and cuts off.

It lives in one Trio loop. The controller runs as long as the cluster does: no fault of a node touches it.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import listener_names
from oncelog.broker.control.disks import emptied_disk, fresh_disk, new_disk
from oncelog.broker.control.errors import (
    InvalidArgumentError,
    NotRunningError,
    SnapshotError,
    UnsupportedError,
)
from oncelog.broker.control.instruments import NO_EXTRAS, Extras, Instruments
from oncelog.broker.control.nodes.configs import CONTROLLER_DIRECTORY, controller_config, node_config
from oncelog.broker.control.nodes.controlled_node import ControlledNode
from oncelog.broker.control.runs import Runs
from oncelog.broker.emulation.release import OURS, emulated
from oncelog.broker.log.data_directory import META_PROPERTIES
from oncelog.broker.network.network import CONTROLLER_ID, Network
from oncelog.broker.node.controller import open_controller
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.error_groups import first_error
from oncelog.broker.seams.mortal_files import without_deaths
from oncelog.wire.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from oncelog.broker.control.moving_time import TimeMove
    from oncelog.broker.control.nodes.nodes_client import NodesClient
    from oncelog.broker.control.nodes.options import ClusterOptions
    from oncelog.broker.control.snapshots import Place, Snapshot
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.node.controller import Controller
    from oncelog.broker.node.node import Node

TOPICS_TIMEOUT_MS = 30_000


class ControlledCluster:
    """A cluster with ``options``. It opens nothing before `start`. `run` must run meanwhile."""

    def __init__(self, options: ClusterOptions, extras: Extras = NO_EXTRAS) -> None:
        self.options = options
        self.config = options.of_nodes.broker_config()
        self.release = OURS if options.of_nodes.version is None else emulated(options.of_nodes.version)
        self.seed = options.of_nodes.seed
        self.random = random.Random(self.seed)
        self._instruments = Instruments(options.of_nodes.requests_kept, extras)
        self.lines = self._instruments.lines
        """The log lines of all nodes and the controller."""
        self.journal = self._instruments.journal
        """The requests of clients to all nodes since the last reset."""
        self.clock = MovableClock()
        self.moving_time = trio.Lock()
        """Held while an operation moves the clock, until all work that came due is done."""
        self.turns = trio.Lock()
        """Held while an operation starts or stops nodes: several may come at the same time."""
        self.network = Network(encodes=options.encodes)
        self._controller_config = controller_config(self.config, options.count)
        self._controller_files = new_disk(options.of_nodes, self._controller_config, self.clock)
        self._cut_from_clients: set[int] = set()
        """The nodes that no client reaches."""
        self.nodes: dict[int, ControlledNode] = {}
        """By id. They are made at the first start, which gives them their cluster id."""
        self.runs: Runs[Controller] = Runs("controller", "", lambda: None)
        self._nursery: trio.Nursery
        self._snapshot: Snapshot | None = None
        """The snapshot from which it started, if it has one."""
        self._producer_ids_from = 0
        """Producer ids below this one were given out before a reset."""
        self._had_data = False
        """Whether the data on disk is older than the cluster."""
        self._push_numbers = count(1)
        """Of the metrics that clients push to any node."""
        self._faults: FaultRules | None = None
        self._rules = extras.rules
        self._add_rules()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry the nodes until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self.runs.carry)
            task_status.started()
            await trio.sleep_forever()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Perform an operation by name and return its result. Raises KeyError for an unknown name, UnsupportedError for
        one that several nodes cannot perform.
        """
        # Imported here: the command line performs none, if nobody controls it.
        from oncelog.broker.control import operations
        from oncelog.broker.control.cluster.operations import OPERATIONS as OF_CLUSTER
        from oncelog.broker.control.nodes import operations as of_nodes

        try:
            if operation in of_nodes.SHARED:
                return await operations.operation(operation)(self, **arguments)
            if operation in of_nodes.OWN or operations.MODULES.get(operation) == operations.OF_NODES:
                return await getattr(of_nodes, operation)(self, **arguments)
            if operation in OF_CLUSTER:
                result = await OF_CLUSTER[operation](self.client, **arguments)
                await self.wait_followed()
                return result
        except BaseException as error:
            if without_deaths(error) is not None:
                raise
            raise self._died() from None
        finally:
            self.journal.changes.note()
        if operation not in operations.MODULES:
            raise KeyError(operation)
        raise UnsupportedError(f"{operation}: a broker with several nodes cannot do it yet")

    def _died(self) -> NotRunningError:
        """Return the error of an operation by which a node came to a crash point."""
        died = [
            f"node {node_id} died at {node.died_at}"
            for node_id, node in self.nodes.items()
            if node.died_at is not None
        ]
        return NotRunningError(f"{', '.join(died) or 'a node died meanwhile'}: start() starts it again")

    # -- what there is now

    @property
    def is_running(self) -> bool:
        """Whether the controller and a node serve."""
        return self.runs.is_running and any(node.is_running for node in self.nodes.values())

    @property
    def node_id(self) -> int:
        """See `Controlled`; that of the controller."""
        return CONTROLLER_ID

    @property
    def cluster_id(self) -> str:
        """The cluster id; the same after a restart and a reset. Raises NotRunningError before the first start."""
        return self.runs.latest_for("has no cluster id").store.cluster_id

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all listeners of all nodes, separated by commas; the same after a restart."""
        return ",".join(node.runs.bootstrap_servers for node in self.nodes.values())

    @property
    def listening(self) -> dict[str, str]:
        """See `Controlled`."""
        return next(iter(self.nodes.values())).runs.listening

    @property
    def running(self) -> dict[int, Node]:
        """The nodes that serve, by id."""
        return {node_id: node.node for node_id, node in self.nodes.items() if node.is_running}

    @property
    def serving(self) -> Sequence[Node]:
        """See `Timed`."""
        return list(self.running.values())

    def time_move(self) -> TimeMove:
        """Return a move of the time of all nodes and the controller. Raises NotRunningError if the controller does not
        run.
        """
        from oncelog.broker.control.moving_time import TimeMove
        from oncelog.broker.control.nodes.cluster_time import ClusterTime

        controller, running = self.runs.current, self.running

        def check() -> None:
            for node_id, node in running.items():
                if not self.nodes[node_id].is_running:
                    if self.nodes[node_id].died_at is not None:
                        raise self._died()
                    raise NotRunningError(f"node {node_id} was stopped or killed while its time was moved")
                if self.nodes[node_id].node is not node:
                    raise NotRunningError(f"node {node_id} was started again while its time was moved")

        between = ClusterTime(controller, self.network, running)
        return TimeMove(self.serving, self.clock, check, self.pauses, between)

    def addresses(self) -> dict[int, str]:
        """Return the first advertised address of each node."""
        found = {}
        for node_id, node in self.nodes.items():
            listener = node.runs.listeners[0]
            found[node_id] = address_text(listener.host, listener.port)
        return found

    def of(self, node_id: int) -> ControlledNode:
        """Return a node. Raises NotRunningError before the first start, InvalidArgumentError for an unknown id."""
        if not self.nodes:
            raise NotRunningError("the nodes were not started yet")
        if node_id not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise InvalidArgumentError(f"node {node_id!r}: there are {known}")
        return self.nodes[node_id]

    @property
    def client(self) -> NodesClient:
        """What sends requests to the nodes that run. Raises NotRunningError."""
        from oncelog.broker.control.nodes.nodes_client import NodesClient, Receiver

        controller = self.runs.current
        receivers = {CONTROLLER_ID: Receiver(controller.receive, set())}
        for node_id, node in self.nodes.items():
            if node.is_running:
                receivers[node_id] = Receiver(node.node.membership.receive, node.callers)
        return NodesClient(receivers, controller.store.image, listener_names(self.config)[0], self.clock)

    async def wait_followed(self) -> None:
        """Wait until each node that runs and reaches the controller has its metadata."""
        offset = self.runs.current.store.image.offset
        for node_id, node in self.nodes.items():
            while node.is_running and not self.network.is_cut(CONTROLLER_ID, node_id):
                metadata = node.node.metadata
                if metadata.image.offset >= offset or self.network.is_cut(node_id, CONTROLLER_ID):
                    break
                await metadata.changed.wait()

    @property
    def faults(self) -> FaultRules:
        """The rules for what goes wrong between clients and any of the nodes."""
        if self._faults is None:
            from oncelog.broker.faults.fault_rules import FaultRules
            from oncelog.broker.faults.rule import TargetLimits

            limits = TargetLimits(
                listeners=listener_names(self.config), nodes=range(1, self.options.count + 1)
            )
            self._faults = FaultRules(random.Random(self.seed), limits)
            self._faults.on_change.append(self._watch_crash_points)
            for node_id, node in self.nodes.items():
                if node.is_running:
                    self._faults.attach(node.node, node_id)
        return self._faults

    async def prepare_rules(self) -> bool:
        """See `Controlled`: the nodes know their topics."""
        return True

    def pauses(self, client_id: str) -> bool:
        """Whether a rule holds every request of this client id."""
        return self._faults is not None and self._faults.pauses(client_id)

    def _watch_crash_points(self, node: Node, rules: FaultRules) -> None:
        self.nodes[node.config.static.node_id].watch_crash_points(node, rules)

    # -- the network

    def cut_from_clients(self, node_id: int) -> None:
        """Break the connections of all clients to a node, and refuse new ones, until `heal`."""
        node = self.of(node_id)
        self._cut_from_clients.add(node_id)
        if node.is_running:
            node.node.server.cut_off()

    def heal(self) -> None:
        """End all cuts and delays."""
        self.network.heal()
        self._cut_from_clients.clear()
        for node in self.running.values():
            node.server.is_cut_off = False

    # -- its runs

    async def start(self) -> None:
        """Start the controller and all nodes that do not run, on their disks as they are. Topics of the options that
        are missing are created. Raises BrokerFailedError if one cannot start.
        """
        if not self.runs.is_running:
            if self.options.of_nodes.from_snapshot is not None and self._snapshot is None:
                await self._load_snapshot(self.options.of_nodes.from_snapshot)
            elif self.runs.latest is None:
                identity = f"{self._controller_config.data_dir}/{META_PROPERTIES}"
                self._had_data = self._controller_files.exists(identity)
            await self.runs.start(self._open_controller())
        if not self.nodes:
            await self._make_nodes()
        try:
            async with trio.open_nursery() as nursery:
                for node_id in self.nodes:
                    nursery.start_soon(self.start_node, node_id)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        await self._create_topics()

    async def start_node(self, node_id: int) -> None:
        """Start a node; the session of its last run ends at once. Raises BrokerFailedError if it cannot start."""
        node = self.of(node_id)
        if not node.is_running:
            self.runs.current.end_session(node_id)
        await node.start()

    async def stop(self) -> None:
        """Stop all nodes cleanly, then the controller."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(node.stop)
        await self.runs.end()

    async def kill(self) -> None:
        """End all nodes as SIGKILL does, and the controller."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(node.kill)
            nursery.start_soon(self.runs.end)

    async def reset(self) -> None:
        """Make the nodes and the controller as they were after the first start, with the same addresses and cluster id.
        No topic id and no producer id is given out again. Connections are closed, cuts and delays end. Raises
        UnsupportedError if it would delete data that is older than the cluster.
        """
        store = self.runs.current.store
        if self._had_data:
            raise UnsupportedError(
                f"reset: data was in {self.options.of_nodes.data_dir} before these nodes, and would be deleted"
            )
        self._producer_ids_from = store.image.next_producer_id
        await self.kill()
        if self._faults is not None:
            self._faults.clear()
        self._add_rules()  # only now: a request to an old node must not count
        self.journal.clear()
        self.heal()
        snapshot, options = self._snapshot, self.options.of_nodes
        self.clock = MovableClock() if snapshot is None else snapshot.manifest.new_clock()
        empty = emptied_disk if snapshot is None else fresh_disk
        self._controller_files = empty(self._controller_files, options, self._controller_config, self.clock)
        if snapshot is not None:
            await self._load_controller(snapshot)
        for node in self.nodes.values():
            await node.reset(self.clock, snapshot)
        await self.start()

    # -- snapshots

    def check_started(self) -> None:
        """Raises NotRunningError before the first start."""
        self.runs.latest_for("has no data")

    @property
    def config_texts(self) -> Mapping[str, str]:
        """The configuration that all nodes were started with, without defaults; of a snapshot, too."""
        loaded = {} if self._snapshot is None else self._snapshot.manifest.config
        return {**loaded, **self.options.of_nodes.config}

    def places(self) -> list[Place]:
        """Return where the data of the controller and of each node is."""
        from oncelog.broker.control.snapshots import Place, folder_of

        config, files = self._controller_config, self._controller_files
        folder = folder_of(CONTROLLER_DIRECTORY)
        controller = Place(folder, files, config.data_dir, is_running=self.runs.is_running)
        return [controller, *(node.place() for node in self.nodes.values())]

    async def _load_snapshot(self, source: str | bytes) -> None:
        """Read, check and use a snapshot: the path of its file, or its content. The nodes load it when they are made.
        Raises SnapshotError.
        """
        from oncelog.broker.control import snapshots

        options, count = self.options.of_nodes, self.options.count
        snapshot = await snapshots.read(source, options.snapshot_bytes_max, nodes=count)
        try:
            self.config = options.broker_config(snapshot.manifest.config)
            self._controller_config = controller_config(self.config, count)
        except ConfigError as error:
            raise SnapshotError(f"the configuration in the snapshot cannot be used: {error}") from error
        self.clock = snapshot.manifest.new_clock()
        await self._load_controller(snapshot)
        self._snapshot = snapshot

    async def _load_controller(self, snapshot: Snapshot) -> None:
        from oncelog.broker.control.snapshots import load_place

        await load_place(snapshot, self.places()[0], self.clock.now_ms())

    def _add_rules(self) -> None:
        for rule in self._rules:
            self.faults.add(rule)

    @property
    def connections(self) -> Collection[Connection]:
        """See `Controlled`."""
        running = (node.node for node in self.nodes.values() if node.is_running)
        return [one for node in running for one in node.server.connections]

    async def lose_power(self) -> None:
        """End all nodes as a loss of power does, and the controller, which loses nothing. Raises UnsupportedError if
        the data is on a real disk.
        """
        for node in self.nodes.values():
            await node.lose_power()
        await self.runs.end()

    @asynccontextmanager
    async def _open_controller(self) -> AsyncIterator[Controller]:
        options = self.options.of_nodes
        with (
            self._instruments.logging(self.clock, CONTROLLER_ID),
            open_controller(
                self._controller_config,
                self.network,
                files=self._controller_files,
                clock=self.clock,
                rng=self.random,
                release=self.release,
                users=options.users,
                acls=options.acls,
                keeps_data=options.data_dir is not None,
                on_loaded=lambda controller: controller.store.skip_producer_ids(self._producer_ids_from),
            ) as controller,
        ):
            yield controller

    async def _make_nodes(self) -> None:
        options, nodes = self.options.of_nodes, {}
        for node_id in range(1, self.options.count + 1):
            own = self.options.configs.get(node_id, {})
            config = node_config(self.config, self.options.count, node_id, own, self.cluster_id)
            node = nodes[node_id] = ControlledNode(
                options,
                config,
                self.network,
                clock=self.clock,
                rng=random.Random(self.seed + node_id),
                release=self.release,
                logging=partial(self._instruments.logging, node_id=node_id),
                on_loaded=partial(self._prepare, node_id),
                on_end=partial(self._on_end, node_id),
                running=lambda: self.running.values(),
            )
            if self._snapshot is not None:
                await node.load(self._snapshot)
            await self._nursery.start(node.runs.carry)
        self.nodes = nodes  # all of them, or none if a snapshot cannot be loaded

    def _prepare(self, node_id: int, node: Node) -> None:
        """Called before a node listens."""
        self._instruments.attach(node, node_id)
        node.server.is_cut_off = node_id in self._cut_from_clients
        node.client_metrics.numbers = self._push_numbers
        if self._faults is not None:
            self._faults.attach(node, node_id)

    def _on_end(self, node_id: int) -> None:
        """Called at the end of a node's run."""
        if self._faults is not None:
            self._faults.detach(node_id)
        self.journal.detach(node_id)

    async def _create_topics(self) -> None:
        image = self.runs.current.store.image
        missing = [
            topic.creatable(name)
            for name, topic in self.options.of_nodes.topics.items()
            if name not in image.topics
        ]
        if missing:
            response = await self.client.call(CreateTopicsRequest(missing, TOPICS_TIMEOUT_MS))
            for row in response.topics:
                if row.error_code:
                    raise InvalidArgumentError(f"topic {row.name}: {row.error_message}")
            await self.wait_followed()
