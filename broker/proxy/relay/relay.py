"""`Relay`: one direction of a client's connection as a pure machine. Bytes go in, instructions come out.

A client's connection has two relays: `RequestRelay` from the client to upstream, `ResponseRelay` back. They share the
in-flight requests, which the one adds and the other takes off. Each looks at the beginning of a frame and decides what
happens to it. It keeps no bytes and makes no object of a frame: `Relay.advance` says how many bytes of a view are
forwarded, and the state that it is in then says what comes next:

    WAIT      the beginning of the next frame has not come far enough to decide: show more
    FORWARD   the next `left` bytes are forwarded, whatever they are
    WALK      (responses) the same as WAIT in the middle of a large Fetch response, which is forwarded in pieces
    REWRITE   (responses) its end, with node endpoints, is the next `left` bytes: change them in place
    INTERCEPT the next frame is not forwarded: the connection's task or the link's reads it to its end
    FULL      (requests) as many requests are in flight as may be: wait until a response has left
    OWN       (responses) the next response is the proxy's own: send it
    LOST      either side is gone: nothing is forwarded

In the upper three (`ADVANCING`), `advance` goes on. In the others it does nothing before the mover has done what they
say and calls `Relay.resume`. While the relay forwards, the mover may move bytes by other means and say only how many
(`Relay.take_forwarded`): most bytes of a large frame need not be shown.

The theory: each frame begins in WAIT and ends there. So a state of its middle (FORWARD, WALK, REWRITE) is followed
neither by another frame nor by a response of the proxy's own, and nothing is forwarded into a frame that a task reads
(INTERCEPT) or a response that the proxy sends (OWN). FULL begins in WAIT: a request that has begun is forwarded to its
end. Each state leads into LOST, and LOST into none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.proxy.relay.in_flight import InFlightRequests


class State:
    """What comes next. An `Enum` would be hashed in Python, each time that the state changes."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


WAIT, FORWARD, WALK, REWRITE = map(State, ("WAIT", "FORWARD", "WALK", "REWRITE"))
INTERCEPT, FULL, OWN, LOST = map(State, ("INTERCEPT", "FULL", "OWN", "LOST"))
ADVANCING = (WAIT, FORWARD, WALK)
"""The states in which `Relay.advance` goes on."""

REQUEST_MOVES: dict[State, frozenset[State]] = {
    WAIT: frozenset((FORWARD, INTERCEPT, FULL, LOST)),
    FORWARD: frozenset((WAIT, LOST)),
    INTERCEPT: frozenset((WAIT, LOST)),
    FULL: frozenset((WAIT, LOST)),
    LOST: frozenset(),
}
RESPONSE_MOVES: dict[State, frozenset[State]] = {
    WAIT: frozenset((FORWARD, WALK, INTERCEPT, OWN, LOST)),
    FORWARD: frozenset((WAIT, WALK, LOST)),
    WALK: frozenset((FORWARD, REWRITE, LOST)),
    REWRITE: frozenset((FORWARD, LOST)),
    INTERCEPT: frozenset((WAIT, LOST)),
    OWN: frozenset((WAIT, LOST)),
    LOST: frozenset(),
}
"""State -> the states that may follow."""


class ProtocolError(Exception):
    """Upstream is no Kafka, or breaks its protocol; the text says how."""


class Relay:
    """One direction. ``in_flight`` are the requests whose responses have not left."""

    __slots__ = ("_in_flight", "_moves", "_then", "left", "state")

    def __init__(self, in_flight: InFlightRequests, moves: Mapping[State, frozenset[State]]) -> None:
        self.state = WAIT
        self.left = 0
        """Bytes to come of what is forwarded or rewritten."""
        self._in_flight = in_flight
        self._moves = moves
        self._then = WAIT
        """The state after `FORWARD`."""

    def advance(self, view: memoryview) -> int:
        """Return how many bytes of ``view`` are forwarded; `state` says what follows them. The next view begins with
        the bytes after these.
        """
        raise NotImplementedError

    @property
    def is_own_next(self) -> bool:
        """Whether a response of the proxy's own comes after what is forwarded."""
        return False

    def take_forwarded(self, size: int) -> int:
        """Of the next ``size`` bytes, count those that are forwarded; return how many."""
        if self.state is not FORWARD:
            return 0
        left = self.left
        if size < left:
            self.left = left - size
            return size
        self.left = 0
        self._move(self._then)
        return left

    def resume(self) -> None:
        """What the state asked for was done."""
        if self.state is not LOST:
            self._move(FORWARD if self.left else WAIT)

    def lose(self) -> None:
        """Either side is gone. A second call does nothing."""
        if self.state is not LOST:
            self._move(LOST)

    def _move(self, state: State) -> None:
        assert state in self._moves[self.state], (self.state, state)
        self.state = state
