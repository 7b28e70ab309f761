"""`ProxyDispatcher`: the path of an intercepted request. Others never come here: see `oncelog.broker.proxy.relay`.

The path is the broker's (`Interception`), with the upstream node in the handler's place: decode, interceptors, forward;
decode the response, rewrite addresses, interceptors, encode.

An interceptor's `on_request` may have a request handled. Then see it, before upstream:

    handle_behind_interceptors           the interceptors of `Interception.install_own` (rights, quotas)
    forward_through_own_interceptors     those of them behind the one that calls
    forward                              none
"""

from __future__ import annotations

import struct
from copy import copy
from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.interception import Interception
from oncelog.broker.handlers.table import api_name
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.proxy.apis import READ_RESPONSES, KnownApis, Plan
from oncelog.broker.proxy.passed_proxies import LOOP, LOOP_ERROR, PassedProxies
from oncelog.broker.proxy.relay.in_flight import INTERCEPTED
from oncelog.broker.proxy.versions import announced_rows, unsupported_version_response
from oncelog.broker.requests.request import CloseConnection, LargeRequestContext, RequestContext
from oncelog.broker.scheduling.slices import in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.compiler import ManyElements
from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    SASL_HANDSHAKE_KEY,
    has_tagged_response_header,
    read_request_header,
    read_response_header,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.dispatch.interfaces import Interceptor
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.proxy.addresses import Addresses
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.relay.endpoints import Endpoint
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.wire.primitives import Buffer

LARGE_PAYLOAD_BYTES = 64 * 1024
"""Bytes of a response from which on it is decoded in steps."""
PLANS_MAX = 10_000
"""Plans that are remembered: a client may name any API key and version."""

log = get_logger(__name__)


class ProxyDispatcher:
    """``addresses`` rewrites responses. Its `interception` is as in a broker."""

    def __init__(
        self,
        authorization: Authorization,
        lines: LineLimiter,
        note_internal_error: Callable[[], None],
        addresses: Addresses,
    ) -> None:
        self.interception = Interception(
            authorization, lines, note_internal_error, self._on_installed, self._interceptors_for
        )
        self._lines = lines
        self.plans: dict[int, Plan] = {}
        """By the first four bytes of a header, as a number: API key and version."""
        self._apis = KnownApis()
        self._addresses = addresses
        self.passed_proxies = PassedProxies()
        self.has_started = False
        """Whether the proxy serves. A start that finds a loop fails, and says so itself."""
        self.close_hint = ""
        """Why upstream probably closes a connection without a response, for the log; empty where nothing is known."""
        self.versions: ApiVersionsResponse | None = None
        """Upstream's latest ApiVersions response."""
        self._wanting: dict[int, tuple[Interceptor, ...]] = {}
        """The interceptors that want to see an API, by its key."""
        self._refuses_bare_tokens = False

    # -- installed or changed

    def refuse_bare_tokens(self) -> None:
        """Let no SaslHandshake 0 pass: the tokens that follow it have no header."""
        self._refuses_bare_tokens = True
        self._on_installed()

    # -- plans

    def plan(self, key_and_version: int) -> Plan:
        """Return the plan of an API version. ``key_and_version`` is the first four bytes of the request header."""
        found = self.plans.get(key_and_version)
        if found is not None:
            return found
        key, version = struct.unpack(">hh", struct.pack(">i", key_and_version))
        known = self._apis.get(key)
        is_readable = known is not None and known.min_version <= version <= known.max_version
        found = Plan(key, version, known.api if known is not None and is_readable else None)
        self._decide(found)
        while len(self.plans) >= PLANS_MAX:
            del self.plans[next(iter(self.plans))]
        self.plans[key_and_version] = found
        return found

    def _decide(self, plan: Plan) -> None:
        """Set what depends on the interceptors."""
        wanting = self._wanting_api(plan.key)
        if plan.api is not None:
            plan.decodes_request = bool(wanting) or self.interception.quotas is not None
        elif plan.key == API_VERSIONS_KEY:
            plan.is_refused = True  # with a response of version 0 (KIP-511)
        else:
            plan.is_refused = plan.key in READ_RESPONSES or any(not one.only_reads for one in wanting)
        if plan.key == SASL_HANDSHAKE_KEY and plan.version == 0 and self._refuses_bare_tokens:
            plan.is_refused = True
        plan.intercepts_requests = plan.decodes_request or plan.is_refused or plan.key == API_VERSIONS_KEY

    def plan_of(self, context: RequestContext) -> Plan:
        """Return the plan of a request that was decoded."""
        return self.plan((context.api.row.api_key << 16) | context.api_version)

    def _wanting_api(self, key: int) -> tuple[Interceptor, ...]:
        found = self._wanting.get(key)
        if found is None:
            module = self._apis.names.get(key)
            name = None if module is None else api_name(module)
            found = tuple(one for one in self.interception.interceptors if _wants(one, name))
            self._wanting[key] = found
        return found

    def _interceptors_for(self, context: RequestContext) -> tuple[Interceptor, ...]:
        return self._wanting_api(context.api.row.api_key)

    def _on_installed(self) -> None:
        self._wanting.clear()
        for plan in self.plans.values():
            self._decide(plan)

    @property
    def passes_unknown(self) -> bool:
        """Whether APIs that are unknown here may pass: no interceptor that changes requests wants them."""
        return all(one.only_reads or not _wants(one, None) for one in self.interception.interceptors)

    # -- requests

    async def decode(self, connection: ProxyConnection, frame: memoryview, plan: Plan) -> RequestContext:
        """Decode a request, a large one in steps. ``frame`` belongs to the request from now on. Raises DecodeError."""
        api = plan.api
        assert api is not None, "a plan without an API is not decoded"
        header = read_request_header(frame, api.flexible[plan.version])
        kind: type[RequestContext] = RequestContext
        began = real_time.monotonic()
        try:
            request, _ = api.decoder(plan.version)(frame, header.header_size)
        except ManyElements:
            kind = LargeRequestContext
            async with self.interception.large_requests:
                request = await api.decode_in_steps(plan.version, frame, header.header_size)
        connection.client_id = header.client_id
        context = kind(api, plan.version, header.correlation_id, header.client_id, connection, request)
        context.frame = frame
        if self.interception.quotas is not None:
            context.usage = self.interception.quotas.begin(context, began)
        return context

    async def ask(self, context: RequestContext) -> Any:
        """Show a request to the interceptors. Returns the response of the first one that responds, None to forward it.

        Raises CloseConnection, ConnectionLost.
        """
        return await self.interception.await_or_refuse(context, self.interception.ask(context))

    async def handle_behind_interceptors(self, context: RequestContext) -> Any:
        """Show ``context.request`` to the interceptors of `Interception.install_own`, forward it, and wait for the
        response. For the `on_request` of other interceptors only.
        """
        return await self.interception.await_or_refuse(
            context, self.forward_through_own_interceptors(context)
        )

    async def forward_through_own_interceptors(
        self, context: RequestContext, after: Interceptor | None = None
    ) -> Any:
        """Show a request to the interceptors of `Interception.install_own`, or to those behind ``after``, and forward
        it. Returns the response, `NO_RESPONSE` if it gets none. Raises KafkaError, CloseConnection, ConnectionLost.
        """
        own = self.interception.own
        if after is not None:
            # Only quotas are removed while requests are under way, and they are the last ones.
            own = own[own.index(after) + 1 :] if after in own else ()
        wanting = self._interceptors_for(context)
        for interceptor in own:
            if interceptor in wanting:
                response = await interceptor.on_request(context)
                if response is not None:
                    return response
        return await self.forward(context)

    async def forward(self, context: RequestContext) -> Any:
        """Forward ``context.request`` and show it to no interceptor. Returns its response, `NO_RESPONSE` if it
        gets none.

        Only for `Interceptor.on_request`. Raises CloseConnection, ConnectionLost.
        """
        connection: Any = context.connection
        return await connection.request_handler.exchange(context)

    async def encode_request(self, context: RequestContext, *, is_changed: bool = True) -> Buffer:
        """Return the bytes to forward, with their size. Raises ValueError for a field that the version does not have.

        The header is the client's. So is the body, unless an interceptor may have changed it.
        """
        frame = context.frame
        assert frame is not None, "the request was decoded here"
        if not is_changed or all(one.only_reads for one in self._interceptors_for(context)):
            body: Buffer = frame
        else:
            header = read_request_header(frame, context.api.flexible[context.api_version])
            head = frame[: header.header_size]
            if context.is_large:
                out = bytearray(head)
                await in_slices(
                    context.api.request_step_encoder(context.api_version)(context.request, out, [])
                )
                body = out
            else:
                body = bytes(head) + context.request.encode(context.api_version)
        return self.as_forwarded(body)

    def as_forwarded(self, frame: Buffer, passed_ids: bytes = b"") -> bytes:
        """Return a request as it goes upstream, with its size; see `PassedProxies.with_own_id`. Raises DecodeError."""
        body = self.passed_proxies.with_own_id(frame, passed_ids)
        return b"".join((len(body).to_bytes(4, "big"), body))

    def wants_response(self, context: RequestContext) -> bool:
        """Whether upstream responds to the request: to all but a Produce with acks=0."""
        return context.api.row.api_key != PRODUCE_KEY or context.request.acks != 0

    # -- responses

    async def read_response(self, plan: Plan, connection: ProxyConnection, payload: Buffer) -> Any:
        """Decode a response, a large one in steps, and rewrite it for the client. Returns the version of its encoding,
        and the response.

        Raises DecodeError, CloseConnection.
        """
        api, version = plan.api, plan.version
        assert api is not None, "a plan without an API is not decoded"
        tagged = has_tagged_response_header(plan.key, api.flexible[version])
        _, start = read_response_header(payload, tagged)
        if plan.key == API_VERSIONS_KEY:
            if int.from_bytes(payload[start : start + 2], "big") == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
            response: Any = api.response.decode(payload, version, start)
            if not response.error_code:
                # Decoded again: the other object is changed for this client.
                self.versions = api.response.decode(payload, version, start)  # type: ignore[assignment]
            response.api_keys = announced_rows(response.api_keys, passes_unknown=self.passes_unknown)
            return version, response
        if len(payload) < LARGE_PAYLOAD_BYTES:
            response = api.response.decode(payload, version, start)
        else:
            response = await api.decode_response_in_steps(version, payload, start)
        await in_slices(self._addresses.rewrite(plan.key, response, connection.listener_name))
        return version, response

    def learn_and_advertise(self, node: Endpoint, listener: str) -> tuple[str, int]:
        """See `Addresses.learn_and_advertise`."""
        return self._addresses.learn_and_advertise(node.node_id, node.host, node.port, listener)

    async def respond(
        self, context: RequestContext, response: Any, payload: Buffer | None, plan: Plan | None
    ) -> None:
        """Show a response to the interceptors and put it into the writer; count the loop's time for a quota.

        Arguments and errors: see `_show_response`.
        """
        responding = self._show_response(context, response, payload, plan)
        if context.usage is None:
            await responding
        else:
            await context.usage.measured(responding)

    async def _show_response(
        self, context: RequestContext, response: Any, payload: Buffer | None, plan: Plan | None
    ) -> None:
        """Show a response to the interceptors and put it into the writer. ``payload`` has upstream's bytes of it, which
        leave as they are if nobody may have changed the response; None for a response that was made here.

        Raises CloseConnection, ConnectionLost.
        """
        wanting = self._interceptors_for(context)
        sent: Any = None
        failure: BaseException | None = None
        try:
            if (
                payload is None
                or plan is None
                or plan.response == INTERCEPTED
                or self.interception.quotas is not None
                or not all(one.only_reads for one in wanting)
            ):
                sent = await self.interception.respond(context, response)
                return
            for interceptor in reversed(wanting):
                await self.interception.await_or_refuse(context, interceptor.on_response(context, response))
            out = context.connection.writer.out
            out += len(payload).to_bytes(4, "big")
            out += payload
            context.response_bytes = 4 + len(payload)
            sent = response
        except BaseException as error:
            failure = error
            raise
        finally:
            self.done(context, sent, failure)

    def done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """The request is done; see `Interceptor.on_done`."""
        if context.usage is not None and self.interception.quotas is not None:
            self.interception.quotas.finish(context)
        self.interception.done(context, response, failure)

    def known_versions(self, context: RequestContext, node_id: int | None) -> ApiVersionsResponse:
        """Return upstream's latest ApiVersions response, for a request that does not go upstream: the client has not
        logged in, or the proxy has sent its own ApiVersions in its place.

        ``node_id`` is the node whose port the client has connected to; None for the proxy's own address, where any node
        may answer. Raises CloseConnection if upstream has not answered yet.
        """
        from oncelog.broker.handlers.api_versions import is_misdirected, is_valid

        request: ApiVersionsRequest = context.request
        if self.versions is None:
            raise CloseConnection("upstream has not answered an ApiVersions yet")
        if not is_valid(request, context.api_version):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        cluster_id = self._addresses.cluster_id or request.cluster_id or ""
        if is_misdirected(request, cluster_id, request.node_id if node_id is None else node_id):
            return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
        context.connection.knows_versions = True
        response = copy(self.versions)
        response.api_keys = announced_rows(response.api_keys, passes_unknown=self.passes_unknown)
        return response

    def loop_response(self, peer: str) -> ApiVersionsResponse:
        """Return the response to an ApiVersions that leads into a loop of proxies, and log it."""
        if self.has_started:
            self._lines.write(log.error, LOOP, {}, peer=peer)
        return ApiVersionsResponse(LOOP_ERROR)

    def refuse_loop(self, plan: Plan, correlation_id: int, peer: str) -> bytes:
        """Return `loop_response` with its size."""
        assert plan.api is not None, "an unknown version is refused"
        out = bytearray()
        plan.api.encode_response(plan.version, correlation_id, self.loop_response(peer), out, [])
        return bytes(out)

    @staticmethod
    def refuse_version(plan: Plan, correlation_id: int) -> bytes:
        """Return the response, with its size, to an ApiVersions of an unknown version. Raises CloseConnection for any
        other API.
        """
        if plan.key != API_VERSIONS_KEY:
            raise CloseConnection(Reason("version {} of API key {} is not served", plan.version, plan.key))
        body = unsupported_version_response().encode(0)
        return struct.pack(">ii", len(body) + 4, correlation_id) + body


def _wants(interceptor: Interceptor, name: str | None) -> bool:
    """Whether an interceptor wants to see an API; None: one that is unknown here."""
    if interceptor.apis is None:
        return True
    return not interceptor.unknown_apis_pass if name is None else name in interceptor.apis
