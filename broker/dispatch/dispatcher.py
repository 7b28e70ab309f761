"""The path of every request: decode, interceptors, authorization, handler, quota, encode.

`Dispatcher._dispatch` is that path. While no interceptor is installed, there are two fast paths: `dispatch` is
`_dispatch_fast`, which first tries `oncelog.broker.dispatch.fast_produce`, and the connection whose Produce satisfies a
delayed fetch sends its response (`oncelog.broker.fetch.delayed`). Installing one switches both off and empties what
they remember, so that it sees every request and every response. Quotas, too, empty what they remember, whenever one
changes; then the fast paths take no request that a quota concerns: such a request is intercepted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interception import Interception
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.requests.authorization import CLUSTER_OPERATION
from oncelog.broker.requests.request import (
    NO_RESPONSE,
    NOT_DECODED,
    CloseConnection,
    LargeRequestContext,
    Pending,
    RequestContext,
    finished,
)
from oncelog.broker.seams.clock import real_time
from oncelog.wire.compiler import ManyElements
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.header import (
    API_VERSIONS_KEY,
    FETCH_KEY,
    PRODUCE_KEY,
    SHARE_FETCH_KEY,
    read_request_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.dispatch.fast_produce import FastProduce
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.handlers.table import Handle
    from oncelog.broker.net.connection import Connection
    from oncelog.wire.schema import Message

JOIN_GROUP_KEY, SYNC_GROUP_KEY = 11, 14
MAY_WAIT = frozenset((FETCH_KEY, JOIN_GROUP_KEY, SYNC_GROUP_KEY, SHARE_FETCH_KEY))
"""APIs whose handlers wait for others as long as their clients ask for."""

_prefix_at = struct.Struct(">hhi").unpack_from


PENDING_S = 0.001
"""Seconds that are charged for a response that is not there at once: it may be made without giving others a turn."""


def _charged(handle: Handle) -> Handle:
    """Return the handler of an API whose requests cost their connection the time that they take: many small ones, each
    as costly as may be handled at once, could come together.
    """

    def handle_and_charge(services: Services, request: Any, context: RequestContext) -> Any:
        began = real_time.monotonic()
        response = handle(services, request, context)
        taken = real_time.monotonic() - began
        context.connection.charge(max(taken, PENDING_S) if isinstance(response, Pending) else taken)
        return response

    return handle_and_charge


class Dispatcher(Interception):
    """Takes the requests of one node from bytes to bytes. Interceptors, an authorizer and quotas are installed here."""

    def __init__(self, services: Services) -> None:
        super().__init__(services.authorization, services.lines, services.note_bug)
        self._services = services
        self._apis: dict[int, Api] = {}
        """The APIs that were asked for so far, by key."""
        self._may_intercept = False
        """Whether interceptors or quotas are installed. Interceptors see every request and response; without any, a
        request is intercepted if a quota concerns it.
        """
        self._uses_fast_paths = True
        self._fast_produce: FastProduce | None = None
        """Made with the first Produce."""
        self.satisfied_fetches = services.delayed_fetches.satisfied
        """Delayed fetches that an append has just satisfied. A connection that finds some calls
        `complete_satisfied_fetches`.
        """
        self.dispatch: Callable[[Connection, memoryview], Pending[Any] | None]
        """Handle one request, a frame without its size. Append the response to the connection's writer and return None,
        or return a `Pending` one. Raises CloseConnection, DecodeError.
        """
        self.complete_satisfied_fetches: Callable[[], None]
        self._choose_path()

    # -- what is installed

    def use_fast_paths(self, wanted: bool) -> None:
        """Allow the fast paths while nothing is installed, or forbid them: a test compares both."""
        self._uses_fast_paths = wanted
        self._choose_path()

    def forget(self) -> None:
        """Empty what the fast paths remember: what somebody may do has changed."""
        if self._fast_produce is not None:
            self._fast_produce.forget()
        self._services.delayed_fetches.forget()

    def _on_installed(self) -> None:
        self._choose_path()

    def _choose_path(self) -> None:
        self.forget()
        self._may_intercept = bool(self._interceptors) or self._quotas is not None
        fetches = self._services.delayed_fetches
        if self._uses_fast_paths and not self._interceptors:
            self.dispatch = self._dispatch_fast
            self.complete_satisfied_fetches = fetches.complete_satisfied
        else:
            self.dispatch = self._dispatch
            self.complete_satisfied_fetches = fetches.leave_to_their_tasks

    # -- the path

    def _dispatch_fast(self, connection: Connection, frame: memoryview) -> Pending[Any] | None:
        api_key, version, correlation_id = _prefix_at(frame, 0)
        if api_key != PRODUCE_KEY or connection.pending:
            return self._dispatch(connection, frame)
        prefixes = connection.produce_prefixes
        fast = self._fast_produce
        if (
            prefixes is not None
            and fast is not None
            and fast.handle(frame, prefixes, version, correlation_id, connection.writer.out)
        ):
            return None
        return self._dispatch(connection, frame)

    def _dispatch(self, connection: Connection, frame: memoryview) -> Pending[Any] | None:
        decode = self._decode_intercepted if self._may_intercept else self._decode
        try:
            context = decode(connection, frame)
        except ManyElements:
            return self._dispatch_large(connection, frame)
        if connection.pending and context.api.handler.api_key != PRODUCE_KEY:
            # While responses are pending, only a Produce is handled at once. In Kafka every request waits.
            return self._as_pending(
                connection, context, Pending(self._handle_after_pending(connection, context))
            )
        if context.frame is not None:
            return self._as_pending(connection, context, Pending(self._handle_intercepted(context)))
        response = self._handle(context)
        if (
            context.api.handler.api_key == PRODUCE_KEY
            and self._uses_fast_paths
            and not isinstance(response, Pending)
        ):
            self._remember(connection, context, frame, response)
        if type(response) is context.api.response and not connection.pending:
            writer = connection.writer
            context.api.encode_response(
                context.api_version, context.correlation_id, response, writer.out, writer.ranges
            )
            return None
        return None if response is None else self._as_pending(connection, context, response)

    def _dispatch_large(self, connection: Connection, frame: memoryview) -> Pending[Any]:
        """Return the response to a request that is decoded in steps. The frame is copied: others use the buffer."""
        began = real_time.monotonic()
        frame = memoryview(bytearray(frame))
        api_key, version, correlation_id = _prefix_at(frame, 0)
        api = self._apis[api_key]
        header = read_request_header(frame, api.flexible[version])
        connection.client_id = header.client_id
        context = LargeRequestContext(api, version, correlation_id, header.client_id, connection, NOT_DECODED)
        if self._may_intercept and (self._interceptors or self._concerns_quotas(connection, frame)):
            context.frame = frame
            if self._quotas is not None:
                context.usage = self._quotas.begin(context, began)
        pending = Pending(self._handle_large(connection, context, frame, header.header_size))
        pending.context = context
        return pending

    async def _handle_large(
        self, connection: Connection, context: RequestContext, frame: memoryview, start: int
    ) -> Any:
        turns, has_turn = self._large_requests, True
        await turns.acquire()
        try:
            try:
                context.request = await context.api.decode_in_steps(context.api_version, frame, start)
            except DecodeError as error:
                raise CloseConnection(f"malformed request: {error}") from None
            if context.frame is not None or context.api.handler.api_key in MAY_WAIT:
                turns.release()
                has_turn = False
            if context.api.handler.api_key != PRODUCE_KEY:
                await connection.wait_drained()
            if context.frame is not None:
                response = await self._handle_intercepted(context)
            else:
                response = await finished(self._handle(context))
            await connection.wait_drained()
            return response
        finally:
            if has_turn:
                turns.release()

    async def complete(self, pending: Pending[Any]) -> None:
        """Wait for a response, show it to the interceptors, throttle, and put it behind the others in the writer."""
        response: Any = None
        failure: BaseException | None = None
        try:
            usage = pending.context.usage
            if usage is None:
                response = await self._complete(pending)
            else:
                response = await usage.measured(self._complete(pending))
                if self._quotas is not None:
                    self._quotas.finish(pending.context)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._on_done(pending.context, response, failure)

    async def _complete(self, pending: Pending[Any]) -> Any:
        """Do as `complete`; return the response that is in the writer, or None for none."""
        context = pending.context
        return await self._respond(context, await self._or_refused(context, pending.wait()))

    # -- its steps

    def _decode(self, connection: Connection, frame: memoryview) -> RequestContext:
        """Make a request of bytes. Raises DecodeError, and CloseConnection if the API or version is not served."""
        api_key, version, correlation_id = _prefix_at(frame, 0)
        api = self._apis.get(api_key) or self._load(api_key)
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS_KEY:
                raise CloseConnection(
                    Reason("version {} of {} (API key {}) is not served", version, api.handler.name, api_key)
                )
            return RequestContext(api, 0, correlation_id, None, connection, None)
        header = read_request_header(frame, api.flexible[version])
        decode = api.decoders[version] or api.decoder(version)
        request, _ = decode(frame, header.header_size)
        connection.client_id = header.client_id
        return RequestContext(api, version, correlation_id, header.client_id, connection, request)

    def _decode_intercepted(self, connection: Connection, frame: memoryview) -> RequestContext:
        """As `_decode`; an intercepted request gets a copy of its frame: others use the buffer meanwhile."""
        began = real_time.monotonic()
        if not self._interceptors and not self._concerns_quotas(connection, frame):
            return self._decode(connection, frame)
        frame = memoryview(bytearray(frame))
        context = self._decode(connection, frame)
        context.frame = frame
        if self._quotas is not None:
            context.usage = self._quotas.begin(context, began)
        return context

    def _concerns_quotas(self, connection: Connection, frame: memoryview) -> bool:
        """Whether a request may be throttled, or has to wait because an earlier one of its connection was."""
        if connection.muted_until:
            return True
        header = read_request_header(frame, False)  # the client id stands at the same place in all versions
        quotas = self._quotas
        return quotas is not None and quotas.concern(connection.principal, header.client_id, header.api_key)

    def _load(self, api_key: int) -> Api:
        handler = self._services.handlers.get(api_key)
        if handler is None:
            raise CloseConnection(Reason("API key {} is not served", api_key))
        api = self._apis[api_key] = Api(handler)
        if api_key not in (PRODUCE_KEY, FETCH_KEY, SHARE_FETCH_KEY):
            api.handle = _charged(api.handle)
        return api

    def _remember(
        self, connection: Connection, context: RequestContext, frame: memoryview, response: Any
    ) -> None:
        """Let the fast path take requests with the prefix of this Produce, unless the handler refused something."""
        if self._fast_produce is None:
            from oncelog.broker.dispatch.fast_produce import FastProduce

            self._fast_produce = FastProduce(self._services, context.api)
        self._fast_produce.remember(connection, context, frame, response)

    def _handle(self, context: RequestContext) -> Any:
        """Return the response, a `Pending` one, or None."""
        try:
            if self._authorization.authorizer is not None:
                self._authorize(context)
            return context.api.handle(self._services, context.request, context)
        except KafkaError as error:
            return context.api.refuse(context.request, context.api_version, error)
        except CloseConnection:
            raise
        except Exception as error:
            return self._internal_error(context, error)

    async def _handle_intercepted(self, context: RequestContext) -> Any:
        response = await self._ask_interceptors(context)
        return self.if_wanted(context, await self.handle(context) if response is None else response)

    async def handle(self, context: RequestContext) -> Any:
        """Authorize and handle ``context.request``. See `Interception.handle`."""
        began = real_time.monotonic()
        try:
            response = await self._or_refused(context, finished(self._handle(context)))
            return NO_RESPONSE if response is None else response
        finally:
            context.handled_s = real_time.monotonic() - began

    async def _handle_after_pending(self, connection: Connection, context: RequestContext) -> Any:
        await connection.wait_drained()
        if self._may_intercept:
            return await self._handle_intercepted(context)
        return await finished(self._handle(context))

    def _authorize(self, context: RequestContext) -> None:
        """Raises KafkaError where the principal may not use the API at all; handlers ask for the rest."""
        operation = CLUSTER_OPERATION.get(context.api.handler.api_key)
        if operation is not None:
            self._authorization.require_cluster(context, operation)

    def _as_pending(
        self, connection: Connection, context: RequestContext, response: Message | Pending[Any]
    ) -> Pending[Any]:
        """Make a response `Pending` that cannot go to the writer now; those before it are sent first."""
        if not isinstance(response, Pending):
            pending = Pending(_ready(response), reads_on=True)
        elif connection.pending and not response.reads_on:
            # A Produce that waits before it appends, behind others that wait for the disk.
            pending = Pending(self._in_turn(connection, response))
        else:
            pending = response
        pending.context = context
        if pending.reads_on:
            # The Produce is handled, and its records are in a buffer that others use from now on.
            for topic in context.request.topic_data:
                for partition in topic.partition_data:
                    partition.records = None
        return pending

    @staticmethod
    async def _in_turn(connection: Connection, pending: Pending[Any]) -> Any:
        """Wait for the response, then until those before it are sent."""
        response = await pending.wait()
        await connection.wait_drained()
        return response


async def _ready(response: Message) -> Message:
    return response
