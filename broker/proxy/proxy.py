"""`Proxy`: the counterpart of `Node`. `open_proxy` opens what it is made of, and closes it in reverse order."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import trio

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.opening import CONNECT_TIMEOUT_S
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.host.host import Host
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.proxy.addresses import Addresses
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.dispatcher import ProxyDispatcher
from oncelog.broker.proxy.node_ports import NodePorts, ports_after
from oncelog.broker.proxy.own_access import answer_logins, install_access
from oncelog.broker.proxy.own_metadata import OwnMetadata
from oncelog.broker.proxy.passed_proxies import LOOP, LOOP_ERROR
from oncelog.broker.proxy.upstream import Upstream, UpstreamError
from oncelog.broker.proxy.upstream_opener import UpstreamOpener, error_text
from oncelog.broker.proxy.used_keys import has_own_access
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.proxy.node_ports import BindNode
    from oncelog.broker.proxy.settings import ProxySettings
    from oncelog.broker.proxy.upstream import UpstreamTopic
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.pipes import Pipes
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Connect
    from oncelog.wire.messages.api_versions import ApiVersionsResponse


PERHAPS_TLS = "(perhaps it wants TLS: security.protocol=SSL in --upstream-config)"
CLIENT_WITHOUT_LOGIN = " (it asks for a log-in; perhaps the client has not logged in)"
NO_LOGIN = " (it asks for a log-in: --upstream-config says as whom, --pass-logins lets clients log in there)"
"""Why an upstream that asks for a log-in may close a connection."""

UNREACHABLE = (
    "an upstream node cannot be reached where its cluster advertises it: its advertised.listeners must lead there from "
    "here"
)

log = get_logger(__name__)


class Proxy:
    """A proxy before one cluster, opened by `open_proxy`. It gets everything outside of it: network, clock, randomness
    and listeners.
    """

    def __init__(
        self,
        host: Host,
        settings: ProxySettings,
        *,
        connect: Connect,
        bind_node: BindNode,
        data_dir: str | None,
        pipes: Pipes | None,
        reactor: Reactor | None,
    ) -> None:
        """See `open_proxy`."""
        self.host = host
        self.data_dir = data_dir
        self.logins = logins = settings.logins
        self.upstream = Upstream(settings.upstream, host.lines, self._on_node)
        listeners = host.listeners
        first = settings.first_node_ports
        if first is None:
            first = ports_after({listener.name: listener.listener.address[1] for listener in listeners})
        self.node_ports = NodePorts(listeners, bind_node, first, host.lines)
        self.dispatcher = ProxyDispatcher(
            host.authorization,
            host.lines,
            host.note_internal_error,
            Addresses(self.upstream, self.node_ports.address),
        )
        if logins.pass_through:
            self.dispatcher.refuse_bare_tokens()
        else:
            answer_logins(host, self.dispatcher)
        protocols = {listener.protocol for listener in listeners}
        if has_own_access(host.config.static, protocols, pass_through=logins.pass_through):
            install_access(host, self.dispatcher, self.upstream.topic_name)
        self._opener = UpstreamOpener(
            connect, self.upstream, logins, self.dispatcher, lambda: self.server.listeners
        )
        self.server = host.new_server(
            self.dispatcher.interception,
            partial(ProxyConnection, self.dispatcher, self._opener.open_for, pipes, reactor),
        )
        self.node_ports.on_bound = self.server.add
        self._reactor = reactor

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; all listeners and connections are closed then.

        Raises UpstreamError for an unusable cluster, ListenError for an unusable port of a node.
        """
        async with (
            nullcontext() if self._reactor is None else self._reactor.running(),
            trio.open_nursery() as nursery,
        ):
            self.host.start_tasks(nursery)
            await nursery.start(self.server.run)
            await self.look_upstream()
            for node_id, address, reason in await self._opener.unreachable_nodes():
                log.warning(UNREACHABLE, node=node_id, address=address, reason=reason)
            self.dispatcher.has_started = True
            task_status.started()

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
        self.node_ports.add(node_id, must=not self.dispatcher.has_started)

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
                reasons.append(error_text(error, address_text(host, port)))
        raise UpstreamError(f"the upstream cannot be used: {'; '.join(reasons)}")

    async def _look_at(self, host: str, port: int) -> None:
        with real_time.move_on_after(CONNECT_TIMEOUT_S):
            transport = await self._opener.open(None, host, port, carries_ids=True)
            connection = ClientConnection(transport, marked=self.dispatcher.as_forwarded)
            try:
                self.dispatcher.versions = await self._negotiated(connection, address_text(host, port))
                try:
                    response = await connection.call(MetadataRequest(None, allow_auto_topic_creation=False))
                except KafkaError as error:
                    if error.code is not ErrorCode.NETWORK_EXCEPTION:
                        raise
                    if self.logins.has_client_logins:
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
        # The time is over: everything above returns or raises.
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


@contextmanager
def open_proxy(
    settings: ProxySettings,
    listeners: Sequence[BoundListener],
    *,
    connect: Connect,
    bind_node: BindNode,
    files: FileSystem,
    clock: Clock,
    rng: random.Random,
    pipes: Pipes | None = None,
    reactor: Reactor | None = None,
    on_loaded: Callable[[Proxy], None] = lambda proxy: None,
) -> Iterator[Proxy]:
    """Open the proxy's own metadata; yield the proxy, for `Proxy.run`. In the end close the metadata, and ``pipes``.

    ``connect`` opens connections to upstream, and ``bind_node`` the listener of a node that has appeared. The data
    directory of the settings keeps users, ACLs and so on of the proxy's own, in ``files``; without it they are in
    memory. Large frames go through ``pipes``, if there are any, else through memory. Bytes that are only forwarded
    move in turns of ``reactor``, if there is one, else in tasks. ``on_loaded`` is called before the proxy listens: it
    may install something in the dispatcher.

    Raises DataDirectoryError for a data directory that cannot be used, for example because another process uses it.
    """
    data_dir = None if settings.data_dir is None else files.absolute_path(settings.data_dir)
    with (
        closing(OwnMetadata(data_dir, files, clock, rng)) as own,
        nullcontext() if pipes is None else closing(pipes),
    ):
        host = Host(
            DynamicBrokerConfig(settings.config),
            own.store,
            listeners,
            files=files,
            clock=clock,
            rng=rng,
            users=settings.users,
            acls=settings.acls,
            background=BackgroundWork(),
        )
        proxy = Proxy(
            host,
            settings,
            connect=connect,
            bind_node=bind_node,
            data_dir=data_dir,
            pipes=pipes,
            reactor=reactor,
        )
        proxy.upstream.on_cluster = own.note_cluster
        on_loaded(proxy)
        yield proxy
