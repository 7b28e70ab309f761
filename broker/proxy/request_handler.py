"""`RequestHandler`: the requests of a client that are not forwarded as bytes: an interceptor sees them, the proxy
answers them, or a quota or an earlier request made them wait.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.security.login import HANDSHAKE_VERSION
from oncelog.broker.proxy.passed_proxies import LoopError, can_carry_ids, ids_of, is_api_versions
from oncelog.broker.proxy.receivers import Awaited, Intercepted, OwnResponse
from oncelog.broker.proxy.relay.acks import acks_of
from oncelog.broker.proxy.relay.in_flight import InFlight
from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.wire.framing import encode_request
from oncelog.wire.header import API_VERSIONS_KEY, PRODUCE_KEY, SASL_HANDSHAKE_KEY

if TYPE_CHECKING:
    from oncelog.broker.client.security.login import LoginRequest
    from oncelog.broker.proxy.apis import Plan
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
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
        if plan.is_refused:
            await self._respond(OwnResponse(self._dispatcher.refuse_version(plan, correlation_id)))
            return
        if plan.key == API_VERSIONS_KEY:
            connection.passed_ids = ids_of(frame) or connection.passed_ids
            if self._dispatcher.passed_proxies.is_loop(connection.passed_ids):
                await self._refuse_loop(plan, correlation_id)
                return
        await connection.wait_room()
        if plan.decodes_request:
            await self._handle_intercepted(await self._dispatcher.decode(connection, frame, plan), plan)
            return
        data = memoryview(self._dispatcher.as_forwarded(frame))
        try:
            goes_upstream = await self._connect_for(data)
        except LoopError:
            if plan.key != API_VERSIONS_KEY:
                raise
            await self._refuse_loop(plan, correlation_id)
            return
        if not goes_upstream:
            context = await self._dispatcher.decode(connection, frame, plan)
            known = self._dispatcher.known_versions(context, connection.node_id)
            out = bytearray()
            context.api.encode_response(plan.version, correlation_id, known, out, [])
            await self._respond(OwnResponse(bytes(out)))
            return
        if plan.key != PRODUCE_KEY or acks_of(data, 0, plan.is_flexible) != 0:
            connection.in_flight.append(InFlight(correlation_id, plan))
        await connection.send(data)

    async def _connect_for(self, data: Buffer) -> bool:
        """Open the upstream connection for a request. ``data`` is the request with its size. Returns whether it goes
        upstream. If an ApiVersions does not, its client gets upstream's latest response to one.

        There is no upstream connection before the client has logged in, since its user is not known. If the request
        opens it and cannot carry ids, the proxy sends its own ApiVersions first. A client's ApiVersions is then not
        forwarded: before a log-in, Kafka closes a connection on a second one. Raises LoopError, CloseConnection,
        ConnectionLost.
        """
        connection = self._connection
        if connection.must_log_in_since is not None:
            return False
        if connection.is_connected:
            await connection.connect()  # raises if it was lost
            return True
        frame = memoryview(data)[4:]
        carries_ids = can_carry_ids(frame)
        await connection.connect(carries_ids=carries_ids)
        return carries_ids or not is_api_versions(frame)

    async def _refuse_loop(self, plan: Plan, correlation_id: int) -> None:
        """Respond to an ApiVersions that leads into a loop of proxies."""
        peer = self._connection.transport.peer
        await self._respond(OwnResponse(self._dispatcher.refuse_loop(plan, correlation_id, peer)))

    async def _handle_intercepted(self, context: RequestContext, plan: Plan) -> None:
        """Show a request to the interceptors; forward it, or send their response."""
        connection, dispatcher = self._connection, self._dispatcher
        is_in_flight = False  # once it is, the code that removes it from the in-flight requests calls `done`
        try:
            response = await dispatcher.ask(context)
            if response is not None:
                response = dispatcher.interception.response_to_send(context, response)
                if response is None:
                    dispatcher.done(context, None, None)
                    return
            else:
                data = await dispatcher.encode_request(context)
                if not await self._connect_for(data):
                    response = dispatcher.known_versions(context, connection.node_id)
                elif dispatcher.wants_response(context):
                    is_in_flight = True
                    receiver = Intercepted(context, real_time.monotonic())
                    connection.in_flight.append(InFlight(context.correlation_id, plan, receiver))
                    await connection.send(data)
                    return
                else:
                    await connection.send(data)
                    dispatcher.done(context, None, None)
                    return
        except BaseException as failure:
            if isinstance(failure, LoopError) and plan.key == API_VERSIONS_KEY:
                response = dispatcher.loop_response(connection.transport.peer)  # this response is sent below
            else:
                if not is_in_flight:
                    dispatcher.done(context, None, failure)
                raise
        await self._respond(OwnResponse(b"", context, response))

    async def exchange(self, context: RequestContext) -> Any:
        """Forward ``context.request`` and return its response, which does not leave; `NO_RESPONSE` if it gets none.

        An ApiVersions that does not go upstream gets upstream's latest response. Raises CloseConnection,
        ConnectionLost.
        """
        connection = self._connection
        began = real_time.monotonic()
        data = await self._dispatcher.encode_request(context)
        if not await self._connect_for(data):
            return self._dispatcher.known_versions(context, connection.node_id)
        if connection.is_response_task():
            raise RuntimeError(
                "a response cannot wait for another one: call handle_behind_interceptors in on_request"
            )
        if not self._dispatcher.wants_response(context):
            await connection.send(data)
            return NO_RESPONSE
        plan = self._dispatcher.plan_of(context)
        awaited = Awaited()
        connection.in_flight.append(InFlight(context.correlation_id, plan, awaited))
        await connection.send(data)
        try:
            return await awaited.wait()
        finally:
            context.handled_s = real_time.monotonic() - began

    async def _respond(self, own: OwnResponse) -> None:
        """Send the proxy's own response, in its turn."""
        connection = self._connection
        if not connection.is_quiet:
            connection.in_flight.append(InFlight(0, None, own))
            return
        await self.send_own(own)

    async def send_own(self, own: OwnResponse) -> None:
        """Send the proxy's own response, whose turn it is."""
        connection = self._connection
        if own.context is None:
            connection.writer.out += own.data
        else:
            await self._dispatcher.respond(own.context, own.response, None, None)
        if connection.writer.out:
            await connection.writer.flush()

    async def renew(self, renewal: Renewal) -> None:
        """Renew the session at upstream. Raises CloseConnection if upstream refuses the renewal."""
        try:
            login = await renewal.begin()
            request: LoginRequest | None = login.begin()
            while request is not None:
                request = login.following(await self._ask_as_proxy(request, renewal))
        except AuthenticationError as error:
            raise CloseConnection(f"the session at upstream cannot be renewed: {error.message}") from None
        renewal.renewed(login)

    async def _ask_as_proxy(self, request: LoginRequest, renewal: Renewal) -> Any:
        """Send a request of the proxy's own between those of the client. Returns the response, when it has come."""
        connection = self._connection
        key = request.API_KEY
        version = HANDSHAKE_VERSION if key == SASL_HANDSHAKE_KEY else renewal.authenticate_version
        awaited = Awaited()
        connection.in_flight.append(
            InFlight(OWN_CORRELATION_ID, self._dispatcher.plan(key << 16 | version), awaited)
        )
        await connection.send(encode_request(request, version, OWN_CORRELATION_ID, connection.client_id))
        return await awaited.wait()
