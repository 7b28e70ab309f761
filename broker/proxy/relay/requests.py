"""`RequestRelay`: the direction from the client to upstream."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from oncelog.broker.proxy.relay.acks import REQUEST_HEAD_BYTES, acks_of
from oncelog.broker.proxy.relay.in_flight import IN_FLIGHT_MAX, InFlight
from oncelog.broker.proxy.relay.relay import FORWARD, FULL, INTERCEPT, REQUEST_MOVES, WAIT, Relay
from oncelog.wire.header import FIXED_HEADER_SIZE, PRODUCE_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.proxy.relay.in_flight import InFlightRequests, RelayPlan

SIZE_BYTES = 4

_head_at = struct.Struct(">iii").unpack_from


class LoginState(Protocol):
    """The part of a client's log-in that the relay needs."""

    @property
    def authentication_handler(self) -> object | None:
        """Takes requests in place of `RequestHandler`."""

    @property
    def needs_no_authentication(self) -> Callable[[int], bool] | None:
        """Whether requests with this API key need not go through it. None: all go."""


class RequestRelay(Relay):
    """``plans`` are those of the API versions that were seen, by the first four bytes of a request header, and ``plan``
    makes another one. A frame of more than ``frame_bytes_max`` bytes is intercepted, and refused where it is read.
    """

    __slots__ = ("_frame_bytes_max", "_login", "_plan", "_plans")

    def __init__(
        self,
        in_flight: InFlightRequests,
        login: LoginState,
        plans: Mapping[int, RelayPlan],
        plan: Callable[[int], RelayPlan],
        frame_bytes_max: int,
    ) -> None:
        super().__init__(in_flight, REQUEST_MOVES)
        self._login = login
        self._plans = plans
        self._plan = plan
        self._frame_bytes_max = frame_bytes_max

    def advance(self, view: memoryview) -> int:
        """See `Relay.advance`. Each request that is forwarded is in flight from then on, if it gets a response."""
        end = len(view)
        position = 0
        if self.state is not WAIT:
            position = self.take_forwarded(end)
            if self.state is not WAIT:
                return position
        login = self._login
        needs_no_authentication = login.needs_no_authentication
        if login.authentication_handler is not None and needs_no_authentication is None:
            if end - position >= SIZE_BYTES:
                self._move(INTERCEPT)
            return position
        in_flight, plans = self._in_flight, self._plans
        while end - position >= REQUEST_HEAD_BYTES:
            size, key_and_version, correlation_id = _head_at(view, position)
            if not FIXED_HEADER_SIZE <= size <= self._frame_bytes_max:
                self._move(INTERCEPT)
                break
            plan = plans.get(key_and_version) or self._plan(key_and_version)
            if plan.intercepts_requests or (
                needs_no_authentication is not None and not needs_no_authentication(plan.key)
            ):
                self._move(INTERCEPT)
                break
            if len(in_flight) >= IN_FLIGHT_MAX:
                self._move(FULL)
                break
            stop = position + 4 + size
            if plan.key == PRODUCE_KEY:
                acks = acks_of(view, position, plan.is_flexible)
                if acks is None and stop > end:
                    break  # they are still to come
                if acks != 0:
                    in_flight.append(InFlight(correlation_id, plan))
            else:
                in_flight.append(InFlight(correlation_id, plan))
            if stop > end:
                self.left = stop - end
                self._move(FORWARD)
                return end
            position = stop
        return position
