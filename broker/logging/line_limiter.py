"""`LineLimiter`: at most one log line per cause and minute, such as a full disk that every request meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.broker.logging.reasons import kind_of
from oncelog.broker.seams.clock import Clock

REPEATED_LINE_INTERVAL_MS = 60_000
"""Milliseconds of broker time between two lines about the same cause."""
REPEATED_LINES_MAX = 1000
"""The most causes that are remembered. A new one replaces the cause with the oldest line."""


class LineLimiter:
    """Writes a line unless it wrote one with the same cause within `REPEATED_LINE_INTERVAL_MS`. The next line says how
    many were left out (``left_out``)."""

    __slots__ = ("_clock", "_written")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[tuple[object, ...], list[int]] = {}
        """By cause: the time of its last line in milliseconds, and the number of lines left out since. Oldest first."""

    def write(
        self, line: Callable[..., None], text: str, about: Mapping[str, object], **details: object
    ) -> None:
        """Call ``line`` (a method of a `Logger`) with the text and all fields, unless the line is to be left out.

        The cause is the text and the fields in ``about``, which must be hashable; of a `Reason` it is the kind.
        """
        key = (text, *map(kind_of, about.values()))
        now_ms = self._clock.now_ms()
        last = self._written.get(key)
        # Wall time may jump back. Then the line is written.
        if last is not None and 0 <= now_ms - last[0] < REPEATED_LINE_INTERVAL_MS:
            last[1] += 1
            return
        if last is not None:
            del self._written[key]
            if last[1]:
                details["left_out"] = last[1]
        elif len(self._written) >= REPEATED_LINES_MAX:
            del self._written[next(iter(self._written))]
        self._written[key] = [now_ms, 0]
        line(text, **about, **details)
