"""`UpstreamLink`: the upstream connection of one client, and the responses that come on it.

What nobody has to see passes to the client from the buffer that all connections share. If the client does not read,
the task waits and reads nothing more from upstream. Where either side is lost, both connections end, as a client
would see it of a broker.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.net.connection import FAIR_BYTES
from oncelog.broker.proxy.apis import ENDPOINTS, READ
from oncelog.broker.proxy.dispatcher import LARGE_PAYLOAD_BYTES
from oncelog.broker.proxy.endpoints import has_endpoints, rewrite_fields
from oncelog.broker.proxy.fetch_walk import FetchWalk
from oncelog.broker.proxy.owed import Awaited, Made, Shown
from oncelog.broker.proxy.splicing import HEAD_READ_BYTES, SPLICE_BYTES_MIN, Splice
from oncelog.broker.proxy.turns import ResponseTurns
from oncelog.broker.requests.request import CloseConnection, ConnectionLost
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.wire.errors import DecodeError
from oncelog.wire.header import FETCH_KEY

if TYPE_CHECKING:
    from oncelog.broker.net.server import Server
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.proxy.owed import Owed
    from oncelog.broker.seams.pipes import Pipes
    from oncelog.broker.seams.reactor import Reactor
    from oncelog.broker.seams.transport import Transport
    from oncelog.wire.primitives import Buffer

WHOLE_BYTES_MAX = 64 * 1024
"""Responses with perhaps node endpoints at their end are waited for up to this size; a larger Fetch response passes as
it comes, but for its end."""
READ_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of the largest response that is decoded."""
FIRST_BYTES = 64 * 1024
"""Bytes that are allocated for a response that has not arrived whole; more as it comes."""

_head_at = struct.Struct(">ii").unpack_from

log = get_logger(__name__)


class UpstreamLink:
    """Owns ``transport``; `run` is a task of its own.

    Large frames go through ``pipes``, and what only passes in turns of ``reactor``, where that can be.
    """

    __slots__ = (
        "_client",
        "_connection",
        "_dispatcher",
        "_is_stopped",
        "_passed_whole",
        "_responses",
        "_scope",
        "_server",
        "_task",
        "_turns",
        "_walk",
        "blocked_since",
        "is_writing",
        "passing",
        "requests",
        "transport",
    )

    def __init__(
        self,
        connection: ProxyConnection,
        dispatcher: ProxyDispatcher,
        server: Server[ProxyConnection],
        transport: Transport,
        pipes: Pipes | None,
        reactor: Reactor | None,
    ) -> None:
        self.transport = transport
        self.blocked_since: float | None = None
        """Since when upstream has read nothing while requests wait for it (real time, seconds)."""
        self.is_writing = False
        """Whether a response is on its way to the client that is owed no more."""
        self._connection = connection
        self._client = connection.transport
        self._dispatcher = dispatcher
        self._server = server
        self.passing = 0
        """Bytes that pass next: the rest of a response of which the beginning has passed, or of records in it."""
        self._walk: FetchWalk | None = None
        """Follows a large Fetch response, up to its node endpoints."""
        self._is_stopped = False
        """Whether the frame after those that have passed is looked at."""
        self.requests: Splice | None = None
        """Moves the rest of a large request."""
        self._responses: Splice | None = None
        """Moves the rest of a large response."""
        if pipes is not None and pipes.can_join(self._client, transport):
            self.requests = Splice(pipes, self._client, transport, connection, self)
            self._responses = Splice(pipes, transport, self._client, connection, connection.writer)
        self._turns: ResponseTurns | None = None
        if reactor is not None and reactor.can_watch(transport):
            self._turns = ResponseTurns(reactor, connection, self, server.receive_buffer)
        self._passed_whole = False
        """Whether nothing was looked at of what was read last: then what comes next probably passes, too."""
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None

    def is_own_task(self) -> bool:
        """Whether the task that calls is the one that reads responses."""
        return trio.lowlevel.current_task() is self._task

    def end(self) -> None:
        """Close the upstream connection: the client's has ended."""
        self.transport.close()
        self._scope.cancel()

    # -- requests

    async def send(self, data: memoryview | Buffer) -> None:
        """Send all of ``data``, which stays unchanged meanwhile. Raises OSError, trio.ClosedResourceError."""
        view = memoryview(data)
        transport = self.transport
        while view:
            sent = transport.send(view)
            if sent == WOULD_BLOCK:
                self.blocked_since = real_time.monotonic()
                await transport.wait_writable()
                self.blocked_since = None
            else:
                view = view[sent:]

    # -- responses

    async def run(self) -> None:
        """Pass responses on until either side is lost; the client's connection ends then, too."""
        connection = self._connection
        self._task = trio.lowlevel.current_task()
        reason: str | None = None
        try:
            with self._scope:
                await self._read_responses()
                if connection.owed:
                    why = self._dispatcher.close_hint
                    reason = (
                        f"upstream {self.transport.peer} closed the connection before it had responded{why}"
                    )
        except CloseConnection as why:
            reason = why.reason
        except DecodeError as why:
            reason = f"malformed response from upstream {self.transport.peer}: {why}"
        except (OSError, trio.ClosedResourceError, ConnectionLost) as error:
            log.debug("upstream connection lost", peer=self.transport.peer, error=str(error))
        except Exception:
            log.exception("a connection failed with an internal error", peer=self._client.peer)
            self._server.note_bug()
        finally:
            self.is_writing = False
            self.transport.close()
            if reason is None:
                self._client.close()
            else:
                connection.close(reason)
            connection.note_lost()

    async def _read_responses(self) -> None:
        transport = self.transport
        shared = self._server.receive_buffer
        connection = self._connection
        rest: Buffer = b""
        limit = len(shared)
        is_empty = False  # whether the last read has probably taken all there was
        since_yield = 0
        while True:
            have = len(rest)
            if have:  # the other connections use the buffer, too
                shared[:have] = rest
            if have >= limit:
                limit = len(shared)
            count = WOULD_BLOCK if is_empty else transport.receive_into(shared[have:limit])
            if count == WOULD_BLOCK:
                is_empty = False
                since_yield = 0
                connection.heard_at = real_time.monotonic()
                if self._turns is None or have or not self._passed_whole or limit < len(shared):
                    await transport.wait_readable()  # this task probably has to do something
                    continue
                unsent, came = await self._turns.run()
                if unsent:
                    await self._send(memoryview(unsent))
                rest = await self._take(memoryview(came))
            elif count == 0:
                return
            else:
                end = have + count
                is_empty = end < limit
                rest = await self._take(shared[:end])
            limit = len(shared)
            if self.passing >= SPLICE_BYTES_MIN and self._responses is not None:
                self.passing = await self._responses.move(self.passing)
                rest = await self._take(shared[:0])  # one that was made here may come next
                limit, is_empty = HEAD_READ_BYTES, False
            connection.note_progress()
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await trio.lowlevel.checkpoint()

    async def _take(self, view: memoryview) -> Buffer:
        """Pass on or look at all frames in ``view``; return the beginning of one that is not known yet."""
        self._passed_whole = True
        while True:
            position = self.pass_responses(view)
            if position:
                run, view = view[:position], view[position:]
                sent = self._client.send(run)
                if sent != position:
                    run = memoryview(bytes(run[max(sent, 0) :]))
                    view = memoryview(bytearray(view))  # others use the buffer while this task waits
                    await self._send(run)
            self.note_writing()
            if self.is_made_next:
                view = memoryview(bytearray(view))
                await self._send_made()
                continue
            if not self._is_stopped:
                return bytes(view)
            self._passed_whole = False
            view = await self._look(view)

    @property
    def is_made_next(self) -> bool:
        """Whether the next response to leave is one that was made here."""
        owed = self._connection.owed
        return bool(owed) and owed[0].plan is None and not self.passing and self._walk is None

    def note_writing(self) -> None:
        """Set whether a response has left in part."""
        self.is_writing = self.passing > 0 or self._walk is not None

    async def _send_made(self) -> None:
        """Send the responses made here whose turn it is."""
        owed = self._connection.owed
        self.is_writing = True
        while owed and owed[0].plan is None:
            made = owed.popleft().to
            assert isinstance(made, Made), "nothing else is made here"
            await self._connection.requests.send_made(made)
        self.is_writing = False

    async def _send(self, view: memoryview) -> None:
        """Send to the client, and wait while it does not read."""
        client, writer = self._client, self._connection.writer
        self.is_writing = True
        while view:
            sent = client.send(view)
            if sent == WOULD_BLOCK:
                writer.blocked_since = real_time.monotonic()
                await client.wait_writable()
                writer.blocked_since = None
            else:
                view = view[sent:]

    def pass_responses(self, view: memoryview) -> int:
        """Return the position of the first byte in ``view`` that does not pass, and set whether it begins a frame
        that is looked at. Raises CloseConnection where upstream breaks the protocol.
        """
        end = len(view)
        position = self.passing
        self._is_stopped = False
        if position > end:
            self.passing = position - end
            return end
        self.passing = 0
        owed = self._connection.owed
        while self._walk is not None or end - position >= 8:
            if self._walk is not None:
                position = self._follow(self._walk, view, position)
                if self._walk is not None:
                    return position
                continue
            size, correlation_id = _head_at(view, position)
            plan = owed[0].plan if owed else None
            if plan is None and owed:
                break  # one that was made here comes before it
            if not owed or owed[0].correlation_id != correlation_id or size < 4:
                self._refuse(size, correlation_id)
            first = owed[0]
            assert plan is not None, "upstream responds to it"
            if first.to is not None or plan.response == READ:
                self._is_stopped = True
                break
            stop = position + 4 + size
            if plan.response == ENDPOINTS:
                is_fetch = plan.key == FETCH_KEY
                if stop <= end:
                    if has_endpoints(view[position:stop], is_fetch=is_fetch):
                        self._is_stopped = True
                        break
                elif size <= WHOLE_BYTES_MAX:
                    break
                elif not is_fetch:
                    self._is_stopped = True
                    break
                else:
                    self._walk = FetchWalk(4 + size)
                    owed.popleft()
                    continue
            owed.popleft()
            if stop > end:
                self.passing = stop - end
                return end
            position = stop
        return position

    def _refuse(self, size: int, correlation_id: int) -> None:
        peer = self.transport.peer
        if size < 4:
            raise CloseConnection(f"upstream {peer} is no Kafka: a frame of {size} bytes")
        if not self._connection.owed:
            raise CloseConnection(f"upstream {peer} has sent a response to no request")
        raise CloseConnection(
            f"upstream {peer} is no Kafka, or breaks its protocol: a response with correlation id {correlation_id}, "
            "which is not the next"
        )

    def _follow(self, walk: FetchWalk, view: memoryview, position: int) -> int:
        """Return the position of the first byte that does not pass, and set how many pass that are still to come.

        The response's own tagged fields wait until they are whole. Node endpoints in them are rewritten in place: the
        response's size has left. Nodes that are new have ports then, before anybody is told of these.
        """
        position, self.passing = walk.advance(view, position)
        stop = position + walk.left
        if walk.is_at_end and stop <= len(view):
            listener = self._connection.listener_name
            rewrite_fields(view[position:stop], lambda node: self._dispatcher.advertised(node, listener))
            self._walk = None
            return stop
        return position

    async def _look(self, view: memoryview) -> memoryview:
        """Handle the response at the beginning of ``view``, after the rest of it has come; return a copy of what
        follows.
        """
        connection = self._connection
        size, _ = _head_at(view, 0)
        stop = 4 + size
        if size > READ_BYTES_MAX:
            raise CloseConnection(
                f"a response of {size} bytes from upstream {self.transport.peer}, which has to be decoded; "
                f"the limit is {READ_BYTES_MAX}"
            )
        payload = bytearray(view[4:stop])
        view = memoryview(bytearray(view[stop:]))
        await self._finish(payload, size)
        entry = connection.owed.popleft()
        self.is_writing = True
        await self._respond(entry, payload)
        if connection.writer.out:
            await connection.writer.flush()
        self.is_writing = False
        return view

    async def _finish(self, payload: bytearray, size: int) -> None:
        """Read the rest of a response."""
        have = len(payload)
        while have < size:
            if have == len(payload):
                payload += bytes(min(size - have, max(FIRST_BYTES, have)))
            with memoryview(payload) as whole:
                count = self.transport.receive_into(whole[have:])
                if count == 0:
                    raise CloseConnection(
                        f"upstream {self.transport.peer} closed in the middle of a response"
                    )
                if count == WOULD_BLOCK:
                    await self.transport.wait_readable()
                else:
                    have += count

    async def _respond(self, entry: Owed, payload: bytearray) -> None:
        """Give a response to who waits for it, or put it into the client's writer."""
        connection, dispatcher, to = self._connection, self._dispatcher, entry.to
        plan = entry.plan
        assert plan is not None, "it has come from upstream"
        assert plan.api is not None, "nobody looks at what cannot be decoded"
        try:
            version, response = await dispatcher.read_response(plan, connection, payload)
        except BaseException as error:
            if isinstance(to, Awaited):
                to.fail(ConnectionLost(str(error)))
            elif isinstance(to, Shown):
                dispatcher.done(to.context, None, error)
            raise
        if isinstance(to, Awaited):
            to.give(response)
        elif isinstance(to, Shown):
            to.context.handled_s = real_time.monotonic() - to.began
            to.context.api_version = version
            await dispatcher.respond(to.context, response, payload, plan)
        elif plan.response == ENDPOINTS and not response.node_endpoints:  # it seemed to have some
            connection.writer.out += len(payload).to_bytes(4, "big")
            connection.writer.out += payload
        else:
            writer = connection.writer
            if len(payload) < LARGE_PAYLOAD_BYTES:
                plan.api.encode_response(version, entry.correlation_id, response, writer.out, writer.ranges)
            else:
                await dispatcher.interception.encode_in_steps(
                    plan.api, version, entry.correlation_id, response, writer
                )
