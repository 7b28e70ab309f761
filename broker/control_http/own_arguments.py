"""The arguments of routes that are not their operations': typed for JSON, and in units that people use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.operations.clock import MOVE_TIMEOUT_S, Members

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RecordFields:
    """A record to be written. What is null is left to the broker."""

    value: bytes | None = None
    """null: a tombstone."""
    key: bytes | None = None
    headers: dict[str, bytes | None] | list[tuple[str, bytes | None]] | None = None
    """By name, or a list of names and values where a name occurs twice."""
    timestamp: int | None = None
    """In milliseconds; without it, the broker's time."""
    partition: int | None = None
    """Without it, by the key, as Kafka's clients choose it."""


def produce(*, topic: str, records: RecordFields | list[RecordFields | bytes]) -> dict[str, Any]:
    """Write records: one with its fields, or a list of these, or of values. Returns them with their offsets."""
    several = [records] if isinstance(records, RecordFields) else records
    return {"topic": topic, "records": [one if isinstance(one, bytes) else vars(one) for one in several]}


def advance(
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    milliseconds: float = 0,
    members: Members = "keep",
    timeout: float = MOVE_TIMEOUT_S,
) -> dict[str, Any]:
    """Move time ahead by the sum of ``days``, ``hours``, ``minutes``, ``seconds`` and ``milliseconds``. Returns what
    came due, in order, when it is done. Members whose connection is open stay, unless ``members`` is ``expire``.
    """
    try:
        total = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    except OverflowError as error:
        raise InvalidArgumentError(f"time cannot be moved so far: {error}") from None
    return {"seconds": total.total_seconds(), "members": members, "timeout": timeout}


def set_time(
    *, time: int | str, members: Members = "keep", timeout: float = MOVE_TIMEOUT_S
) -> dict[str, Any]:
    """Move time ahead to ``time``: milliseconds since 1970, or text as ``2026-12-01T00:00:00Z``. Returns what came due,
    as advance does.
    """
    if isinstance(time, str):
        try:
            found = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidArgumentError(
                f"time={time!r}: expected a time such as 2026-12-01T00:00:00Z"
            ) from None
        if found.utcoffset() is None:
            raise InvalidArgumentError(f"time={time!r}: a time without a time zone; append Z for UTC")
        time = (found - _EPOCH) // timedelta(milliseconds=1)
    return {"wall_ms": time, "members": members, "timeout": timeout}
