"""One connection: frames in, answers out, in order.

Bytes are read into one buffer that all connections of the loop share, every complete request in it is handled at
once, and the answers leave in one send. Nothing here awaits unless it must: a task switch costs more than a small
Produce. Three rules keep that right:

* Before a handler waits, the unread rest of the shared buffer is copied, and what is ready is sent.
* A connection owns memory only for a frame that is not complete yet; it is reserved in the server's budget.
* After `FAIR_BYTES` or `FAIR_REQUESTS` without a wait the task yields, so that a busy peer starves nobody.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.handlers.table import API_VERSIONS, Api, api, loaded
from oncelog.broker.logs import get_logger
from oncelog.broker.request import CloseConnection, Deferred, Parked, RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK
from oncelog.broker.sending import SEND_SOON_BYTES, Sending
from oncelog.broker.unexpected_bytes import unexpected_bytes
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.header import REQUEST_PREFIX_SIZE, read_request_header

if TYPE_CHECKING:
    from oncelog.broker.ready_answer import ReadyAnswer
    from oncelog.broker.seams.transport import Transport
    from oncelog.broker.server import Server
    from oncelog.wire.schema import Message

SHARED_BUFFER_BYTES = 256 * 1024
"""Size of the receive buffer that all connections share."""
BEGINNING_BYTES = 4 * 1024
"""What is read first after a large frame: most likely another one begins, and what is read of it here is copied."""
FAIR_BYTES = 1024 * 1024
FAIR_REQUESTS = 256
"""How much a connection may do before it yields to the others."""
OTHER_FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of a request that is no Produce: record bytes are not copied, other fields become many times their size."""
PENDING_REPLIES_MAX = 1024
"""Produce answers that may wait for an fsync on one connection before its reading stops."""
WOKEN_FIRST_MAX = 4
"""Fetches that are answered before the Produce that ended their wait; their own tasks answer any others after it."""

_SIZE = struct.Struct(">i")
_PREFIX = struct.Struct(">hhi")
_size_at = _SIZE.unpack_from
_prefix_at = _PREFIX.unpack_from

PRODUCE = 0
"""The API key that may be large, and may overtake an answer that is owed."""

log = get_logger(__name__)


class _Reply:
    """An answer that is owed: to which request, and how to come by it."""

    __slots__ = ("answer", "api", "correlation_id", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        answer: Message | Parked | Coroutine[Any, Any, Message | None],
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.answer = answer

    def close(self) -> None:
        """Nobody will wait for it."""
        if isinstance(self.answer, CoroutineType | Parked):
            self.answer.close()


class Connection(Sending):
    """The state of one peer; `serve` runs until either side closes."""

    __slots__ = (
        "_drained",
        "_lost",
        "_pending",
        "_produce_lengths",
        "_requests",
        "_server",
        "_services",
        "close_reason",
        "in_handler",
        "listener_name",
    )

    def __init__(self, server: Server, transport: Transport, listener_name: str) -> None:
        super().__init__(transport, server.services.files)
        self.listener_name = listener_name
        self._server = server
        self._services = server.services
        self._pending: deque[_Reply] = deque()
        self._drained: trio.Event | None = None
        self._lost = False
        """Whether an answer from `_pending` could not be sent."""
        self._requests = 0
        self._produce_lengths: list[int] = []
        """What `RepeatedProduces` has to know of this connection."""
        self.in_handler = False
        """Whether a request of it is being waited for: such a connection is not idle, unless it is `blocked`."""
        self.close_reason: str | None = None

    async def serve(self) -> None:
        """Answer requests until the peer closes, breaks the protocol, or the server closes the connection."""
        try:
            await self._serve()
        except CloseConnection as why:
            self._log_close(str(why))
        except DecodeError as why:
            self._log_close(f"malformed request: {why}")
        except (OSError, trio.ClosedResourceError) as error:
            if self.close_reason is not None:
                self._log_close(self.close_reason)
            else:
                log.debug("connection lost", peer=self.transport.peer, error=str(error))
        except Exception:
            log.exception("a connection failed by our own fault", peer=self.transport.peer)
            self._services.note_bug()
        finally:
            self.release()
            self.transport.close()
            self._server.forget(self)

    def close(self, reason: str) -> None:
        """Close from another task; `serve` ends with that reason in the log."""
        self.close_reason = reason
        self.transport.close()

    def _log_close(self, reason: str) -> None:
        about = {"reason": reason, "from": self.transport.peer.rpartition(":")[0]}
        self._server.services.lines.write(log.warning, "connection closed", about, peer=self.transport.peer)

    # -- reading

    async def _serve(self) -> None:
        receive_into = self.transport.receive_into
        shared = self._server.receive_buffer
        beginning = shared[:BEGINNING_BYTES]
        buffer = shared
        woken = self._services.woken
        since_yield = 0
        alone = False  # whether what was read was one small request: then no other follows most often
        while True:
            count = WOULD_BLOCK if alone else receive_into(buffer)
            if count == WOULD_BLOCK:
                self.idle_since = real_time.monotonic()
                await self.transport.wait_readable()
                since_yield = self._requests = 0
                alone = False
                continue
            if count == 0:
                await self._wait_drained()
                return
            before = self._requests
            rest = await self._handle_frames(buffer[:count])
            alone = not rest and self._requests == before + 1
            if rest:
                size = await self._finish_frame(rest)
                since_yield += size
                buffer = beginning if size > SHARED_BUFFER_BYTES else shared
            else:
                buffer = shared
            if woken:
                for parked in woken[:WOKEN_FIRST_MAX]:
                    parked.try_send()
                woken.clear()
            if self._out and not self._pending:
                await self._flush()
            since_yield += count
            if since_yield >= FAIR_BYTES:
                since_yield = 0
                await self._yield()

    async def _handle_frames(self, view: memoryview) -> memoryview:
        """Handle every complete frame in ``view``; give the incomplete rest."""
        position, end = 0, len(view)
        is_shared = True
        while end - position >= 4:
            size = self._frame_size(view, position)
            start = position + 4
            if end - start < size:
                break
            position = start + size
            owed = self._dispatch(view[start:position])
            send_now = len(self._out) >= SEND_SOON_BYTES and not self._pending
            if owed is None and not send_now and self._requests < FAIR_REQUESTS:
                continue
            if is_shared:  # others use the buffer while this task waits
                is_shared = False
                view = memoryview(bytearray(view[position:end]))
                position, end = 0, len(view)
            if owed is not None:
                await self._await_owed(owed)
            elif send_now:
                await self._flush()
            if self._requests >= FAIR_REQUESTS:
                await self._yield()
        return view[position:end]

    async def _yield(self) -> None:
        """The others' turn."""
        self._requests = 0
        self.idle_since = real_time.monotonic()
        await trio.lowlevel.checkpoint()

    def _frame_size(self, view: memoryview, position: int) -> int:
        size: int = _size_at(view, position)[0]
        if not 8 <= size <= self._server.max_frame_bytes:
            raise CloseConnection(
                unexpected_bytes(view[position : position + 4])
                or f"a frame of {size} bytes; the limit is {self._server.max_frame_bytes} (socket.request.max.bytes)"
            )
        return size

    async def _finish_frame(self, rest: memoryview) -> int:
        """Read the remainder of a frame that has begun, into memory of its own, and handle it; the frame's size."""
        head = bytearray(rest)
        if self._out and not self._pending:
            await self._flush()
        while len(head) < 4 + REQUEST_PREFIX_SIZE:
            more = bytearray(4 + REQUEST_PREFIX_SIZE - len(head))
            count = await self._receive(memoryview(more))
            head += more[:count]
            if len(head) >= 4:
                self._frame_size(memoryview(head), 0)
        size = 4 + self._frame_size(memoryview(head), 0)
        api_key = _prefix_at(head, 4)[0]
        if size > OTHER_FRAME_BYTES_MAX and api_key != PRODUCE:
            raise CloseConnection(
                unexpected_bytes(head)
                or f"a frame of {size} bytes for API key {api_key}; only a Produce may be so large"
            )
        budget = self._server.frame_budget
        await budget.reserve(size)
        buffer = self._server.take_buffer(size)
        try:
            have = len(head)
            buffer[:have] = head
            while have < size:
                if have == len(buffer):
                    self._server.grow(buffer, size)
                with memoryview(buffer) as whole:
                    have += await self._receive(whole[have : min(size, len(buffer))])
            with memoryview(buffer) as whole:
                owed = self._dispatch(whole[4:size])
            if owed is not None:
                await self._await_owed(owed)
        finally:
            self._server.give_buffer(buffer)
            budget.release(size)
        return size

    async def _receive(self, view: memoryview) -> int:
        """At least one byte into ``view``. Raises CloseConnection where the peer ends in the middle of a frame."""
        with view:
            while True:
                count = self.transport.receive_into(view)
                if count > 0:
                    return count
                if count == 0:
                    raise CloseConnection("the peer closed in the middle of a frame")
                self.idle_since = real_time.monotonic()
                await self.transport.wait_readable()

    # -- handling

    def _dispatch(self, frame: memoryview) -> _Reply | None:
        """Handle one request. What must be waited for is given back; all else is answered or queued already."""
        self._requests += 1
        api_key, version, correlation_id = _prefix_at(frame, 0)
        served = loaded.get(api_key) or api(api_key)
        if served is None:
            raise CloseConnection(f"API key {api_key} is not served")
        if api_key == PRODUCE and not self._pending:
            repeated = self._services.repeated
            if repeated is not None and repeated.answer(
                frame, self._produce_lengths, version, correlation_id, self._out
            ):
                return None
        if not served.min_version <= version <= served.max_version:
            if api_key != API_VERSIONS:
                raise CloseConnection(
                    f"version {version} of {served.handler.name} (API key {api_key}) is not served"
                )
            return self._answer(
                served,
                0,
                correlation_id,
                served.handle(self._services, None, RequestContext(version, correlation_id, None, self)),
            )
        header = read_request_header(frame, served.flexible[version])
        client_id = header.client_id
        decode = served.decoders[version] or served.decoder(version)
        request, _ = decode(frame, header.header_size)
        if api_key == PRODUCE:
            self._remember(served, frame, version, request)
        elif self._pending:
            # Only Produce may overtake an owed answer; anything else waits, as all do in Kafka.
            return _Reply(
                served,
                version,
                correlation_id,
                self._handle_after_pending(served, version, correlation_id, client_id, request),
            )
        context = RequestContext(version, correlation_id, client_id, self)
        return self._answer(served, version, correlation_id, self._handle(served, request, context))

    def _remember(self, served: Api, frame: memoryview, version: int, request: Any) -> None:
        """A Produce was decoded: those that begin like it need not be."""
        repeated = self._services.repeated
        if repeated is None:
            from oncelog.broker.handlers.produce_again import RepeatedProduces

            repeated = self._services.repeated = RepeatedProduces(self._services, served)
        repeated.remember(frame, self._produce_lengths, version, request)

    def _handle(self, served: Api, request: Any, context: RequestContext) -> Any:
        try:
            return served.handle(self._services, request, context)
        except KafkaError as error:
            return served.refuse(context.api_version, error)
        except CloseConnection:
            raise
        except Exception:
            return self._own_bug(served, context)

    def _own_bug(self, served: Api, context: RequestContext) -> Message:
        log.exception(
            "a request failed by our own fault",
            api=served.handler.name,
            version=context.api_version,
            client_id=context.client_id,
            correlation_id=context.correlation_id,
        )
        self._services.note_bug()
        return served.refuse(context.api_version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def _handle_after_pending(
        self, served: Api, version: int, correlation_id: int, client_id: str | None, request: Any
    ) -> Message | None:
        await self._wait_drained()
        context = RequestContext(version, correlation_id, client_id, self)
        answer = self._handle(served, request, context)
        if isinstance(answer, Parked):
            answer = answer.reply
        if isinstance(answer, CoroutineType):
            answer = await answer
        return answer  # type: ignore[no-any-return]

    async def _after_pending(self, answer: Coroutine[Any, Any, Message | None]) -> Message | None:
        """A Produce that waits before it appends: the answers to those before it leave first."""
        found = await answer
        await self._wait_drained()
        return found

    def _answer(self, served: Api, version: int, correlation_id: int, answer: Any) -> _Reply | None:
        if type(answer) is served.response and not self._pending:
            served.encode_answer(version, correlation_id, answer, self._out, self._ranges)
            return None
        if answer is None:
            return None
        if isinstance(answer, CoroutineType) and self._pending:
            answer = self._after_pending(answer)
        if isinstance(answer, CoroutineType | Parked):
            return _Reply(served, version, correlation_id, answer)
        if isinstance(answer, Deferred):
            return self._defer(_Reply(served, version, correlation_id, answer.reply))
        return self._defer(_Reply(served, version, correlation_id, answer))

    async def _await_owed(self, owed: _Reply) -> None:
        answer = owed.answer
        if self._out and not self._pending:
            try:
                await self._flush()
            except BaseException:
                owed.close()
                raise
        self.in_handler = True
        if isinstance(answer, Parked):
            answer.send = partial(self._send_parked, owed)
            answer.prepare(owed.api)
        try:
            await self._resolve(owed)
        finally:
            self.in_handler = False
            if isinstance(answer, Parked):
                answer.send = None
        self.idle_since = real_time.monotonic()

    async def _resolve(self, owed: _Reply) -> None:
        answer: Any = owed.answer
        if isinstance(answer, Parked):
            answer = answer.reply
        if isinstance(answer, CoroutineType):
            try:
                answer = await answer
            except KafkaError as error:
                answer = owed.api.refuse(owed.version, error)
            except (CloseConnection, OSError, trio.ClosedResourceError):
                raise
            except Exception:
                answer = self._own_bug(
                    owed.api, RequestContext(owed.version, owed.correlation_id, None, self)
                )
        if answer is None:
            return
        if owed.api.answers_are_long:
            await owed.api.encode_in_steps(owed.version, owed.correlation_id, answer, self._out)
        else:
            owed.api.encode_answer(owed.version, owed.correlation_id, answer, self._out, self._ranges)

    def _send_parked(self, owed: _Reply, answer: Any, ready: ReadyAnswer | None = None) -> None:
        """See `Parked.send`. Nothing is owed or unsent here; ranges of files are left to the task."""
        try:
            if ready is not None:
                ready.put(owed.correlation_id, answer, self._out)
            else:
                owed.api.encode_answer(owed.version, owed.correlation_id, answer, self._out, self._ranges)
        except Exception:
            self._out.clear()
            self._ranges.clear()
            raise
        if not self._ranges:
            try:
                sent = self.transport.send(self._out)
            except (OSError, trio.ClosedResourceError):  # the task's next send meets it again
                return
            if sent > 0:
                del self._out[:sent]

    # -- answers that wait for the disk while reading goes on

    def _defer(self, reply: _Reply) -> _Reply | None:
        self._pending.append(reply)
        if self._drained is None:
            self._drained = trio.Event()
            self._server.nursery.start_soon(self._reply_in_order, self._drained)
        if len(self._pending) < PENDING_REPLIES_MAX:
            return None
        return _Reply(reply.api, reply.version, reply.correlation_id, self._wait_drained())

    async def _reply_in_order(self, drained: trio.Event) -> None:
        """The task that owns `_pending`. It goes on when the peer is lost: what an answer waits for, the disk, is what
        others wait for to see the records.
        """
        pending = self._pending
        try:
            if self._out:
                await self._unless_lost(self._flush())
            while pending:
                await self._unless_lost(self._resolve(pending[0]))
                if len(pending) == 1 or len(self._out) >= SEND_SOON_BYTES:
                    await self._unless_lost(self._flush())
                # Taken out only now: while it is there, nobody else writes to this connection.
                pending.popleft()
        except Exception:
            log.exception("a connection failed by our own fault", peer=self.transport.peer)
            self._lost = True
            self.close("see the error above")
            self._services.note_bug()
        finally:
            for reply in pending:
                reply.close()
            self._drained = None
            drained.set()

    async def _unless_lost(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except CloseConnection as why:
            self._lost = True
            self.close(str(why))
        except (OSError, trio.ClosedResourceError):
            self._lost = True
            self.transport.close()

    async def _wait_drained(self) -> None:
        while self._drained is not None:
            await self._drained.wait()
        if self._lost:
            raise trio.ClosedResourceError("the peer was lost before its answers could be sent")
