"""A proxy over memory transports, before a simulated broker or whatever listens in a `MemoryNetwork`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

import trio

from oncelog.broker.net.server import BoundListener
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.proxy import Proxy, open_proxy
from oncelog.broker.proxy.settings import ProxySettings
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.files import FileSystem
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.transport import Connect
from oncelog.broker.security.acl_text import parse_acls
from oncelog.broker.security.listener import ListenerSecurity
from oncelog.broker.security.sasl.users import Users
from tests.harness.clocks import VirtualWall
from tests.harness.look_ups import at_once
from tests.harness.sim_broker import EPOCH_MS
from tests.harness.sim_client import SimClient
from tests.harness.sim_network import MemoryListener, MemoryTransport
from tests.proxy.memory_pipes import MemoryPipes
from tests.proxy.memory_reactor import MemoryReactor
from tests.proxy.proxy_config import ProxyConfig

HOST = "proxysimu"
"""As long as the simulated broker's, so that responses through the proxy differ in nothing else."""
PORT = 9091


class SimProxy:
    """``async with SimProxy(connect, [("simulated", 9092)]) as proxy``: `connect` opens upstream connections."""

    def __init__(
        self,
        connect: Connect,
        upstream: list[tuple[str, int]],
        config: dict[str, str] | None = None,
        pipe_bytes_max: int = 256 * 1024,
        listeners: tuple[str, ...] = ("PLAINTEXT",),
        *,
        users: Mapping[str, str] | None = None,
        acls: tuple[str, ...] = (),
        logins: UpstreamLogins | None = None,
        pipes: MemoryPipes | None = None,
        reactor: MemoryReactor | None = None,
        host: str = HOST,
        files: FileSystem | None = None,
        data_dir: str | None = None,
    ) -> None:
        """A listener whose name begins with SASL asks for a log-in: by ``users``, or as ``config`` says."""
        self.pipe_bytes_max = pipe_bytes_max
        self._security: dict[str, ListenerSecurity] = {}
        self.host = host
        self.listeners = {(host, PORT + 100 * place): name for place, name in enumerate(listeners)}
        self.sockets: dict[tuple[str, int], MemoryListener] = {}
        self.config = ProxyConfig(config)
        self._open = partial(
            open_proxy,
            ProxySettings(
                self.config,
                [],
                upstream,
                None,
                Users(users or {}),
                logins or UpstreamLogins({}),
                parse_acls(acls, "acls"),
                data_dir,
            ),
            connect=connect,
            bind_node=self._bind_node,
            files=MemoryFileSystem() if files is None else files,
            clock=MovableClock(VirtualWall(EPOCH_MS).now_ms),
            rng=random.Random(1),
            pipes=pipes,
            reactor=reactor,
        )
        self.proxy: Proxy
        self._manager: Any = None
        self._nursery: trio.Nursery

    def _listen(self, address: tuple[str, int], name: str, node_id: int | None = None) -> BoundListener:
        listener = self.sockets[address] = MemoryListener(self.pipe_bytes_max, address)
        security = None
        if name.startswith("SASL"):
            security = self._security.get(name)
            if security is None:
                security = ListenerSecurity(name, name, self.config)
                self._security[name] = security
        protocol = name if security is not None else "PLAINTEXT"
        return BoundListener(name, listener, *address, protocol, security, node_id)

    def _bind_node(self, main: BoundListener, node_id: int, port: int) -> BoundListener:
        return self._listen((self.host, port), main.name, node_id)

    async def open_transport(self, host: str, port: int) -> MemoryTransport:
        """A `Connect` of the transport seam, to the proxy."""
        await trio.lowlevel.checkpoint()
        return self.sockets[host, port].connect()

    async def __aenter__(self) -> SimProxy:
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        bound = [self._listen(address, name) for address, name in self.listeners.items()]
        try:
            await self._nursery.start(self._run, bound)
        except BaseException as error:
            await self._manager.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _run(self, bound: list[BoundListener], task_status: trio.TaskStatus[None]) -> None:
        with self._open(bound) as self.proxy:
            self.proxy.host.fail_on_internal_errors = True
            self.proxy.host.host_names.look_up = at_once
            await self.proxy.run(task_status)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._nursery.cancel_scope.cancel()
        suppressed: bool | None = await self._manager.__aexit__(kind, error, traceback)
        return suppressed

    def connect(self, port: int = PORT) -> SimClient:
        """A client of the proxy's listener, or of a node's."""
        return SimClient(self.sockets[self.host, port].connect())

    @property
    def connections(self) -> list[ProxyConnection]:
        """The connections of clients that are open."""
        return list(self.proxy.server.connections)
