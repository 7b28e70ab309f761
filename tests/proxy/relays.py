"""What shows bytes to a relay and does what it asks for, as a mover does, but without sockets and tasks."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable

from oncelog.broker.proxy.relay.endpoints import Endpoint, rewrite_fields
from oncelog.broker.proxy.relay.in_flight import ENDPOINTS, INTERCEPTED, InFlight, RelayPlan
from oncelog.broker.proxy.relay.relay import ADVANCING, FORWARD, FULL, INTERCEPT, LOST, OWN, REWRITE, Relay
from oncelog.broker.proxy.relay.requests import RequestRelay
from oncelog.broker.proxy.relay.responses import ResponseRelay
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.produce import ProduceRequest

FRAME_BYTES_MAX = 1_000_000
FLEXIBLE = {ProduceRequest.API_KEY: 9, FetchRequest.API_KEY: 12}
"""The first version with tagged fields, of the APIs with which a relay has to know."""
WITH_ENDPOINTS = {ProduceRequest.API_KEY: 10, FetchRequest.API_KEY: 16}
INTERCEPTED_REQUESTS = {ApiVersionsRequest.API_KEY, ListGroupsRequest.API_KEY}
INTERCEPTED_RESPONSES = {ApiVersionsRequest.API_KEY, MetadataRequest.API_KEY}


def plan_of(key: int, version: int) -> RelayPlan:
    plan = RelayPlan(key, is_flexible=version >= FLEXIBLE.get(key, 0))
    plan.intercepts_requests = key in INTERCEPTED_REQUESTS
    if key in INTERCEPTED_RESPONSES:
        plan.response = INTERCEPTED
    elif version >= WITH_ENDPOINTS.get(key, 100):
        plan.response = ENDPOINTS
    return plan


def advertised(node: Endpoint) -> tuple[str, int]:
    """An address as long as the one of `upstream_host`, so that a rewritten response keeps its length."""
    return f"proxy-{node.node_id}", node.port + 1


def upstream_host(node_id: int) -> str:
    return f"kafka-{node_id}"


class LoginState:
    """A client without a log-in, unless a test sets one of these."""

    def __init__(self) -> None:
        self.authentication_handler: object | None = None
        self.needs_no_authentication: Callable[[int], bool] | None = None


class Shown:
    """A relay to which bytes are shown. ``skips``: bytes that it forwards are not shown, as if they were spliced."""

    def __init__(self, relay: Relay, *, skips: bool = False) -> None:
        self.relay = relay
        self.out = bytearray()
        """What has left for the other side."""
        self.intercepted: list[bytes] = []
        """The frames for the handler, with their sizes."""
        self._rest = b""
        self._skips = skips

    def show_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.show(piece)

    def show(self, piece: bytes) -> None:
        relay = self.relay
        if self._skips and relay.state is FORWARD:
            count = relay.take_forwarded(len(piece))
            self.out += piece[:count]
            piece = piece[count:]
            if not piece and not relay.is_own_next:
                return
        view = memoryview(bytearray(self._rest + piece))
        while True:
            count = relay.advance(view)
            self.out += view[:count]
            view = view[count:]
            if relay.state is LOST or relay.state in ADVANCING:
                break
            if relay.state is INTERCEPT:
                size = 4 + int.from_bytes(view[:4], "big")
                if len(view) < size:
                    break
                self._intercept(bytes(view[:size]))
                view = view[size:]
            elif not self._act_on_state(view):
                break
            relay.resume()
        self._rest = bytes(view)

    def _intercept(self, frame: bytes) -> None:
        self.intercepted.append(frame)
        self.out += self.handled(frame)

    def handled(self, frame: bytes) -> bytes:
        """What the handler sends to the other side for an intercepted frame."""
        raise NotImplementedError

    def _act_on_state(self, view: memoryview) -> bool:
        """Do what a state asks for. Returns whether it is done."""
        raise NotImplementedError


class Requests(Shown):
    """A handler forwards what is intercepted, and its requests get responses."""

    def __init__(self, in_flight: int = 0, *, skips: bool = False) -> None:
        self.in_flight = deque(InFlight(-1, plan_of(3, 12)) for _ in range(in_flight))
        self.client = LoginState()
        self._plans: dict[int, RelayPlan] = {}
        super().__init__(
            RequestRelay(self.in_flight, self.client, self._plans, self._plan, FRAME_BYTES_MAX), skips=skips
        )

    def _plan(self, key_and_version: int) -> RelayPlan:
        key, version = struct.unpack(">hh", struct.pack(">i", key_and_version))
        plan = self._plans[key_and_version] = plan_of(key, version)
        return plan

    @property
    def ids(self) -> list[int]:
        """The correlation ids of the requests in flight."""
        return [one.correlation_id for one in self.in_flight]

    def handled(self, frame: bytes) -> bytes:
        if self.client.authentication_handler is not None:
            return b""
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        self.in_flight.append(InFlight(correlation_id, plan_of(key, version)))
        return frame

    def _act_on_state(self, view: memoryview) -> bool:
        assert self.relay.state is FULL
        return False


class Responses(Shown):
    """Of ``in_flight``, whose receivers get nothing, but for bytes: responses of the proxy's own. ``handle`` makes an
    intercepted frame what the client gets.
    """

    def __init__(
        self, in_flight: Iterable[InFlight], handle: Callable[[bytes], bytes], *, skips: bool = False
    ) -> None:
        self.in_flight = deque(in_flight)
        self._handle = handle
        super().__init__(ResponseRelay(self.in_flight, "kafka:9092"), skips=skips)

    def handled(self, frame: bytes) -> bytes:
        receiver = self.in_flight.popleft().receiver
        return self._handle(frame) if receiver is None else b""

    def _act_on_state(self, view: memoryview) -> bool:
        if self.relay.state is OWN:
            own = self.in_flight.popleft().receiver
            assert isinstance(own, bytes)
            self.out += own
        else:
            assert self.relay.state is REWRITE
            rewrite_fields(view[: self.relay.left], advertised)
        return True
