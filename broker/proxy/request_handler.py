"""`RequestHandler`: the requests of a client that do not pass as bytes: an interceptor sees them, the proxy answers
them, or a quota or an earlier request made them wait.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.security.login import HANDSHAKE_VERSION
from oncelog.broker.proxy.acks import acks_of
from oncelog.broker.proxy.owed import Awaited, Made, Owed, Shown
from oncelog.broker.proxy.passed_proxies import LoopError, has_ids, ids_of, is_api_versions
from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.wire.framing import encode_request
from oncelog.wire.header import API_VERSIONS_KEY, PRODUCE_KEY, SASL_HANDSHAKE_KEY

if TYPE_CHECKING:
    from oncelog.broker.client.security.login import LoginRequest
    from oncelog.broker.proxy.apis import Plan
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.proxy.link import UpstreamLink
    from oncelog.broker.proxy.upstream_logins import Renewal
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.primitives import Buffer

OWN_CORRELATION_ID = 2**31 - 1
"""The correlation id of the proxy's own requests. A client may use it, too: responses come in order."""

_ids_at = struct.Struct(">ii").unpack_from


class RequestHandler:
    """Handles requests of one client, one at a time."""

    __slots__ = ("_connection", "_dispatcher")

    def __init__(self, connection: ProxyConnection, dispatcher: ProxyDispatcher) -> None:
        self._connection = connection
        self._dispatcher = dispatcher

    async def handle(self, frame: memoryview) -> None:
        """Forward or answer a request. ``frame`` belongs to this connection."""
        connection = self._connection
        key_and_version, correlation_id = _ids_at(frame, 0)
        plan = self._dispatcher.plan(key_and_version)
        if plan.is_refused or (plan.api is None and plan.reads_request):
            await self._respond(Made(self._dispatcher.refuse_version(plan, correlation_id)))
            return
        if plan.key == API_VERSIONS_KEY:
            connection.passed = ids_of(frame) or connection.passed
            if self._dispatcher.passed.is_loop(connection.passed):
                await self._refuse_loop(plan, correlation_id)
                return
        await connection.wait_room()
        if plan.reads_request:
            await self._handle_shown(await self._dispatcher.decode(connection, frame, plan), plan)
            return
        data = memoryview(self._dispatcher.sent_on(frame))
        try:
            link = await self._link_for(data)
        except LoopError:
            if plan.key != API_VERSIONS_KEY:
                raise
            await self._refuse_loop(plan, correlation_id)
            return
        if link is None:
            context = await self._dispatcher.decode(connection, frame, plan)
            known = self._dispatcher.known_versions(context, connection.node_id)
            out = bytearray()
            context.api.encode_response(plan.version, correlation_id, known, out, [])
            await self._respond(Made(bytes(out)))
            return
        if plan.key != PRODUCE_KEY or acks_of(data, 0, plan.is_flexible) != 0:
            connection.owed.append(Owed(correlation_id, plan))
        await link.send(data)

    async def _link_for(self, data: Buffer) -> UpstreamLink | None:
        """Return the upstream connection for a request with its size; None for an ApiVersions that does not go
        upstream, and gets upstream's latest response.

        There is no upstream connection before the client has logged in, since its user is not known. If the request
        opens it and cannot carry ids, the proxy sends an ApiVersions of its own first: before a log-in, Kafka closes a
        connection on which a second one comes. Raises LoopError, CloseConnection, ConnectionLost.
        """
        connection = self._connection
        if connection.must_log_in_since is not None:
            return None
        if connection.is_connected:
            return await connection.connected()
        frame = memoryview(data)[4:]
        carries_ids = has_ids(frame)
        link = await connection.connected(carries_ids=carries_ids)
        return None if is_api_versions(frame) and not carries_ids else link

    async def _refuse_loop(self, plan: Plan, correlation_id: int) -> None:
        """Respond to an ApiVersions that leads into a loop of proxies."""
        peer = self._connection.transport.peer
        await self._respond(Made(self._dispatcher.refuse_loop(plan, correlation_id, peer)))

    async def _handle_shown(self, context: RequestContext, plan: Plan) -> None:
        """Show a request to the interceptors; forward it, or send their response."""
        connection, dispatcher = self._connection, self._dispatcher
        is_owed = False  # from then on, whoever takes it out of `owed` says that the request is done
        try:
            response = await dispatcher.ask(context)
            if response is not None:
                response = dispatcher.interception.if_wanted(context, response)
                if response is None:
                    dispatcher.done(context, None, None)
                    return
            else:
                data = await dispatcher.encode_request(context)
                link = await self._link_for(data)
                if link is None:
                    response = dispatcher.known_versions(context, connection.node_id)
                elif dispatcher.wants_response(context):
                    is_owed = True
                    connection.owed.append(
                        Owed(context.correlation_id, plan, Shown(context, real_time.monotonic()))
                    )
                    await link.send(data)
                    return
                else:
                    await link.send(data)
                    dispatcher.done(context, None, None)
                    return
        except BaseException as failure:
            if isinstance(failure, LoopError) and plan.key == API_VERSIONS_KEY:
                response = dispatcher.loop_response(connection.transport.peer)
            else:
                if not is_owed:
                    dispatcher.done(context, None, failure)
                raise
        await self._respond(Made(b"", context, response))

    async def exchange(self, context: RequestContext) -> Any:
        """Forward ``context.request`` and return its response, which does not leave; `NO_RESPONSE` if it gets none.

        An ApiVersions that does not go upstream gets upstream's latest response. Raises CloseConnection,
        ConnectionLost.
        """
        connection = self._connection
        began = real_time.monotonic()
        data = await self._dispatcher.encode_request(context)
        link = await self._link_for(data)
        if link is None:
            return self._dispatcher.known_versions(context, connection.node_id)
        if link.is_own_task():
            raise RuntimeError("a response cannot wait for another one: call handle in on_request")
        if not self._dispatcher.wants_response(context):
            await link.send(data)
            return NO_RESPONSE
        plan = self._dispatcher.plan_of(context)
        awaited = Awaited()
        connection.owed.append(Owed(context.correlation_id, plan, awaited))
        await link.send(data)
        try:
            return await awaited.wait()
        finally:
            context.handled_s = real_time.monotonic() - began

    async def _respond(self, made: Made) -> None:
        """Send a response that was made here, in its turn."""
        connection = self._connection
        if not connection.is_quiet:
            connection.owed.append(Owed(0, None, made))
            return
        await self.send_made(made)

    async def send_made(self, made: Made) -> None:
        """Send a response whose turn it is."""
        connection = self._connection
        if made.context is None:
            connection.writer.out += made.data
        else:
            await self._dispatcher.respond(made.context, made.response, None, None)
        if connection.writer.out:
            await connection.writer.flush()

    async def renew(self, link: UpstreamLink, renewal: Renewal) -> None:
        """Renew the session at upstream. Raises CloseConnection if upstream refuses the renewal."""
        try:
            login = await renewal.begin()
            request: LoginRequest | None = login.begin()
            while request is not None:
                request = login.following(await self._ask_as_proxy(link, request, renewal))
        except AuthenticationError as error:
            raise CloseConnection(f"the session at upstream cannot be renewed: {error.message}") from None
        renewal.renewed(login)

    async def _ask_as_proxy(self, link: UpstreamLink, request: LoginRequest, renewal: Renewal) -> Any:
        """Send a request of the proxy's own between those of the client. Returns the response, when it has come."""
        connection = self._connection
        key = request.API_KEY
        version = HANDSHAKE_VERSION if key == SASL_HANDSHAKE_KEY else renewal.authenticate_version
        awaited = Awaited()
        connection.owed.append(Owed(OWN_CORRELATION_ID, self._dispatcher.plan(key << 16 | version), awaited))
        await link.send(encode_request(request, version, OWN_CORRELATION_ID, connection.client_id))
        return await awaited.wait()
