"""`Interception`: what stands between a request and whatever handles it, and between a response and its client:
interceptors, an authorizer and quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.dispatch.api import LargeResponses
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.request import (
    NO_RESPONSE,
    NOT_DECODED,
    CloseConnection,
    ConnectionLost,
    wait_for_response,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.header import FETCH_KEY, PRODUCE_KEY, SHARE_FETCH_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from oncelog.broker.dispatch.api import Api
    from oncelog.broker.dispatch.interfaces import Interceptor, Quotas
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.net.writer import ResponseWriter
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Message

LARGE_REQUESTS_AT_ONCE = 4
"""Requests with more than `oncelog.wire.compiler.AT_ONCE_ELEMENTS_MAX` elements that a node decodes and handles at the
same time. A Fetch, and what else may wait for long, is one of them until it is decoded."""

log = get_logger(__name__)


class Interception:
    """Interceptors and quotas are installed here, beside the authorizer. `Dispatcher` and the proxy's each have one.

    ``on_installed`` is called after each installation or removal, which holds from the next request on. ``seen_by``
    gives the interceptors that see a request and its response; without it all do.
    """

    def __init__(
        self,
        authorization: Authorization,
        lines: LineLimiter,
        note_internal_error: Callable[[], None],
        on_installed: Callable[[], None],
        seen_by: Callable[[RequestContext], tuple[Interceptor, ...]] | None = None,
    ) -> None:
        self.authorization = authorization
        self.interceptors: tuple[Interceptor, ...] = ()
        self.own: tuple[Interceptor, ...] = ()
        """The last of `interceptors`: those of `install_own`."""
        self.quotas: Quotas | None = None
        """None: nobody is throttled."""
        self.accepts: Callable[[str, int | None], bool] | None = None
        """Asked for every new connection, with the name of its listener, and the id of the node that it stands for; one
        that it refuses is closed at once. None: all are accepted.
        """
        self.large_requests = trio.Semaphore(LARGE_REQUESTS_AT_ONCE)
        """Taken while a request with very many elements is decoded and handled: its objects take much memory."""
        self.large_responses = LargeResponses()
        self._lines = lines
        self._note_internal_error = note_internal_error
        self._on_installed = on_installed
        self._seen_by = seen_by or (lambda context: self.interceptors)

    # -- install and remove

    def install(self, interceptor: Interceptor) -> None:
        """From now on ``interceptor`` sees every request, after the interceptors that were installed earlier, and every
        response, before them. It also sees the responses to requests that wait already. The interceptors of
        `install_own` stay the last.
        """
        outer = self.interceptors[: len(self.interceptors) - len(self.own)]
        self.interceptors = (*outer, interceptor, *self.own)
        self._on_installed()

    def install_own(self, interceptor: Interceptor) -> None:
        """Install an interceptor of the proxy itself, behind the users' interceptors: it checks rights and quotas, or
        answers requests, as a broker's handlers do. It sees every request that goes upstream, also one that another
        interceptor forwards, with all changes of the others.
        """
        self.interceptors += (interceptor,)
        self.own += (interceptor,)
        self._on_installed()

    def remove(self, interceptor: Interceptor) -> None:
        """``interceptor`` sees nothing from now on, not even the response to a request that it has seen.

        Raises ValueError where it is not installed.
        """
        if interceptor not in self.interceptors:
            raise ValueError("the interceptor is not installed")
        self.own = tuple(one for one in self.own if one is not interceptor)
        self.interceptors = tuple(one for one in self.interceptors if one is not interceptor)
        self._on_installed()

    def throttle_with(self, quotas: Quotas | None) -> None:
        """Ask ``quotas`` from now on; None: nobody is throttled. Call it whenever a quota has changed."""
        self.quotas = quotas
        self._on_installed()

    # -- the path

    async def ask(self, context: RequestContext) -> Any:
        """Show a request to the interceptors. Returns the response of the first one that responds; None if none does,
        and the request goes on.
        """
        if context.connection.muted_until:  # by a response that was sent since this request was read
            await context.connection.wait_unmuted()
        for interceptor in self._seen_by(context):
            if interceptor in self.interceptors:  # not removed meanwhile
                response = await interceptor.on_request(context)
                if response is not None:
                    return response
        return None

    async def respond(self, context: RequestContext, response: Any) -> Any:
        """Show the response to the interceptors, throttle, and put it behind the others in the writer. Returns the
        response that is there, or None for none.
        """
        if response is None:
            if context.usage is not None and self.quotas is not None:
                self._throttle(self.quotas, context, None)
            return None
        api, writer = context.api, context.connection.writer
        files = self._file_ranges(api, response) if self.interceptors or self.quotas is not None else ()
        try:
            for interceptor in reversed(self._seen_by(context)):
                if interceptor in self.interceptors:  # not removed meanwhile
                    response = await self.await_or_refuse(context, interceptor.on_response(context, response))
                    if response is None or response is NO_RESPONSE:
                        return None
            if self.quotas is not None:
                self._throttle(self.quotas, context, response)
            start = len(writer.out)
            if not api.row.has_records or context.is_large or context.has_large_response:
                size = await self.encode_in_steps(
                    api, context.api_version, context.correlation_id, response, writer
                )
            else:
                api.encode_response(
                    context.api_version, context.correlation_id, response, writer.out, writer.ranges
                )
                size = 4 + int.from_bytes(writer.out[start : start + 4], "big")
            if self.interceptors or self.quotas is not None:
                context.response_bytes = size
            return response
        finally:
            if files:
                written = {id(file_range) for _, file_range in writer.ranges}
                for file_range in files:
                    if id(file_range) not in written:
                        file_range.release()

    async def encode_in_steps(
        self, api: Api, version: int, correlation_id: int, response: Message, writer: ResponseWriter
    ) -> int:
        """See `Api.encode_in_steps`."""
        return await api.encode_in_steps(version, correlation_id, response, writer, self.large_responses)

    def done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """Tell the interceptors that the request is done (`Interceptor.on_done`), unless it was never decoded: none has
        seen it.
        """
        for interceptor in self._seen_by(context):
            if context.request is NOT_DECODED:
                return
            interceptor.on_done(context, response, failure)

    # -- steps of the path

    async def await_or_refuse(self, context: RequestContext, response: Coroutine[Any, Any, Any]) -> Any:
        """Await ``response`` and return it, or for an error the response that says it. Raises as `refuse`."""
        try:
            return await response
        except Exception as error:
            return await wait_for_response(self.refuse(context, error))

    def refuse(self, context: RequestContext, error: Exception) -> Message | Pending[Message]:
        """Return the response that says an error, or one without it if the version has no field for it. Raises
        CloseConnection and ConnectionLost again, and CloseConnection for a Produce with acks=0.
        """
        if isinstance(error, KafkaError):
            return context.api.refuse(context.request, context.api_version, error)
        if isinstance(error, CloseConnection | ConnectionLost):
            raise error
        self._lines.write(
            log.exception,
            "a request failed with an internal error",
            {
                "api": context.api.row.name,
                "version": context.api_version,
                "error": type(error).__name__,
            },
            client_id=context.client_id,
            correlation_id=context.correlation_id,
        )
        self._note_internal_error()
        return context.api.refuse(
            context.request, context.api_version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        )

    @staticmethod
    def response_to_send(context: RequestContext, response: Any) -> Any:
        """Return the response to send; None for `NO_RESPONSE`, and for a Produce with acks=0.

        Raises CloseConnection for a Produce with acks=0 whose response has an error.
        """
        if response is NO_RESPONSE:
            return None
        if context.api.row.api_key != PRODUCE_KEY:
            return response
        from oncelog.broker.handlers.appends import response_for_acks

        return response_for_acks(response, context.request.acks)

    @staticmethod
    def _file_ranges(api: Api, response: Any) -> list[FileRange]:
        """Return the ranges of files in a response."""
        if api.row.api_key not in (FETCH_KEY, SHARE_FETCH_KEY):
            return []
        from oncelog.broker.fetch.fetch import file_ranges

        return file_ranges(response)

    @staticmethod
    def _throttle(quotas: Quotas, context: RequestContext, response: Any) -> None:
        """Tell the client of its throttling and mute its connection afterwards (KIP-219). The controller, to which the
        request was forwarded, may have put its own into the response.
        """
        connection = context.connection
        throttle_ms = quotas.throttle(connection.principal, context.client_id, context, response)
        if response is not None and context.api.has_throttle_time:
            throttle_ms = max(throttle_ms, response.throttle_time_ms)
        if throttle_ms > 0:
            if response is not None and context.api.has_throttle_time:
                response.throttle_time_ms = throttle_ms
            connection.mute(throttle_ms)
