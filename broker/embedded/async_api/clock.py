"""`AsyncClock`: the time of a broker, which a test may move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.operations.clock import MOVE_TIMEOUT_S

if TYPE_CHECKING:
    from oncelog.broker.control.operations.clock import Members
    from oncelog.broker.control.types import ClockInfo, Occurrence
    from oncelog.broker.embedded.async_api.facade import AsyncFacade

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class AsyncClock:
    """Broker time: the timestamps that the broker sets, retention, compaction lags, expiry of offsets and ids,
    sessions, rebalances and transaction time-outs. It is the machine's time until a test moves it, and goes only ahead.

    A Fetch's wait, idle connections, and everything in clients live in real time.
    """

    def __init__(self, broker: AsyncFacade) -> None:
        self._broker = broker

    async def advance(
        self,
        by: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        members: Members = "keep",
        timeout: float = MOVE_TIMEOUT_S,
    ) -> list[Occurrence]:
        """Move time ahead: ``advance(days=7)``. Returns the work that came due, in order, when it is done: retention,
        rebalances, the markers of transactions that timed out. Retention deletes whole segments (``segment.ms``): one
        goes when its youngest record is older than ``retention.ms``.

        Members of groups whose connection is open stay, as if they had gone on sending heartbeats; the others' sessions
        expire. ``members="expire"`` expires all. ``advance()`` does the work that is due by now, without waiting for
        periodic tasks.

        Raises InvalidArgumentError for a negative time, WaitTimeoutError if it is not done after ``timeout`` seconds of
        real time.
        """
        parts = {
            "days": days,
            "hours": hours,
            "minutes": minutes,
            "seconds": seconds,
            "milliseconds": milliseconds,
        }
        result: list[Occurrence] = await self._broker._call(
            "clock_advance", seconds=_total_seconds(by, parts), members=members, timeout=timeout
        )
        return result

    async def set(
        self, time: datetime | int, *, members: Members = "keep", timeout: float = MOVE_TIMEOUT_S
    ) -> list[Occurrence]:
        """Move time ahead to a wall time: a datetime with its time zone, or milliseconds since 1970-01-01 UTC.
        Otherwise as `advance`. Raises InvalidArgumentError, also for a time that has passed.
        """
        result: list[Occurrence] = await self._broker._call(
            "clock_set", wall_ms=_wall_ms(time), members=members, timeout=timeout
        )
        return result

    async def freeze(self) -> None:
        """Let time stand still until `resume`: no session expires, and all timestamps are equal. `advance` and `set`
        still move it. Nothing happens if it stands already.
        """
        await self._broker._call("clock_freeze")

    async def resume(self) -> None:
        """Let time run on from where it stands, without the real time since `freeze`. Nothing happens if it runs."""
        await self._broker._call("clock_resume")

    async def now(self) -> datetime:
        """Return the broker's time, in UTC."""
        return EPOCH + (await self._info()).now_ms * MILLISECOND

    async def now_ms(self) -> int:
        """Return the broker's time, in milliseconds since 1970-01-01 UTC."""
        return (await self._info()).now_ms

    @property
    async def is_frozen(self) -> bool:
        """Whether time stands still."""
        return (await self._info()).is_frozen

    async def _info(self) -> ClockInfo:
        info: ClockInfo = await self._broker._call("clock")
        return info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._broker!r}>"


def _total_seconds(by: object, parts: dict[str, float]) -> float:
    """Return the sum in seconds. Raises InvalidArgumentError."""
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgumentError(f"{name}={value!r}: expected a number")
    if by is not None and not isinstance(by, timedelta):
        raise InvalidArgumentError(f"advance({by!r}): expected a timedelta, or words: advance(seconds=5)")
    try:
        total = timedelta(**parts) + (by or timedelta())
    except (OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"time cannot be moved so far: {error}") from None
    return total.total_seconds()


def _wall_ms(time: object) -> int:
    """Return milliseconds since 1970. Raises InvalidArgumentError."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise InvalidArgumentError(
                f"set({time!r}): a datetime without a time zone; add tzinfo=datetime.UTC, or the zone that you mean"
            )
        return (time - EPOCH) // MILLISECOND
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise InvalidArgumentError(f"set({time!r}): expected a datetime, or milliseconds since 1970-01-01 UTC")
