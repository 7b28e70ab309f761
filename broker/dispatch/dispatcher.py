"""The path of every request: decode, intercept, authorize, handle, throttle, encode.

`Dispatcher.dispatch` is that path, as far as nothing waits; `Dispatcher.complete` is its end for a pending response.
There are two fast paths, each with a file and a key that switches it off: `oncelog.broker.dispatch.fast_produce`, and
`oncelog.broker.fetch.delayed`, where the connection whose Produce satisfies a delayed fetch sends its response.
Installing an interceptor makes both forget what they remember, and nothing is remembered while one is installed: so it
sees every request and every response. So does a changed quota; a request that a quota concerns is intercepted.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.elements import has_many
from oncelog.broker.dispatch.interception import Interception
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.metadata.image import BROKER_LOGGER
from oncelog.broker.requests.request import (
    NO_RESPONSE,
    NOT_DECODED,
    CloseConnection,
    DelayedProduce,
    LargeRequestContext,
    Pending,
    RequestContext,
    wait_for_response,
)
from oncelog.broker.seams.clock import real_time
from oncelog.wire.compiler import ManyElements
from oncelog.wire.errors import DecodeError
from oncelog.wire.header import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    read_request_header,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from oncelog.broker.dispatch.fast_produce import FastProduce
    from oncelog.broker.handlers.services import Forward, Services
    from oncelog.broker.handlers.table import Handle
    from oncelog.broker.net.connection import Connection
    from oncelog.wire.schema import Message

    HandleAsync = Callable[[RequestContext], Awaitable[Any]]

_fixed_header_at = struct.Struct(">hhi").unpack_from


PENDING_S = 0.001
"""Seconds charged at least for a pending response: the work after the handler's return is not measured."""


ELEMENTS_AT_ONCE = 500
"""Elements of a response that is encoded without a break."""


async def _given(response: Message) -> Message:
    return response


def _charged(handle: Handle) -> Handle:
    """Return a handler that charges the connection for the time that each request takes. Many small requests, each
    cheap enough to be handled at once, would otherwise keep the others waiting.
    """

    def handle_and_charge(services: Services, request: Any, context: RequestContext) -> Any:
        began = real_time.monotonic()
        response = handle(services, request, context)
        taken = real_time.monotonic() - began
        context.connection.charge(max(taken, PENDING_S) if isinstance(response, Pending) else taken)
        return response

    return handle_and_charge


def _forwarded(forward: Forward, handle: Handle) -> Handle:
    """Return a handler that has the controller handle requests, but for those about this node's own loggers."""

    def forward_or_handle(services: Services, request: Any, context: RequestContext) -> Any:
        if context.api.row.config_operation is not None and all(
            resource.resource_type == BROKER_LOGGER for resource in request.resources
        ):
            return handle(services, request, context)
        return forward(request, context)

    return forward_or_handle


class Dispatcher:
    """Takes the requests of one node from bytes to bytes. What stands around the handlers is its `interception`."""

    def __init__(self, services: Services) -> None:
        self.interception = Interception(
            services.authorization, services.lines, services.note_internal_error, self._on_installed
        )
        self._authorization = services.authorization
        self._services = services
        self._apis: dict[int, Api] = {}
        """The APIs that were asked for so far, by key."""
        self._may_intercept = False
        """Whether interceptors or quotas are installed: `_intercepts` says which requests they concern."""
        self._uses_fast_produce = services.config.static.oncelog_fast_produce_enable
        self._completes_fetches = services.config.static.oncelog_response_templates_enable
        self.fast_produce: FastProduce | None = None
        """None before the first Produce, with interceptors, and where it is switched off."""
        self.satisfied_fetches = services.delayed_fetches.satisfied
        """Delayed fetches that an append has just satisfied. A connection that finds some calls
        `complete_satisfied_fetches`.
        """

    # -- installed or changed

    def forget(self) -> None:
        """Empty what the fast paths remember: what somebody may do has changed."""
        if self.fast_produce is not None:
            self.fast_produce.forget()
        self._services.delayed_fetches.forget()

    def _on_installed(self) -> None:
        self.forget()
        if self.interception.interceptors:
            self.fast_produce = None
        self._may_intercept = bool(self.interception.interceptors) or self.interception.quotas is not None

    # -- the path

    def dispatch(self, connection: Connection, frame: memoryview) -> Pending[Any] | None:
        """Handle one request, a frame without its size. Append the response to the connection's writer and return None,
        or return a `Pending` one. Raises CloseConnection, DecodeError.
        """
        api_key, version, correlation_id = _fixed_header_at(frame, 0)
        fast, prefixes = self.fast_produce, connection.produce_prefixes
        if fast is not None and api_key == PRODUCE_KEY and prefixes is not None:
            if not connection.pending and fast.append(
                frame, prefixes, version, correlation_id, connection.writer.out
            ):
                return None
            if fast.has_followers:
                delayed = fast.append_delayed(frame, prefixes, version, correlation_id, connection)
                if delayed is not None:
                    return delayed
        if self._may_intercept and self._intercepts(connection, frame):
            return self._dispatch_intercepted(connection, frame)
        try:
            context = self._decode(connection, frame)
        except ManyElements:
            context = self._large_context(connection, frame)
            frame = memoryview(bytearray(frame))  # others use the buffer meanwhile
            large = self._handle_large(
                context, frame, self._authorize_and_handle, may_wait=context.api.row.may_wait
            )
            return self._pending(context, large)
        if connection.pending and api_key != PRODUCE_KEY:
            return self._pending(context, self._handle_in_turn(context))
        try:
            if self._authorization.authorizer is not None:
                self._authorize(context)
            response = context.api.handle(self._services, context.request, context)
        except Exception as error:
            response = self.interception.refuse(context, error)
        if (
            api_key == PRODUCE_KEY
            and self._uses_fast_produce
            and (not isinstance(response, Pending) or self._is_appended_in_cluster(response))
        ):
            self._remember(connection, context, frame, response)
        if response is None:
            return None
        if connection.pending:
            response = self._in_order(context, response)
        elif not isinstance(response, Pending):
            if context.api.row.has_records or not has_many(response, ELEMENTS_AT_ONCE):
                writer = connection.writer
                context.api.encode_response(
                    context.api_version, correlation_id, response, writer.out, writer.ranges
                )
                return None
            response = Pending(_given(response))
        response.context = context
        if isinstance(response, DelayedProduce):
            response.drop_records()
        return response

    def _dispatch_intercepted(self, connection: Connection, frame: memoryview) -> Pending[Any]:
        """As `dispatch`, for a request that an interceptor or a quota concerns. It gets a copy of its frame: others use
        the buffer meanwhile.
        """
        began = real_time.monotonic()
        frame = memoryview(bytearray(frame))
        try:
            context = self._decode(connection, frame)
        except ManyElements:
            context = self._large_context(connection, frame)
        context.frame = frame
        if self.interception.quotas is not None:
            context.usage = self.interception.quotas.begin(context, began)
        if context.is_large:
            large = self._handle_large(context, frame, self._handle_intercepted, may_wait=True)
            return self._pending(context, large)
        if connection.pending and context.api.row.api_key != PRODUCE_KEY:
            return self._pending(context, self._handle_in_turn(context))
        pending = self._pending(context, self._handle_intercepted(context))
        return self._in_order(context, pending) if connection.pending else pending

    async def _handle_large(
        self, context: RequestContext, frame: memoryview, handle: HandleAsync, *, may_wait: bool
    ) -> Any:
        """Decode a request in steps, and let ``handle`` return its response. With ``may_wait`` its turn ends when it is
        decoded: its handler may wait for long.
        """
        api, connection, turns = context.api, context.connection, self.interception.large_requests
        await turns.acquire()
        has_turn = True
        try:
            try:
                start = read_request_header(frame, api.flexible[context.api_version]).header_size
                context.request = await api.decode_in_steps(context.api_version, frame, start)
            except DecodeError as error:
                raise CloseConnection(f"malformed request: {error}") from None
            if may_wait:
                turns.release()
                has_turn = False
            if api.row.api_key != PRODUCE_KEY:
                await connection.wait_drained()
            response = await handle(context)
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
                if self.interception.quotas is not None:
                    self.interception.quotas.finish(pending.context)
        except BaseException as error:
            failure = error
            raise
        finally:
            self.interception.done(pending.context, response, failure)

    async def _complete(self, pending: Pending[Any]) -> Any:
        """Do as `complete`; return the response that is in the writer, or None for none."""
        context = pending.context
        return await self.interception.respond(
            context, await self.interception.await_or_refuse(context, pending.wait())
        )

    def complete_satisfied_fetches(self) -> None:
        """Complete some of `satisfied_fetches`; leave them to their own tasks if that is switched off or interceptors
        see their responses.
        """
        fetches = self._services.delayed_fetches
        if self._completes_fetches and not self.interception.interceptors:
            fetches.complete_satisfied()
        else:
            fetches.leave_to_their_tasks()

    # -- decode

    def _decode(self, connection: Connection, frame: memoryview) -> RequestContext:
        """Make a request of bytes. Raises DecodeError, CloseConnection if the API or version is not served, and
        ManyElements for a request that has to be decoded in steps.
        """
        api_key, version, correlation_id = _fixed_header_at(frame, 0)
        api = self.api(api_key)
        if not api.min_version <= version <= api.max_version:
            if api_key != API_VERSIONS_KEY:
                raise CloseConnection(
                    Reason("version {} of {} (API key {}) is not served", version, api.row.name, api_key)
                )
            # as in Kafka: its handler responds UNSUPPORTED_VERSION, in version 0 (KIP-511)
            return RequestContext(api, 0, correlation_id, None, connection, None)
        header = read_request_header(frame, api.flexible[version])
        decode = api.decoders[version] or api.decoder(version)
        request, _ = decode(frame, header.header_size)
        connection.client_id = header.client_id
        return RequestContext(api, version, correlation_id, header.client_id, connection, request)

    def _large_context(self, connection: Connection, frame: memoryview) -> RequestContext:
        """Make a request that is not decoded yet."""
        api_key, version, correlation_id = _fixed_header_at(frame, 0)
        api = self._apis[api_key]
        client_id = connection.client_id = read_request_header(frame, api.flexible[version]).client_id
        return LargeRequestContext(api, version, correlation_id, client_id, connection, NOT_DECODED)

    def api(self, api_key: int) -> Api:
        """Return an API, loaded. Raises CloseConnection if it is not served."""
        return self._apis.get(api_key) or self._load(api_key)

    def _load(self, api_key: int) -> Api:
        row = self._services.handlers.get(api_key)
        if row is None:
            raise CloseConnection(Reason("API key {} is not served", api_key))
        api = self._apis[api_key] = Api(row)
        # The most frequent requests, those with records, are not measured. Produce charges itself for several batches
        # (`Appends.append`); Fetch and ShareFetch are not charged.
        if not row.has_records:
            api.handle = _charged(api.handle)
        if row.is_forwarded and self._services.forward is not None:
            api.authorize = None  # the controller asks
            api.handle = _forwarded(self._services.forward, api.handle)
        return api

    # -- intercept

    def _intercepts(self, connection: Connection, frame: memoryview) -> bool:
        """Whether interceptors see the request, a quota may throttle it, or its connection is muted."""
        if self.interception.interceptors or connection.muted_until:
            return True
        header = read_request_header(frame, False)  # the client id stands at the same place in all versions
        quotas = self.interception.quotas
        return quotas is not None and quotas.concern(connection.principal, header.client_id, header.api_key)

    async def _handle_intercepted(self, context: RequestContext) -> Any:
        response = await self.interception.ask(context)
        return self.interception.response_to_send(
            context, await self.handle_behind_interceptors(context) if response is None else response
        )

    # -- authorize

    def _authorize(self, context: RequestContext) -> None:
        """Raises KafkaError where the principal may not use the API at all; handlers ask for the rest."""
        check = context.api.authorize
        if check is not None:
            check(self._authorization, context)

    # -- handle

    async def _authorize_and_handle(self, context: RequestContext) -> Any:
        """Authorize and handle, as `dispatch` does, and wait. Returns None for no response."""
        try:
            if self._authorization.authorizer is not None:
                self._authorize(context)
            return await wait_for_response(context.api.handle(self._services, context.request, context))
        except Exception as error:
            return await wait_for_response(self.interception.refuse(context, error))

    async def handle_behind_interceptors(self, context: RequestContext) -> Any:
        """Authorize and handle ``context.request``, without showing it to interceptors. One of them may call it, also
        several times, and return what it returns, or a response of its own.

        Returns the response, `NO_RESPONSE` if the request gets none. Raises CloseConnection, ConnectionLost.
        """
        began = real_time.monotonic()
        try:
            response = await self._authorize_and_handle(context)
            return NO_RESPONSE if response is None else response
        finally:
            context.handled_s = real_time.monotonic() - began

    async def _handle_in_turn(self, context: RequestContext) -> Any:
        """Handle a request after the pending responses before it. In Kafka every request waits, here only a Produce
        is handled at once.
        """
        await context.connection.wait_drained()
        return await (
            self._handle_intercepted(context) if self._may_intercept else self._authorize_and_handle(context)
        )

    def _is_appended_in_cluster(self, response: Pending[Any]) -> bool:
        """Whether the records of a Produce are appended on one of several nodes: the fast path may then remember the
        prefix although the response is pending.
        """
        return self._services.replication is not None and isinstance(response, DelayedProduce)

    def _remember(
        self, connection: Connection, context: RequestContext, frame: memoryview, response: Any
    ) -> None:
        """Let the fast path take requests with the prefix of this Produce, unless the handler refused something."""
        if self.fast_produce is None:
            from oncelog.broker.dispatch.fast_produce import FastProduce

            self.fast_produce = FastProduce(self._services, context.api)
        sent = None if isinstance(response, Pending) else response
        self.fast_produce.remember(connection, context, frame, sent)

    # -- respond in the order of the requests

    @staticmethod
    def _pending(context: RequestContext, response: Coroutine[Any, Any, Any]) -> Pending[Any]:
        pending: Pending[Any] = Pending(response)
        pending.context = context
        return pending

    def _in_order(self, context: RequestContext, response: Message | Pending[Any]) -> Pending[Any]:
        """Make the response to a Produce wait for those before it on its connection."""
        if isinstance(response, DelayedProduce):
            return response
        if isinstance(response, Pending):
            return self._pending(context, _after_others(context, response))
        return DelayedProduce(_ready(response))


async def _after_others(context: RequestContext, pending: Pending[Any]) -> Any:
    """Wait for the response, then until those before it are sent."""
    response = await pending.wait()
    await context.connection.wait_drained()
    return response


async def _ready(response: Message) -> Message:
    return response
