"""A whole broker in one task tree: simulated disk, network and clock, no thread, no real time.

`SimBroker` starts a node on a `SimFileSystem`; `crash` ends it as a dying process or a power loss would, and `start`
brings up the next one on what is left of the disk.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal

import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.net.connection import Connection
from oncelog.broker.net.server import BoundListener
from oncelog.broker.node.node import Node, open_node
from oncelog.broker.requests.authorization import Authorizer
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.transport import SocketListener
from oncelog.broker.security.listener import ListenerSecurity
from oncelog.broker.security.sasl.users import Users
from tests.harness.clocks import VirtualWall
from tests.harness.look_ups import at_once
from tests.harness.sim_client import CLIENT_ID, SimClient
from tests.harness.sim_network import MemoryListener, MemoryTransport
from tests.sim.files import SimFileSystem, SimulatedCrash

DATA_DIR = "/data"
EPOCH_MS = 1_900_000_000_000
"""The wall time at which every simulation starts, in milliseconds."""


class ProcessFiles:
    """The disk as one process sees it: nothing reaches it once the process is dead, not even its clean-up."""

    def __init__(self, files: SimFileSystem) -> None:
        self._files = files
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        if self.dead:
            raise SimulatedCrash
        return getattr(self._files, name)


WITHOUT_SHORTCUTS = {"oncelog.optimizations.enable": "false"}
"""The configuration of a broker on the plain path."""


class SimBroker:
    """``async with SimBroker(seed) as broker``; ``config`` holds Kafka's keys as text.

    ``users``, by name and password, log in where the listener's ``protocol`` is SASL_PLAINTEXT.
    """

    def __init__(
        self,
        seed: int = 0,
        config: dict[str, str] | None = None,
        pipe_bytes_max: int = 256 * 1024,
        others: tuple[str, ...] = (),
        *,
        protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        sockets: SocketListener | None = None,
    ) -> None:
        """``others``: the names of listeners beside PLAINTEXT. ``sockets``: where connections come from instead of
        `connect`, as TLS wants it; until the first stop.
        """
        self._protocol = protocol
        self._sockets = sockets
        self._users = Users(users or {})
        self.seed = seed
        self.rng = random.Random(seed)
        self.files = SimFileSystem(random.Random(seed + 1))
        self.files.makedirs(DATA_DIR)
        self.files.sync_dir("/")
        self.config = BrokerConfig({"log.dirs": DATA_DIR, **(config or {})})
        self.clock = MovableClock(VirtualWall(EPOCH_MS).now_ms)
        self.node: Node
        self._pipe_bytes_max = pipe_bytes_max
        self._others = others
        self._nursery: trio.Nursery
        self._process: ProcessFiles
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    async def __aenter__(self) -> SimBroker:
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        try:
            await self.start()
        except BaseException as error:
            await self._nursery_manager.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if kind is None:
            await self.stop()
        self._nursery.cancel_scope.cancel()
        return await self._nursery_manager.__aexit__(kind, error, traceback)

    async def start(self) -> None:
        """Bring up a node on the disk as it is."""
        self.listener = MemoryListener(self._pipe_bytes_max)
        self.others = {name: MemoryListener(self._pipe_bytes_max) for name in self._others}
        self._process = ProcessFiles(self.files)
        self._ended = trio.Event()
        await self._nursery.start(self._run)

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        process = self._process
        try:
            with trio.CancelScope() as self._scope:
                protocol = self._protocol
                security = (
                    None if protocol == "PLAINTEXT" else ListenerSecurity(protocol, protocol, self.config)
                )
                listener = self._sockets or self.listener
                bound = [
                    BoundListener(protocol, listener, *listener.address, protocol, security),
                    *(BoundListener(name, one, *one.address) for name, one in self.others.items()),
                ]
                opened = open_node(
                    self.config,
                    bound,
                    files=self._process,
                    clock=self.clock,
                    rng=self.rng,
                    users=self._users,
                )
                with opened as self.node:
                    self.node.host.fail_on_internal_errors = True
                    self.node.host.host_names.look_up = at_once
                    await self.node.run(task_status)
        except BaseException:
            # A dead process reports nothing: exceptions of its tasks while they unwind mean nothing.
            if not (process.dead or self.files.is_dead):
                raise
            process.dead = True
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Stop it cleanly."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()
            self._scope = None

    async def restart(self) -> SimClient:
        """Stop it cleanly and start it anew; a client of the new process."""
        await self.stop()
        await self.start()
        return self.connect()

    async def crash(self, kind: Literal["process", "power"]) -> None:
        """``process``: the process dies, and written bytes stay. ``power``: bytes without an fsync may be lost."""
        self._process.dead = True
        self.files.crash(kind)
        await self.stop()

    @property
    def is_dead(self) -> bool:
        """Whether the process has died (`SimFileSystem.crash_at`)."""
        return self._process.dead or self.files.is_dead

    def connect(self, from_host: str = "client", client_id: str = CLIENT_ID) -> SimClient:
        return SimClient(self.listener.connect(from_host), client_id)

    async def open_transport(self, host: str, port: int) -> MemoryTransport:
        """A `Connect` of the transport seam, to the process that runs now."""
        await trio.lowlevel.checkpoint()
        if (host, port) != self.listener.address:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        return self.listener.connect()

    def authorize_with(self, authorizer: Authorizer | None) -> None:
        """Ask ``authorizer`` from the next request on; None: everybody may do everything."""
        dispatcher = self.node.dispatcher
        dispatcher.interception.authorization.authorizer = authorizer
        dispatcher.forget()

    def server_connections(self) -> list[Connection]:
        """The connections the node has open."""
        return list(self.node.server.connections)

    def frame_bytes_reserved(self) -> int:
        """Bytes that unfinished frames hold of the server's budget."""
        return self.node.server.frame_budget.used
