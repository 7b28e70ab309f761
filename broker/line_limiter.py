"""Log lines that would come with every request, such as those about a full disk: one for each cause and minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.seams.clock import Clock

REPEATED_LINE_INTERVAL_MS = 60_000
"""Milliseconds of broker time between two lines about the same cause."""
REPEATED_LINES_MAX = 1000
"""Causes that are remembered; of more, the one whose line is the oldest is forgotten."""


class LineLimiter:
    """Writes a line, unless one about the same was written within `REPEATED_LINE_INTERVAL_MS`; the next one that is
    written says how many were left out."""

    __slots__ = ("_clock", "_written")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[tuple[object, ...], list[int]] = {}
        """When the last line about it was written (milliseconds), and how many were left out since; oldest first."""

    def write(
        self, line: Callable[..., None], text: str, about: Mapping[str, object], **details: object
    ) -> None:
        """Call ``line`` (a `Logger`'s method) with the text and all fields, or leave it out.

        ``about``: the fields, hashable, that together with the text tell one cause from another.
        """
        key = (text, *about.values())
        now_ms = self._clock.now_ms()
        last = self._written.get(key)
        # Wall time may jump back; then the minute is over too.
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
