"""`ResponseRelay`: the direction from upstream to the client."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NoReturn

from oncelog.broker.proxy.relay.endpoints import has_endpoints
from oncelog.broker.proxy.relay.fetch_walk import FetchWalk
from oncelog.broker.proxy.relay.in_flight import ENDPOINTS, INTERCEPTED
from oncelog.broker.proxy.relay.relay import (
    FORWARD,
    INTERCEPT,
    OWN,
    RESPONSE_MOVES,
    REWRITE,
    WAIT,
    WALK,
    ProtocolError,
    Relay,
)
from oncelog.wire.header import FETCH_KEY

if TYPE_CHECKING:
    from oncelog.broker.proxy.relay.in_flight import InFlightRequests

WHOLE_BYTES_MAX: Final = 64 * 1024
"""Bytes up to which a response that may have node endpoints is read whole. A larger Fetch response is forwarded as it
comes, but for its own tagged fields."""
RESPONSE_HEAD_BYTES: Final = 8
"""Bytes of a response's size and correlation id."""

_head_at = struct.Struct(">ii").unpack_from


class ResponseRelay(Relay):
    """``upstream`` names the other side in errors."""

    __slots__ = ("_upstream", "_walk")

    def __init__(self, in_flight: InFlightRequests, upstream: str) -> None:
        super().__init__(in_flight, RESPONSE_MOVES)
        self._upstream = upstream
        self._walk: FetchWalk
        """Follows a large Fetch response up to its node endpoints."""

    @property
    def is_own_next(self) -> bool:
        """See `Relay.is_own_next`."""
        return bool(self._in_flight) and self._in_flight[0].plan is None

    def advance(self, view: memoryview) -> int:
        """See `Relay.advance`. A request whose response is forwarded is no longer in flight. Raises ProtocolError where
        upstream breaks the protocol, DecodeError.
        """
        end = len(view)
        position = 0
        if self.state is not WAIT:
            position = self._go_on(view, 0)
        in_flight = self._in_flight
        while self.state is WAIT:
            if not in_flight:
                if end - position >= RESPONSE_HEAD_BYTES:
                    self._refuse(view, position)
                break
            first = in_flight[0]
            plan = first.plan
            if plan is None:
                self._move(OWN)
                break
            if end - position < RESPONSE_HEAD_BYTES:
                break
            size, correlation_id = _head_at(view, position)
            if correlation_id != first.correlation_id or size < 4:
                self._refuse(view, position)
            stop = position + 4 + size
            if first.receiver is not None or plan.response == INTERCEPTED:
                self._move(INTERCEPT)
                break
            if plan.response == ENDPOINTS:
                is_fetch = plan.key == FETCH_KEY
                if stop <= end:
                    if has_endpoints(view[position:stop], is_fetch=is_fetch):
                        self._move(INTERCEPT)
                        break
                elif size <= WHOLE_BYTES_MAX:
                    break
                elif not is_fetch:
                    self._move(INTERCEPT)
                    break
                else:
                    in_flight.popleft()
                    self._walk = FetchWalk(4 + size)
                    self._then = WALK
                    self._move(WALK)
                    position = self._go_on(view, position)
                    continue
            in_flight.popleft()
            if stop > end:
                self.left = stop - end
                self._move(FORWARD)
                return end
            position = stop
        return position

    def _go_on(self, view: memoryview, position: int) -> int:
        """Go on in the middle of a response at ``position``. Returns the position after the bytes that are forwarded.

        The response's own tagged fields wait until they are whole: its size has left, so they are rewritten in place.
        """
        end = len(view)
        while self.state is FORWARD or self.state is WALK:
            if self.state is FORWARD:
                position += self.take_forwarded(end - position)
                if self.state is FORWARD:
                    break
                continue
            walk = self._walk
            position, self.left = walk.advance(view, position)
            if self.left:
                self._move(FORWARD)
                break
            if not walk.is_at_end or walk.left > end - position:
                break
            self.left = walk.left
            self._then = WAIT
            self._move(REWRITE if view[position] else FORWARD)
        return position

    def _refuse(self, view: memoryview, position: int) -> NoReturn:
        size, correlation_id = _head_at(view, position)
        if size < 4:
            raise ProtocolError(f"upstream {self._upstream} is no Kafka: a frame of {size} bytes")
        if not self._in_flight:
            raise ProtocolError(f"upstream {self._upstream} has sent a response to no request")
        raise ProtocolError(
            f"upstream {self._upstream} is no Kafka, or breaks its protocol: a response with correlation id "
            f"{correlation_id}, which is not the next"
        )
