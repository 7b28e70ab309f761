"""`Proxy`: everything one proxy is made of, started and stopped in order. The counterpart of `Node`."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import trio

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.opening import CONNECT_TIMEOUT_S
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.net.server import BoundListener, Server
from oncelog.broker.proxy.access import Access
from oncelog.broker.proxy.addresses import Addresses
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.dispatcher import ProxyDispatcher
from oncelog.broker.proxy.node_ports import NodePorts
from oncelog.broker.proxy.opening import UpstreamOpener, said
from oncelog.broker.proxy.own_metadata import OwnMetadata
from oncelog.broker.proxy.passed_proxies import LOOP, LOOP_ERROR
from oncelog.broker.proxy.upstream import Upstream, UpstreamError
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.proxy.used_keys import has_own_access
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.connection_limits import ConnectionLimits
from oncelog.broker.security.connection_rates import ConnectionRates
from oncelog.broker.security.sasl.users import Users
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.net.peer import Peer
    from oncelog.broker.proxy.node_ports import BindNode
    from oncelog.broker.proxy.upstream import UpstreamTopic
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.pipes import Pipes
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Connect
    from oncelog.broker.security.failed_authentication import FailedAuthentication
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.wire.messages.api_versions import ApiVersionsResponse


PERHAPS_TLS = "(perhaps it wants TLS: security.protocol=SSL in --upstream-config)"
CLIENT_WITHOUT_LOGIN = " (it asks for a log-in; perhaps the client has not logged in)"
NO_LOGIN = " (it asks for a log-in: --upstream-config says as whom, --pass-logins lets clients log in there)"
"""Why an upstream that asks for a log-in may close a connection."""

log = get_logger(__name__)


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
        data_dir: str | None = None,
        first_node_ports: Mapping[str, int] | None = None,
        users: Users | None = None,
        acls: Sequence[AclBinding] = (),
        logins: UpstreamLogins | None = None,
        pipes: Pipes | None = None,
        reactor: Reactor | None = None,
        on_loaded: Callable[[Proxy], None] = lambda proxy: None,
    ) -> None:
        """``data_dir`` keeps users, ACLs and so on of the proxy's own, in ``files``; without it they are in memory.
        ``users`` may log in here, ``acls`` are in force; ``logins`` has the users of the upstream connections.
        Large frames go through ``pipes``, if there are any, else through memory. What only passes does so in turns of
        ``reactor``, if there is one, else in tasks. ``on_loaded`` is called once in `run`, before the proxy listens: it
        may install something in the dispatcher.
        """
        self.config = DynamicBrokerConfig(config)
        self.files = files
        self.clock = clock
        self.random = rng
        self.lines = LineLimiter(clock)
        self.fail_on_bugs = False
        """Whether an internal error ends the proxy, as tests want it, or only the connection."""
        self.bugs = 0
        """How many requests and tasks failed with an internal error."""
        self.upstream = Upstream(upstream, self.lines, self._on_node)
        self.access: Access
        """Users, ACLs and quotas of its own."""
        self.logins = UpstreamLogins({}) if logins is None else logins
        self.node_ports: NodePorts
        self.dispatcher: ProxyDispatcher
        self.server: Server[ProxyConnection]
        self.data_dir = None if data_dir is None else files.absolute_path(data_dir)
        self._users = Users({}) if users is None else users
        self._acls = acls
        self._connection_rates: ConnectionRates
        self._opener: UpstreamOpener
        self._connect = connect
        self._bind_node = bind_node
        self._pipes = pipes
        self._reactor = reactor
        self._first_node_ports = first_node_ports
        self._on_loaded = on_loaded
        self._is_starting = True

    @property
    def login_observers(self) -> list[Callable[[Peer, LoginExchange | FailedAuthentication], None]]:
        """See `Services.login_observers`."""
        return self.access.services.login_observers

    async def run(
        self, listeners: list[BoundListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; all listeners and connections are closed then.

        Raises UpstreamError if the cluster cannot be used, ListenError for a node's port that cannot be,
        DataDirectoryError for a data directory that cannot be, for example because another process uses it.
        """
        own = OwnMetadata(self.data_dir, self.files, self.clock, self.random)
        try:
            self._load(listeners, own)
            async with (
                nullcontext() if self._reactor is None else self._reactor.running(),
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self.access.remove_expired_tokens)
                nursery.start_soon(self._look_up_hosts)
                await nursery.start(self.server.run)
                await self.look_upstream()
                self._is_starting = False
                self.dispatcher.has_started = True
                task_status.started()
        finally:
            if self._pipes is not None:
                self._pipes.close()
            own.close()

    def _load(self, listeners: list[BoundListener], own: OwnMetadata) -> None:
        self.access = Access(
            own,
            self.config,
            self.files,
            self.clock,
            self.lines,
            self.random,
            self._users,
            self._acls,
            self.note_bug,
        )
        self.upstream.on_cluster = own.note_cluster
        first = self._first_node_ports
        if first is None:
            first = {row.name: row.listener.address[1] + 1 for row in listeners}
        self.node_ports = NodePorts(list(listeners), self._bind_node, first, self.lines)
        self.node_ports.on_bound = lambda bound: self.server.add(bound)
        self.dispatcher = ProxyDispatcher(
            self.access.services.authorization,
            self.lines,
            self.note_bug,
            Addresses(self.upstream, self.node_ports.address),
        )
        for row in listeners:
            if row.security is not None:
                row.security.attach(self.access.services)
        if self.logins.are_passed:
            self.dispatcher.refuse_bare_tokens()
        else:
            self.access.answer_logins(self.dispatcher)
        protocols = {row.protocol for row in listeners}
        if has_own_access(self.config.static, protocols, are_passed=self.logins.are_passed):
            self.access.install(self.dispatcher, self.upstream.topic_name)
        limits = ConnectionLimits(self.config, [row.name for row in listeners])
        rates = self._connection_rates = ConnectionRates(
            self.config, limits, self.access.metadata.image, self.access.services.host_names.address
        )
        self.access.on_quota = rates.on_change
        self._opener = UpstreamOpener(
            self._connect, self.upstream, self.logins, self.dispatcher, lambda: self.server.listeners
        )
        self.server = Server(
            self.access.services,
            self.dispatcher,
            list(listeners),
            rates,
            partial(ProxyConnection, self.dispatcher, self._opener.open_for, self._pipes, self._reactor),
        )
        self._on_loaded(self)

    async def _look_up_hosts(self) -> None:
        """Look up the hosts that the stored quotas name."""
        if await self.access.services.host_names.resolve_quotas(self.access.metadata.image.client_quotas):
            self._connection_rates.on_change()

    def note_bug(self) -> None:
        """Count a request or task that failed with an internal error; raise AssertionError if `fail_on_bugs`."""
        self.bugs += 1
        if self.fail_on_bugs:
            raise AssertionError("a request failed with an internal error: see the log")

    # -- for interceptors

    @property
    def known_topics(self) -> Upstream:
        """The topics in upstream's responses so far."""
        return self.upstream

    def watch_metadata(self, on_change: Callable[[UpstreamTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the known topics: with one that is gone, otherwise with None."""
        self.upstream.on_change.append(on_change)

    # -- upstream

    def _on_node(self, node_id: int) -> None:
        self.node_ports.add(node_id, must=self._is_starting)

    async def look_upstream(self) -> None:
        """Ask the cluster for its id, nodes and topics. Where only clients can log in to it, the proxy learns them from
        passing responses instead. Raises UpstreamError if no node can be reached, or none is a Kafka broker.
        """
        reasons = []
        for host, port in self.upstream.bootstrap:
            try:
                await self._look_at(host, port)
                return
            except (KafkaError, OSError, CloseConnection) as error:
                reasons.append(said(error, address_text(host, port)))
        raise UpstreamError(f"the upstream cannot be used: {'; '.join(reasons)}")

    async def _look_at(self, host: str, port: int) -> None:
        with real_time.move_on_after(CONNECT_TIMEOUT_S):
            transport = await self._opener.open(None, host, port, carries_ids=True)
            connection = ClientConnection(transport, sent_on=self.dispatcher.sent_on)
            try:
                self.dispatcher.versions = await self._negotiated(connection, address_text(host, port))
                try:
                    response = await connection.call(MetadataRequest(None, allow_auto_topic_creation=False))
                except KafkaError as error:
                    if error.code is not ErrorCode.NETWORK_EXCEPTION:
                        raise
                    if self.logins.are_of_clients:
                        self.dispatcher.close_hint = CLIENT_WITHOUT_LOGIN
                        log.info(
                            "the upstream asks for a log-in, and the proxy has none of its own: it learns nodes and "
                            "topics from passing responses",
                            upstream=address_text(host, port),
                        )
                    else:
                        self.dispatcher.close_hint = NO_LOGIN
                        log.warning(
                            "the upstream asks for a log-in: say as whom (--upstream-config), or let clients log in "
                            "there (--pass-logins)",
                            upstream=address_text(host, port),
                        )
                    return
                self.upstream.learn_metadata(response)
                self._check_advertised()
                return
            finally:
                connection.close()
        raise CloseConnection(
            f"no response to ApiVersions within {CONNECT_TIMEOUT_S:g} s: is it a Kafka broker?"
        )

    async def _negotiated(self, connection: ClientConnection, about: str) -> ApiVersionsResponse:
        try:
            return await connection.negotiate()
        except KafkaError as error:
            if error.code is LOOP_ERROR:
                raise UpstreamError(f"the upstream cannot be used: {about}: {LOOP}") from error
            security = self.logins.own or self.logins.without_login
            if error.code is ErrorCode.NETWORK_EXCEPTION and (
                security is None or not security.protocol.endswith("SSL")
            ):
                raise KafkaError(error.code, f"{error.message} {PERHAPS_TLS}") from error
            raise

    def _check_advertised(self) -> None:
        """Raises UpstreamError if a node's advertised address is one of this proxy's."""
        own = {bound.listener.address for bound in self.server.listeners}
        own |= {(bound.host, bound.port) for bound in self.server.listeners}
        for node_id, node in self.upstream.nodes.items():
            if node in own:
                raise UpstreamError(
                    f"the upstream cannot be used: its node {node_id} advertises {address_text(*node)}, which is this "
                    "proxy itself (advertised.listeners)"
                )
