"""`ProxyDispatcher`: which requests and responses are looked at, and what is done with those.

What nobody has to see passes as bytes (`oncelog.broker.proxy.connection`). The rest takes the broker's path
(`Interception`), with the upstream node in the place of a handler: decode, interceptors, forward; decode the
response, rewrite addresses, interceptors, encode.
"""

from __future__ import annotations

import struct
from copy import copy
from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.interception import Interception
from oncelog.broker.handlers.table import api_name
from oncelog.broker.logs import get_logger
from oncelog.broker.proxy.apis import READ, REWRITTEN, KnownApis, Plan
from oncelog.broker.proxy.passed_proxies import LOOP, LOOP_ERROR, PassedProxies
from oncelog.broker.proxy.versions import passable, unsupported
from oncelog.broker.request import CloseConnection, RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import (
    API_VERSIONS_KEY,
    PRODUCE_KEY,
    has_tagged_response_header,
    read_request_header,
    read_response_header,
)
from oncelog.wire.messages.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.authorization import Authorization
    from oncelog.broker.dispatch.policies import Interceptor
    from oncelog.broker.line_limiter import LineLimiter
    from oncelog.broker.proxy.addresses import Addresses
    from oncelog.broker.proxy.connection import ProxyConnection
    from oncelog.broker.proxy.endpoints import Endpoint
    from oncelog.wire.primitives import Buffer

SASL_HANDSHAKE_KEY = 17
PLANS_MAX = 10_000
"""API versions that are remembered; a client may name any."""

log = get_logger(__name__)


class ProxyDispatcher(Interception):
    """``addresses`` rewrites responses. Interceptors, an authorizer and quotas are installed here, as in a broker."""

    def __init__(
        self,
        authorization: Authorization,
        lines: LineLimiter,
        note_bug: Callable[[], None],
        addresses: Addresses,
    ) -> None:
        super().__init__(authorization, lines, note_bug)
        self.plans: dict[int, Plan] = {}
        """By the first four bytes of a header, as a number: API key and version."""
        self._apis = KnownApis()
        self._addresses = addresses
        self.passed = PassedProxies()
        self.has_started = False
        """Whether the proxy serves. A start that finds a loop fails, and says so itself."""
        self.versions: ApiVersionsResponse | None = None
        """Upstream's latest ApiVersions response."""
        self._wanting: dict[int, tuple[Interceptor, ...]] = {}
        """The interceptors that want to see an API, by its key."""
        self._own: tuple[Interceptor, ...] = ()
        """The last of the interceptors: `install_own`."""

    # -- what is installed

    def install(self, interceptor: Interceptor) -> None:
        """See `Interception.install`. What `install_own` was given stays nearest to upstream."""
        outer = self._interceptors[: len(self._interceptors) - len(self._own)]
        self._interceptors = (*outer, interceptor, *self._own)
        self._on_installed()

    def install_own(self, interceptor: Interceptor) -> None:
        """Install what a broker does behind its interceptors: rights and quotas, and handlers of the proxy's own. A
        request passes it whoever forwards it, and after all that others have changed in it.
        """
        self._interceptors += (interceptor,)
        self._own += (interceptor,)
        self._on_installed()

    def remove(self, interceptor: Interceptor) -> None:
        """See `Interception.remove`."""
        self._own = tuple(one for one in self._own if one is not interceptor)
        super().remove(interceptor)

    # -- what is looked at

    def plan(self, key_and_version: int) -> Plan:
        """Return what becomes of the requests of an API version."""
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
            plan.reads_request = bool(wanting) or self._quotas is not None
        elif plan.key == API_VERSIONS_KEY:
            plan.reads_request = True
        else:
            plan.is_refused = plan.key in REWRITTEN or any(not one.only_reads for one in wanting)
        if plan.key == SASL_HANDSHAKE_KEY and plan.version == 0:  # tokens without headers follow it
            plan.is_refused = True
        plan.needs_look = plan.reads_request or plan.is_refused or plan.key == API_VERSIONS_KEY

    def plan_of(self, context: RequestContext) -> Plan:
        """Return the plan of a request that was decoded."""
        return self.plan((context.api.handler.api_key << 16) | context.api_version)

    def _wanting_api(self, key: int) -> tuple[Interceptor, ...]:
        found = self._wanting.get(key)
        if found is None:
            module = self._apis.names.get(key)
            name = None if module is None else api_name(module)
            found = tuple(one for one in self._interceptors if one.apis is None or name in one.apis)
            self._wanting[key] = found
        return found

    def _interceptors_for(self, context: RequestContext) -> tuple[Interceptor, ...]:
        return self._wanting_api(context.api.handler.api_key)

    def _on_installed(self) -> None:
        self._wanting.clear()
        for plan in self.plans.values():
            self._decide(plan)

    @property
    def passes_unknown(self) -> bool:
        """Whether APIs that are unknown here may pass: nobody who may change something has to see all."""
        return all(one.apis is not None or one.only_reads for one in self._interceptors)

    # -- requests

    def decode(self, connection: ProxyConnection, frame: memoryview, plan: Plan) -> RequestContext:
        """Make a request of bytes, which nobody else uses. Raises DecodeError."""
        api = plan.api
        assert api is not None, "a plan without an API is not decoded"
        header = read_request_header(frame, api.flexible[plan.version])
        request, _ = api.decoder(plan.version)(frame, header.header_size)
        connection.client_id = header.client_id
        context = RequestContext(
            api, plan.version, header.correlation_id, header.client_id, connection, request
        )
        context.frame = frame
        if self._quotas is not None:
            context.usage = self._quotas.begin(context, real_time.monotonic())
        return context

    async def ask(self, context: RequestContext) -> Any:
        """Show a request to the interceptors. Returns what the one returns that responds, None to forward it.

        Raises CloseConnection, ConnectionLost.
        """
        return await self._or_refused(context, self._ask_interceptors(context))

    async def handle(self, context: RequestContext) -> Any:
        """See `Interception.handle`: forward the request, as far as the client may, and wait for the response. Only
        for `Interceptor.on_request`, and not for those of `install_own`.
        """
        return await self._or_refused(context, self.pass_on(context))

    async def pass_on(self, context: RequestContext, after: Interceptor | None = None) -> Any:
        """Show a request to those of `install_own`, or to those after one of them, and forward it. Returns the
        response, `NO_RESPONSE` if it gets none. Raises KafkaError, CloseConnection, ConnectionLost.
        """
        own = self._own
        if after is not None:
            own = (
                own[own.index(after) + 1 :] if after in own else ()
            )  # quotas, the last ones, were removed meanwhile
        wanting = self._interceptors_for(context)
        for interceptor in own:
            if interceptor in wanting:
                response = await interceptor.on_request(context)
                if response is not None:
                    return response
        return await self.forward(context)

    async def forward(self, context: RequestContext) -> Any:
        """Forward ``context.request`` and return its response, `NO_RESPONSE` if it gets none: nobody is asked.

        Only for `Interceptor.on_request`. Raises CloseConnection, ConnectionLost.
        """
        connection: Any = context.connection
        return await connection.requests.exchange(context)

    def encode_request(self, context: RequestContext, *, is_changed: bool = True) -> Buffer:
        """Return the bytes to forward, with their size. Raises ValueError for what the version cannot hold.

        The header is the client's. So is the body, if all who may have changed it only read.
        """
        frame = context.frame
        assert frame is not None, "the request was decoded here"
        if not is_changed or all(one.only_reads for one in self._interceptors_for(context)):
            body: Buffer = frame
        else:
            header = read_request_header(frame, context.api.flexible[context.api_version])
            body = bytes(frame[: header.header_size]) + context.request.encode(context.api_version)
        return self.sent_on(body)

    def sent_on(self, frame: Buffer) -> bytes:
        """Return a request as it goes upstream, with its size. Raises DecodeError."""
        body = self.passed.added(frame)
        return b"".join((len(body).to_bytes(4, "big"), body))

    def wants_response(self, context: RequestContext) -> bool:
        """Whether upstream responds to the request: to all but a Produce with acks=0."""
        return context.api.handler.api_key != PRODUCE_KEY or context.request.acks != 0

    # -- responses

    def read_response(self, plan: Plan, connection: ProxyConnection, payload: Buffer) -> Any:
        """Decode a response and rewrite it for the client. Returns the version in which it is, and the response.

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
                self.versions = api.response.decode(payload, version, start)  # type: ignore[assignment]
            response.api_keys = passable(response.api_keys, passes_unknown=self.passes_unknown)
            return version, response
        response = api.response.decode(payload, version, start)
        self._addresses.rewrite(plan.key, response, connection.listener_name)
        return version, response

    def presented(self, node: Endpoint, listener: str) -> tuple[str, int]:
        """Return the address of a node for clients of a listener; from then on, it is listened on there. Raises
        CloseConnection for one node too many.
        """
        return self._addresses.present(node.node_id, node.host, node.port, listener)

    async def respond(
        self, context: RequestContext, response: Any, payload: Buffer | None, plan: Plan | None
    ) -> None:
        """Do as `_respond_to`, and count the time of it."""
        responding = self._respond_to(context, response, payload, plan)
        if context.usage is None:
            await responding
        else:
            await context.usage.measured(responding)

    async def _respond_to(
        self, context: RequestContext, response: Any, payload: Buffer | None, plan: Plan | None
    ) -> None:
        """Show a response to the interceptors and put it into the writer. ``payload`` are upstream's bytes.

        Raises CloseConnection, ConnectionLost.
        """
        wanting = self._interceptors_for(context)
        sent: Any = None
        failure: BaseException | None = None
        try:
            if (
                payload is None
                or plan is None
                or plan.response == READ
                or self._quotas is not None
                or not all(one.only_reads for one in wanting)
            ):
                sent = await self._respond(context, response)
                return
            for interceptor in reversed(wanting):
                await self._or_refused(context, interceptor.on_response(context, response))
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
        if context.usage is not None and self._quotas is not None:
            self._quotas.finish(context)
        self._on_done(context, response, failure)

    def told_versions(self) -> ApiVersionsResponse:
        """Return what upstream has told last of its versions, for a client. Raises CloseConnection if it has told
        nothing.
        """
        if self.versions is None:
            raise CloseConnection("upstream has not told its versions yet")
        response = copy(self.versions)
        response.api_keys = passable(response.api_keys, passes_unknown=self.passes_unknown)
        return response

    def versions_before_log_in(self, plan: Plan, correlation_id: int) -> bytes:
        """Return the response, with its size, to an ApiVersions of a client that has not logged in. Raises
        CloseConnection as `told_versions`.
        """
        assert plan.api is not None, "an unknown version is refused"
        out = bytearray()
        plan.api.encode_response(plan.version, correlation_id, self.told_versions(), out, [])
        return bytes(out)

    def refuse_loop(self, plan: Plan, correlation_id: int, peer: str) -> bytes:
        """Return the response, with its size, to an ApiVersions that has passed this proxy before, and log it."""
        if self.has_started:
            self._lines.write(log.error, LOOP, {}, peer=peer)
        assert plan.api is not None, "an unknown version is refused"
        out = bytearray()
        plan.api.encode_response(plan.version, correlation_id, ApiVersionsResponse(LOOP_ERROR), out, [])
        return bytes(out)

    @staticmethod
    def refuse_version(plan: Plan, correlation_id: int) -> bytes:
        """Return the response, with its size, to an ApiVersions of an unknown version. Raises CloseConnection for any
        other API.
        """
        if plan.key != API_VERSIONS_KEY:
            raise CloseConnection(f"version {plan.version} of API key {plan.key} is not served")
        body = unsupported().encode(0)
        return struct.pack(">ii", len(body) + 4, correlation_id) + body
