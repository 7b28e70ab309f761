"""Moves the time of a simulated broker."""

from __future__ import annotations

from oncelog.broker.control.errors import NotRunningError
from oncelog.broker.control.moving_time import TimeMove
from oncelog.broker.control.types import Occurrence
from tests.harness.sim_broker import EPOCH_MS, SimBroker

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 24 * 3600


def move_of(broker: SimBroker) -> TimeMove:
    """Return a move of the broker's time, which ends with its node."""
    node = broker.node

    def check() -> None:
        if broker.is_dead or broker.node is not node:
            raise NotRunningError("the broker has ended")

    return TimeMove((node,), broker.clock, check)


async def advance(broker: SimBroker, seconds: float, *, keep_members: bool = True) -> list[Occurrence]:
    """Move the broker's time. Returns the occurrences."""
    move = move_of(broker)
    await move.advance(seconds, keep_members=keep_members, timeout_s=10)
    return move.happened


def told(happened: list[Occurrence]) -> list[tuple[float, str]]:
    """Seconds since the beginning of the simulation, and what happened."""
    return [((one.at_ms - EPOCH_MS) / 1000, str(one)) for one in happened]
