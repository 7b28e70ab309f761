"""The path of every request: decode, interceptors, authorization, handler, quota, encode.

`Dispatcher._dispatch` is that path. While no interceptor and no quota is installed, there are two fast paths:
`dispatch` is `_dispatch_fast`, which first tries `oncelog.broker.dispatch.fast_produce`, and the connection whose
Produce satisfies a delayed fetch sends its response (`oncelog.broker.fetch.delayed`). Installing one switches both off
and empties what they remember, so that it sees every request and every response.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.authorization import CLUSTER_OPERATION
from oncelog.broker.dispatch.api import Api
from oncelog.broker.logs import get_logger
from oncelog.broker.request import CloseConnection, ConnectionLost, Pending, RequestContext, finished
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.header import API_VERSIONS_KEY, FETCH_KEY, PRODUCE_KEY, read_request_header

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from oncelog.broker.authorization import Authorizer
    from oncelog.broker.dispatch.fast_produce import FastProduce
    from oncelog.broker.dispatch.policies import Interceptor, Quotas
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.net.connection import Connection
    from oncelog.broker.services import Services
    from oncelog.wire.schema import Message

_prefix_at = struct.Struct(">hhi").unpack_from

log = get_logger(__name__)


class Dispatcher:
    """Takes the requests of one node from bytes to bytes. Interceptors, an authorizer and quotas are installed here."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._apis: dict[int, Api] = {}
        """The APIs that were asked for so far, by key."""
        self._interceptors: tuple[Interceptor, ...] = ()
        self._authorization = services.authorization
        self._quotas: Quotas | None = None
        self._is_watched = False
        """Whether interceptors or quotas are installed: every request and response passes them."""
        self._uses_fast_paths = True
        self._fast_produce: FastProduce | None = None
        """Made with the first Produce."""
        self.satisfied_fetches = services.delayed_fetches.satisfied
        """Delayed fetches that an append has just satisfied. A connection that finds some calls
        `complete_satisfied_fetches`.
        """
        self.accepts: Callable[[str], bool] | None = None
        """Asked with the name of its listener for every new connection; one that it refuses is closed at once.
        None: all are accepted.
        """
        self.dispatch: Callable[[Connection, memoryview], Pending[Any] | None]
        """Handle one request, a frame without its size. Append the response to the connection's writer and return None,
        or return a `Pending` one. Raises CloseConnection, DecodeError.
        """
        self.complete_satisfied_fetches: Callable[[], None]
        self._choose_path()

    # -- what is installed

    def install(self, interceptor: Interceptor) -> None:
        """From now on ``interceptor`` sees every request after those that were installed earlier, and every response
        before them. It also sees the responses to Fetches that wait already.
        """
        self._interceptors += (interceptor,)
        self._choose_path()

    def remove(self, interceptor: Interceptor) -> None:
        """``interceptor`` sees nothing from now on, not even the response to a request that it has seen.

        Raises ValueError where it is not installed.
        """
        if interceptor not in self._interceptors:
            raise ValueError("the interceptor is not installed")
        self._interceptors = tuple(one for one in self._interceptors if one is not interceptor)
        self._choose_path()

    def authorize_with(self, authorizer: Authorizer | None) -> None:
        """Ask ``authorizer`` from now on; None: everybody may do everything."""
        self._authorization.authorizer = authorizer
        self._choose_path()

    def throttle_with(self, quotas: Quotas | None) -> None:
        """Ask ``quotas`` from now on; None: nobody is throttled."""
        self._quotas = quotas
        self._choose_path()

    @property
    def has_quotas(self) -> bool:
        """Whether somebody may be throttled."""
        return self._quotas is not None

    def use_fast_paths(self, wanted: bool) -> None:
        """Allow the fast paths while nothing is installed, or forbid them: a test compares both."""
        self._uses_fast_paths = wanted
        self._choose_path()

    def forget(self) -> None:
        """Empty what the fast paths remember: what somebody may do has changed."""
        if self._fast_produce is not None:
            self._fast_produce.forget()
        self._services.delayed_fetches.forget()

    def _choose_path(self) -> None:
        self.forget()
        self._is_watched = bool(self._interceptors) or self._quotas is not None
        fetches = self._services.delayed_fetches
        if self._uses_fast_paths and not self._is_watched:
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
        fronts = connection.produce_fronts
        fast = self._fast_produce
        if (
            fronts is not None
            and fast is not None
            and fast.handle(frame, fronts, version, correlation_id, connection.writer.out)
        ):
            return None
        return self._dispatch(connection, frame)

    def _dispatch(self, connection: Connection, frame: memoryview) -> Pending[Any] | None:
        decode = self._decode_watched if self._is_watched else self._decode
        context = decode(connection, frame)
        if connection.pending and context.api.handler.api_key != PRODUCE_KEY:
            # While responses are pending, only a Produce is handled at once. In Kafka every request waits.
            return self._as_pending(context, Pending(self._handle_after_pending(context)))
        if self._is_watched:
            return self._as_pending(context, Pending(self._handle_watched(context)))
        response = self._handle(context)
        if (
            context.api.handler.api_key == PRODUCE_KEY
            and self._uses_fast_paths
            and not isinstance(response, Pending)
        ):
            self._remember(context, frame, response)
        if type(response) is context.api.response and not connection.pending:
            writer = connection.writer
            context.api.encode_response(
                context.api_version, context.correlation_id, response, writer.out, writer.ranges
            )
            return None
        return None if response is None else self._as_pending(context, response)

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
            for interceptor in self._interceptors:
                interceptor.on_done(pending.context, response, failure)

    async def _complete(self, pending: Pending[Any]) -> Any:
        """Do as `complete`; return the response that is in the writer, or None for none."""
        context = pending.context
        response = await self._or_refused(context, pending.wait())
        if response is None:
            if context.usage is not None and self._quotas is not None:
                self._throttle(self._quotas, context, None)
            return None
        api, writer = context.api, context.connection.writer
        files = self._file_ranges(api, response) if self._is_watched else ()
        try:
            for interceptor in reversed(self._interceptors):
                if interceptor in self._interceptors:  # not removed meanwhile
                    response = await self._or_refused(context, interceptor.on_response(context, response))
                    if response is None:
                        return None
            if self._quotas is not None:
                self._throttle(self._quotas, context, response)
            start = len(writer.out)
            if api.has_long_responses:
                await api.encode_in_steps(context.api_version, context.correlation_id, response, writer.out)
            else:
                api.encode_response(
                    context.api_version, context.correlation_id, response, writer.out, writer.ranges
                )
            if self._is_watched:
                context.response_bytes = 4 + int.from_bytes(writer.out[start : start + 4], "big")
            return response
        finally:
            for file_range in files:
                if all(file_range is not written for _, written in writer.ranges):
                    file_range.release()

    # -- its steps

    def _decode(self, connection: Connection, frame: memoryview) -> RequestContext:
        """Make a request of bytes. Raises DecodeError, and CloseConnection if the API or version is not served."""
        api_key, version, correlation_id = _prefix_at(frame, 0)
        api = self._apis.get(api_key) or self._load(api_key)
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS_KEY:
                raise CloseConnection(
                    f"version {version} of {api.handler.name} (API key {api_key}) is not served"
                )
            return RequestContext(api, 0, correlation_id, None, connection, None)
        header = read_request_header(frame, api.flexible[version])
        decode = api.decoders[version] or api.decoder(version)
        request, _ = decode(frame, header.header_size)
        connection.client_id = header.client_id
        return RequestContext(api, version, correlation_id, header.client_id, connection, request)

    def _decode_watched(self, connection: Connection, frame: memoryview) -> RequestContext:
        """As `_decode`; the frame is in a buffer that others use while interceptors wait."""
        began = real_time.monotonic()
        frame = memoryview(bytearray(frame))
        context = self._decode(connection, frame)
        context.frame = frame
        if self._quotas is not None:
            context.usage = self._quotas.begin(context, began)
        return context

    def _load(self, api_key: int) -> Api:
        handler = self._services.handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"API key {api_key} is not served")
        api = self._apis[api_key] = Api(handler)
        return api

    def _remember(self, context: RequestContext, frame: memoryview, response: Any) -> None:
        """Let the fast path take requests with the front of this Produce, unless the handler refused something."""
        if self._fast_produce is None:
            from oncelog.broker.dispatch.fast_produce import FastProduce

            self._fast_produce = FastProduce(self._services, context.api)
        self._fast_produce.remember(context, frame, response)

    def _handle(self, context: RequestContext) -> Message | Pending[Any] | None:
        try:
            if self._authorization.authorizer is not None:
                self._authorize(context)
            return context.api.handle(self._services, context.request, context)
        except KafkaError as error:
            return context.api.refuse(context.request, context.api_version, error)
        except CloseConnection:
            raise
        except Exception as error:
            return self._own_bug(context, error)

    async def _or_refused(self, context: RequestContext, response: Coroutine[Any, Any, Any]) -> Any:
        """Return the awaited response, or for an error the response that says it. Raises CloseConnection,
        ConnectionLost.
        """
        try:
            return await response
        except KafkaError as error:
            return context.api.refuse(context.request, context.api_version, error)
        except (CloseConnection, ConnectionLost):
            raise
        except Exception as error:
            return self._own_bug(context, error)

    async def _handle_watched(self, context: RequestContext) -> Any:
        if context.connection.muted_until:  # by a response that was sent since this request was read
            await context.connection.wait_unmuted()
        for interceptor in self._interceptors:
            if interceptor in self._interceptors:  # not removed meanwhile
                response = await interceptor.on_request(context)
                if response is not None:
                    return self._if_wanted(context, response)
        return await self.handle(context)

    async def handle(self, context: RequestContext) -> Any:
        """Authorize and handle ``context.request``, as after the last interceptor. An interceptor may call it, also
        several times, and return a response of its own.

        Returns the response, None if the request gets none. Raises CloseConnection, ConnectionLost.
        """
        began = real_time.monotonic()
        try:
            return await self._or_refused(context, finished(self._handle(context)))
        finally:
            context.handled_s = real_time.monotonic() - began

    @staticmethod
    def _if_wanted(context: RequestContext, response: Any) -> Any:
        """Return an interceptor's response, or None for a Produce with acks=0.

        Raises CloseConnection for a Produce with acks=0 whose response has an error.
        """
        if context.api.handler.api_key != PRODUCE_KEY:
            return response
        from oncelog.broker.handlers.produce import response_for_acks

        return response_for_acks(response, context.request.acks)

    async def _handle_after_pending(self, context: RequestContext) -> Any:
        await context.connection.wait_drained()
        if self._is_watched:
            return await self._handle_watched(context)
        return await finished(self._handle(context))

    @staticmethod
    def _file_ranges(api: Api, response: Any) -> list[FileRange]:
        """Return the ranges of files in a response."""
        if api.handler.api_key != FETCH_KEY:
            return []
        from oncelog.broker.fetch.fetch import file_ranges

        return file_ranges(response)

    def _authorize(self, context: RequestContext) -> None:
        """Raises KafkaError where the principal may not use the API at all; handlers ask for the rest."""
        operation = CLUSTER_OPERATION.get(context.api.handler.api_key)
        if operation is not None:
            self._authorization.require_cluster(context, operation)

    @staticmethod
    def _throttle(quotas: Quotas, context: RequestContext, response: Any) -> None:
        """Tell the client of its throttling and mute its connection afterwards (KIP-219)."""
        connection = context.connection
        throttle_ms = quotas.throttle(connection.principal, context.client_id, context, response)
        if throttle_ms > 0:
            if response is not None and context.api.has_throttle_time:
                response.throttle_time_ms = throttle_ms
            until = real_time.monotonic() + throttle_ms / 1000
            connection.muted_until = max(connection.muted_until, until)

    def _as_pending(self, context: RequestContext, response: Message | Pending[Any]) -> Pending[Any]:
        """Make a response `Pending` that cannot go to the writer now; those before it are sent first."""
        connection = context.connection
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

    def _own_bug(self, context: RequestContext, error: Exception) -> Message:
        """Log a defect of ours; return the response for it. Raises CloseConnection if the API has no field for it."""
        self._services.lines.write(
            log.exception,
            "a request failed by our own fault",
            {
                "api": context.api.handler.name,
                "version": context.api_version,
                "error": type(error).__name__,
            },
            client_id=context.client_id,
            correlation_id=context.correlation_id,
        )
        self._services.note_bug()
        return context.api.refuse(
            context.request, context.api_version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        )


async def _ready(response: Message) -> Message:
    return response
