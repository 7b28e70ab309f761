"""`Proxy`: everything one proxy is made of, started and stopped in order. The counterpart of `Node`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from oncelog.broker.authorization import Authorization
from oncelog.broker.client.connection import CONNECT_TIMEOUT_S, ClientConnection
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.config.listeners import address_text
from oncelog.broker.line_limiter import LineLimiter
from oncelog.broker.logs import get_logger
from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.net.server import BoundListener, Server
from oncelog.broker.proxy.addresses import Addresses
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.dispatcher import ProxyDispatcher
from oncelog.broker.proxy.node_ports import NodePorts
from oncelog.broker.proxy.upstream import Upstream, UpstreamError
from oncelog.broker.request import CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.connection_limits import ConnectionLimits
from oncelog.broker.security.connection_rates import ConnectionRates
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from oncelog.broker.authorization import Asking
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.net.peer import Peer
    from oncelog.broker.proxy.node_ports import BindNode
    from oncelog.broker.proxy.upstream import UpstreamTopic
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.transport import Connect, Transport
    from oncelog.broker.security.sasl.authenticator import LoginExchange

    OpenUpstream = Callable[[ProxyConnection | None, str, int], Awaitable[Transport]]
    """Opens a connection to an upstream node for a client, or for the proxy itself (None): connected, and logged in
    where that is not the client's own doing. Raises OSError, KafkaError, CloseConnection."""

_EVERY_ADDRESS = ("0.0.0.0", "::")

log = get_logger(__name__)


class ProxyServices(NamedTuple):
    """What servers and log-ins need of a proxy; see `Services`."""

    config: DynamicBrokerConfig
    files: FileSystem
    clock: Clock
    lines: LineLimiter
    login_observers: list[Callable[[Peer, LoginExchange], None]]
    note_bug: Callable[[], None]


class Proxy:
    """A proxy before one cluster. It gets everything outside of it: network, clock, randomness and listeners.

    ``upstream`` are the addresses of some of the cluster's nodes, ``connect`` opens connections to them, and
    ``bind_node`` the listener of a node that has appeared. ``first_node_ports`` are the first of their ports, by
    listener.
    """

    def __init__(
        self,
        config: BrokerConfig,
        upstream: Sequence[tuple[str, int]],
        *,
        connect: Connect,
        bind_node: BindNode,
        files: FileSystem,
        clock: Clock,
        rng: random.Random,
        first_node_ports: Mapping[str, int] | None = None,
        on_loaded: Callable[[Proxy], None] = lambda proxy: None,
    ) -> None:
        """``on_loaded`` is called once in `run`, before the proxy listens: it may install something in the
        dispatcher.
        """
        self.config = DynamicBrokerConfig(config)
        self.files = files
        self.clock = clock
        self.random = rng
        self.lines = LineLimiter(clock)
        self.fail_on_bugs = False
        """Whether a defect of ours ends the proxy, as tests want it, or only the connection."""
        self.bugs = 0
        """How many requests and tasks failed because of a defect of ours."""
        self.upstream = Upstream(upstream, self.lines, self._on_node)
        self.login_observers: list[Callable[[Peer, LoginExchange], None]] = []
        """See `Services.login_observers`."""
        self.open_upstream: OpenUpstream = self._open_plainly
        """Opens connections to upstream nodes; replaced where upstream asks for TLS or a log-in."""
        self.node_ports: NodePorts
        self.dispatcher: ProxyDispatcher
        self.server: Server[ProxyConnection]
        self._connect = connect
        self._bind_node = bind_node
        self._first_node_ports = first_node_ports
        self._on_loaded = on_loaded
        self._next_bootstrap = 0
        self._is_starting = True

    async def run(
        self, listeners: list[BoundListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; all listeners and connections are closed then.

        Raises UpstreamError if the cluster cannot be used, ListenError for a node's port that cannot be.
        """
        self._load(listeners)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.server.run)
            await self.look_upstream()
            self._is_starting = False
            task_status.started()

    def _load(self, listeners: list[BoundListener]) -> None:
        first = self._first_node_ports
        if first is None:
            first = {row.name: row.listener.address[1] + 1 for row in listeners}
        self.node_ports = NodePorts(list(listeners), self._bind_node, first, self.lines)
        self.node_ports.on_bound = lambda bound: self.server.add(bound)
        self.dispatcher = ProxyDispatcher(
            Authorization(None, self._note_denied),
            self.lines,
            self.note_bug,
            Addresses(self.upstream, self.node_ports.address),
        )
        services = ProxyServices(
            config=self.config,
            files=self.files,
            clock=self.clock,
            lines=self.lines,
            login_observers=self.login_observers,
            note_bug=self.note_bug,
        )
        limits = ConnectionLimits(self.config, [row.name for row in listeners])
        self.server = Server(
            services,
            self.dispatcher,
            list(listeners),
            ConnectionRates(self.config, limits, MetadataImage()),
            partial(ProxyConnection, self.dispatcher, self._open_for),
        )
        self._on_loaded(self)

    def note_bug(self) -> None:
        """Count a request or task that failed because of a defect of ours; raise AssertionError if `fail_on_bugs`."""
        self.bugs += 1
        if self.fail_on_bugs:
            raise AssertionError("a request failed by our own fault: see the log")

    def _note_denied(self, who: Asking, operation: int, resource_type: int, name: str) -> None:
        """Nobody is denied anything yet."""

    # -- what interceptors may know

    @property
    def known_topics(self) -> Upstream:
        """The topics that upstream has shown."""
        return self.upstream

    def watch_metadata(self, on_change: Callable[[UpstreamTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the known topics: with one that is gone, otherwise with None."""
        self.upstream.on_change.append(on_change)

    # -- upstream

    def _on_node(self, node_id: int) -> None:
        self.node_ports.add(node_id, must=self._is_starting)

    async def look_upstream(self) -> None:
        """Ask the cluster for its id, nodes and topics. If it asks for a log-in that is the clients' own, nothing is
        known of it but what passes. Raises UpstreamError if no node can be reached, or none is a Kafka.
        """
        why = ""
        for host, port in self.upstream.bootstrap:
            try:
                await self._look_at(host, port)
                return
            except (KafkaError, OSError, CloseConnection) as error:
                text = str(error)
                about = address_text(host, port)
                why = why or (text if text.startswith(about) else f"{about}: {text}")
        raise UpstreamError(f"the upstream cannot be used: {why}")

    async def _look_at(self, host: str, port: int) -> None:
        with real_time.move_on_after(CONNECT_TIMEOUT_S):
            connection = ClientConnection(await self._open(None, host, port))
            try:
                await connection.negotiate()
                try:
                    response = await connection.call(MetadataRequest(None, allow_auto_topic_creation=False))
                except KafkaError as error:
                    if error.code is not ErrorCode.NETWORK_EXCEPTION:
                        raise
                    log.info("the upstream tells nothing without a log-in", upstream=address_text(host, port))
                    return
                self.upstream.learn_metadata(response)
                return
            finally:
                connection.close()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no response within {CONNECT_TIMEOUT_S:g} s")

    async def _open_for(self, client: ProxyConnection) -> Transport:
        """Open the upstream connection of a client. Raises CloseConnection if no node can be reached."""
        if client.node_id is not None:
            node = self.upstream.nodes[client.node_id]
            return await self._open_or_close(client, node.host, node.port)
        bootstrap = self.upstream.bootstrap
        start, self._next_bootstrap = self._next_bootstrap, (self._next_bootstrap + 1) % len(bootstrap)
        refused: CloseConnection | None = None
        for host, port in bootstrap[start:] + bootstrap[:start]:
            try:
                return await self._open_or_close(client, host, port)
            except CloseConnection as why:
                refused = why
        assert refused is not None, "there is a bootstrap server"
        raise refused

    async def _open_or_close(self, client: ProxyConnection, host: str, port: int) -> Transport:
        try:
            with real_time.move_on_after(CONNECT_TIMEOUT_S):
                return await self._open(client, host, port)
        except (OSError, KafkaError) as error:
            raise CloseConnection(
                f"upstream {address_text(host, port)} cannot be reached: {error}"
            ) from error
        raise CloseConnection(
            f"upstream {address_text(host, port)} cannot be reached: not connected within {CONNECT_TIMEOUT_S:g} s"
        )

    async def _open(self, client: ProxyConnection | None, host: str, port: int) -> Transport:
        transport = await self.open_upstream(client, host, port)
        if self._is_own(transport):
            transport.close()
            raise CloseConnection(
                f"{address_text(host, port)} is this proxy itself: what upstream advertises (advertised.listeners), or "
                "--upstream, must be where the cluster listens"
            )
        return transport

    async def _open_plainly(self, client: ProxyConnection | None, host: str, port: int) -> Transport:
        return await self._connect(host, port)

    def _is_own(self, transport: Transport) -> bool:
        """Whether a connection leads to a listener of this proxy."""
        host, _, port = transport.peer.rpartition(":")
        for bound in self.server.listeners:
            listens_at, listens_on = bound.listener.address
            if str(listens_on) == port and (
                listens_at == host or (listens_at in _EVERY_ADDRESS and transport.local[0] == host)
            ):
                return True
        return False
