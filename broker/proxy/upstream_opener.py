"""`UpstreamOpener`: opens upstream connections, for clients and for the proxy itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import trio

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import CONNECT_TIMEOUT_S, open_connection
from oncelog.broker.net.server import BoundListener
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.dispatcher import ProxyDispatcher
from oncelog.broker.proxy.passed_proxies import LOOP_ERROR, LoopError
from oncelog.broker.proxy.upstream import Upstream
from oncelog.broker.proxy.upstream_logins import NoUpstreamLogin, Renewal, UpstreamLogins
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import Connect, Transport
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest

_EVERY_ADDRESS = ("0.0.0.0", "::")
NOT_CONNECTED = f"not connected within {CONNECT_TIMEOUT_S:g} s"
ADVERTISED = " (its cluster advertises this address: advertised.listeners)"


class UpstreamOpener:
    """``listeners`` returns the proxy's listeners: a connection to one of them is refused."""

    def __init__(
        self,
        connect: Connect,
        upstream: Upstream,
        logins: UpstreamLogins,
        dispatcher: ProxyDispatcher,
        listeners: Callable[[], Iterable[BoundListener]],
    ) -> None:
        self._connect = connect
        self._upstream = upstream
        self._logins = logins
        self._dispatcher = dispatcher
        self._listeners = listeners
        self._next_bootstrap = 0

    async def open_for(self, client: ProxyConnection, carries_ids: bool) -> Transport:
        """Open the upstream connection of a client. Raises CloseConnection if no node can be reached, LoopError.

        For ``carries_ids`` see `open`.
        """
        if self._dispatcher.passed_proxies.is_loop(client.passed_ids):
            raise LoopError
        if client.node_id is not None:
            node = self._upstream.nodes[client.node_id]
            return await self._open_or_close(
                client, node.host, node.port, carries_ids, of=f" node {client.node_id}"
            )
        bootstrap = self._upstream.bootstrap
        start, self._next_bootstrap = self._next_bootstrap, (self._next_bootstrap + 1) % len(bootstrap)
        # A proxy lives longer than a client: what it has learned of the cluster may outlive the addresses given.
        known = [node for node in self._upstream.nodes.values() if tuple(node) not in bootstrap]
        refused: CloseConnection | None = None
        for host, port in (*bootstrap[start:], *bootstrap[:start], *known):
            try:
                return await self._open_or_close(client, host, port, carries_ids)
            except LoopError:
                raise  # others may lead into the same one: each proxy would try all
            except CloseConnection as why:
                refused = why
        assert refused is not None, "there is a bootstrap server"
        raise refused

    async def _open_or_close(
        self, client: ProxyConnection, host: str, port: int, carries_ids: bool, *, of: str = ""
    ) -> Transport:
        """``of``: the node whose advertised address this is, in words."""
        hint = ADVERTISED if of else ""
        try:
            with real_time.move_on_after(CONNECT_TIMEOUT_S):
                return await self.open(client, host, port, carries_ids=carries_ids)
        except AuthenticationError as error:
            raise CloseConnection(f"upstream {error_text(error, address_text(host, port))}") from error
        except NoUpstreamLogin as error:
            raise CloseConnection(str(error)) from error
        except (OSError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code is LOOP_ERROR:
                raise LoopError from error
            raise CloseConnection(
                f"upstream{of} cannot be reached: {error_text(error, address_text(host, port))}{hint}"
            ) from error
        # The time is over: everything above returns or raises.
        raise CloseConnection(
            f"upstream{of} cannot be reached: {address_text(host, port)}: {NOT_CONNECTED}{hint}"
        )

    async def unreachable_nodes(self) -> list[tuple[int, str, str]]:
        """Try the advertised address of each node, all at once; return those that cannot be reached: the id, the
        address, and why. Bootstrap servers among them are tried when a client comes.
        """
        found: list[tuple[int, str, str]] = []

        async def try_node(node_id: int, host: str, port: int) -> None:
            reason = NOT_CONNECTED
            try:
                with real_time.move_on_after(CONNECT_TIMEOUT_S):
                    transport = await self._connect(host, port)
                    transport.close()
                    return
            except OSError as error:
                reason = error.strerror or str(error)
            found.append((node_id, address_text(host, port), reason))

        async with trio.open_nursery() as nursery:
            for node_id, node in self._upstream.nodes.items():
                if tuple(node) not in self._upstream.bootstrap:
                    nursery.start_soon(try_node, node_id, *node)
        return sorted(found)

    async def _reach(self, host: str, port: int) -> Transport:
        """Connect. Raises OSError, CloseConnection if this is the proxy itself."""
        transport = await self._connect(host, port)
        if self._is_own(transport):
            transport.close()
            raise CloseConnection(
                f"{address_text(host, port)} is this proxy itself: what upstream advertises (advertised.listeners), or "
                "--upstream, must be where the cluster listens"
            )
        return transport

    async def open(
        self, client: ProxyConnection | None, host: str, port: int, *, carries_ids: bool
    ) -> Transport:
        """Connect for a client, or for the proxy itself (None); shake hands, and log in where the client does
        not do that itself. Raises OSError, KafkaError, CloseConnection, NoUpstreamLogin.

        Unless the first request carries the ids of passed proxies (``carries_ids``), the proxy first sends an
        ApiVersions that does.
        """
        security = (
            self._logins.own or self._logins.without_login
            if client is None
            else self._logins.of(client.principal)
        )
        with_passed_ids = partial(
            self._dispatcher.as_forwarded, passed_ids=b"" if client is None else client.passed_ids
        )
        if security is not None and security.mechanism is not None:
            connection = await open_connection(
                self._reach, host, port, security=security, marked=with_passed_ids
            )
            if client is not None and connection.renewal_s is not None:
                version = connection.version_for(SaslAuthenticateRequest)
                client.renewal = Renewal(security, connection.renewal_s, version)
            return connection.detach()
        transport = await self._reach(host, port)
        if security is not None and security.protocol != "PLAINTEXT":
            transport = await security.secured(transport, host)
        if carries_ids:
            return transport
        connection = ClientConnection(transport, marked=with_passed_ids)
        try:
            self._dispatcher.versions = await connection.negotiate()
        except BaseException:
            connection.close()
            raise
        return connection.detach()

    def _is_own(self, transport: Transport) -> bool:
        """Whether a connection leads to a listener of this proxy."""
        host, _, port = transport.peer.rpartition(":")
        for bound in self._listeners():
            own_host, own_port = bound.listener.address
            if str(own_port) == port and (
                own_host == host or (own_host in _EVERY_ADDRESS and transport.local[0] == host)
            ):
                return True
        return False


def error_text(error: Exception, address: str) -> str:
    """Return the message of an error, after the ``address``. It has no error number, and no code that says as much as
    the message.
    """
    text = str(error)
    if isinstance(error, OSError):
        text = error.strerror or text
    elif isinstance(error, KafkaError):
        if isinstance(error, AuthenticationError) or error.code is ErrorCode.NETWORK_EXCEPTION:
            text = error.message or ""
        elif error.code is ErrorCode.UNKNOWN_SERVER_ERROR:  # it violates the protocol
            text = f"{error.message}: is it a Kafka broker?"
    return text if text.startswith(address) else f"{address}: {text}"
