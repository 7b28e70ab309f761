"""`UpstreamLink`: the upstream connection of one client, and the responses that come on it.

Where either side is lost, both connections end, as a client would see it of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.proxy.apis import Plan
from oncelog.broker.proxy.dispatcher import LARGE_PAYLOAD_BYTES
from oncelog.broker.proxy.mover import Mover, copied
from oncelog.broker.proxy.receivers import Awaited, Intercepted, OwnResponse
from oncelog.broker.proxy.relay.endpoints import rewrite_fields
from oncelog.broker.proxy.relay.in_flight import ENDPOINTS
from oncelog.broker.proxy.relay.relay import INTERCEPT, LOST, OWN, WAIT, ProtocolError
from oncelog.broker.proxy.relay.responses import ResponseRelay
from oncelog.broker.requests.request import CloseConnection, ConnectionLost
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from oncelog.broker.net.server import Server
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.proxy.relay.in_flight import InFlight
    from oncelog.broker.seams.transport import Transport

READ_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of the largest response that is decoded."""

log = get_logger(__name__)


class UpstreamLink:
    """Owns ``transport``; `run` is a task of its own."""

    __slots__ = ("_client", "_connection", "_dispatcher", "_scope", "_server", "_task", "_transport", "mover")

    def __init__(
        self,
        connection: ProxyConnection,
        dispatcher: ProxyDispatcher,
        server: Server[ProxyConnection],
        transport: Transport,
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._client = connection.transport
        self._dispatcher = dispatcher
        self._server = server
        relay = ResponseRelay(connection.in_flight, transport.peer)
        self.mover = Mover(connection, relay, transport, server.receive_buffer, self._act_on_state)
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a response is still being written to the client although its request is no longer in flight."""
        state = self.mover.relay.state
        return state is not LOST and (state is not WAIT or self.mover.blocked_since is not None)

    def is_own_task(self) -> bool:
        """Whether the task that calls is the one that reads responses."""
        return trio.lowlevel.current_task() is self._task

    def end(self) -> None:
        """Close the upstream connection: the client's has ended."""
        self._transport.close()
        self._scope.cancel()

    async def run(self) -> None:
        """Forward responses until either side is lost; the client's connection ends then, too."""
        connection, upstream = self._connection, self._transport.peer
        self._task = trio.lowlevel.current_task()
        reason: str | None = None
        try:
            with self._scope:
                await self.mover.run()
                if connection.in_flight:
                    why = self._dispatcher.close_hint
                    reason = f"upstream {upstream} closed the connection before it had responded{why}"
        except CloseConnection as why:
            reason = why.reason
        except ProtocolError as why:
            reason = str(why)
        except DecodeError as why:
            reason = f"malformed response from upstream {upstream}: {why}"
        except (OSError, trio.ClosedResourceError, ConnectionLost) as error:
            log.debug("upstream connection lost", peer=upstream, error=str(error))
        except Exception:
            log.exception("a connection failed with an internal error", peer=self._client.peer)
            self._server.note_internal_error()
        finally:
            self.mover.relay.lose()
            self._transport.close()
            if reason is None:
                self._client.close()
            else:
                connection.close(reason)
            connection.note_lost()

    def _act_on_state(self, view: memoryview) -> Awaitable[memoryview]:
        """See `Mover`."""
        state = self.mover.relay.state
        if state is INTERCEPT:
            return self._read_intercepted(view)
        return self._send_own(view) if state is OWN else self._rewrite(view)

    async def _send_own(self, view: memoryview) -> memoryview:
        """Send the proxy's own responses whose turn it is; return a copy of ``view``."""
        view, connection = copied(view), self._connection
        while connection.in_flight and isinstance(own := connection.in_flight[0].receiver, OwnResponse):
            connection.in_flight.popleft()
            await connection.request_handler.send_own(own)
        return view

    async def _rewrite(self, view: memoryview) -> memoryview:
        """Rewrite the node endpoints at the beginning of ``view`` in place. A new node gets its port first, before a
        client is told of it.
        """
        listener = self._connection.listener_name
        fields = view[: self.mover.relay.left]
        rewrite_fields(fields, lambda node: self._dispatcher.learn_and_advertise(node, listener))
        return view

    async def _read_intercepted(self, view: memoryview) -> memoryview:
        """Handle the response at the beginning of ``view``, after the rest of it has come; return a copy of what
        follows.
        """
        connection, upstream = self._connection, self._transport.peer
        size = int.from_bytes(view[:4], "big")
        stop = 4 + size
        if size > READ_BYTES_MAX:
            raise CloseConnection(
                f"a response of {size} bytes from upstream {upstream}, which has to be decoded; the limit is "
                f"{READ_BYTES_MAX}"
            )
        payload, view = bytearray(view[4:stop]), copied(view[stop:])
        await self.mover.read_rest(payload, size, f"upstream {upstream} closed in the middle of a response")
        if not connection.in_flight:
            raise ConnectionLost("the client's connection was lost in the middle of a response")
        await self._respond(connection.in_flight.popleft(), payload)
        if connection.writer.out:
            await connection.writer.flush()
        return view

    async def _respond(self, request: InFlight, payload: bytearray) -> None:
        """Give a response to its receiver, or put it into the client's writer."""
        connection, dispatcher, receiver = self._connection, self._dispatcher, request.receiver
        plan = request.plan
        assert isinstance(plan, Plan), "it has come from upstream"
        assert plan.api is not None, "what cannot be decoded is not intercepted"
        try:
            version, response = await dispatcher.read_response(plan, connection, payload)
        except BaseException as error:
            if isinstance(receiver, Awaited):
                receiver.fail(ConnectionLost(str(error)))
            elif isinstance(receiver, Intercepted):
                dispatcher.done(receiver.context, None, error)
            raise
        if isinstance(receiver, Awaited):
            receiver.give(response)
        elif isinstance(receiver, Intercepted):
            receiver.context.handled_s = real_time.monotonic() - receiver.began
            receiver.context.api_version = version
            await dispatcher.respond(receiver.context, response, payload, plan)
        elif plan.response == ENDPOINTS and not response.node_endpoints:  # it seemed to have some
            connection.writer.out += len(payload).to_bytes(4, "big")
            connection.writer.out += payload
        else:
            writer = connection.writer
            if len(payload) < LARGE_PAYLOAD_BYTES:
                plan.api.encode_response(version, request.correlation_id, response, writer.out, writer.ranges)
            else:
                await dispatcher.interception.encode_in_steps(
                    plan.api, version, request.correlation_id, response, writer
                )
