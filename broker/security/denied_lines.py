"""`DeniedLines`: tells in the log what clients wanted and may not do, as Kafka's authorizer does, in few lines."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

import trio

from oncelog.broker.authorization import OPERATION_NAMES, RESOURCE_NAMES
from oncelog.broker.line_limiter import REPEATED_LINE_INTERVAL_MS, REPEATED_LINES_MAX
from oncelog.broker.logs import get_logger

if TYPE_CHECKING:
    from oncelog.broker.authorization import Asking
    from oncelog.broker.seams.clock import Clock

DENIED_NAMES_MAX = 10
"""Names that the lines of one principal, operation and type of resource tell in `REPEATED_LINE_INTERVAL_MS`."""
NAME_CHARS_SHOWN = 250
"""Characters of a name that are shown: topics have no longer ones."""

log = get_logger(__name__)

Cause = tuple[str, int, int]
"""A principal, an operation and a type of resource."""


class DeniedLines:
    """What is denied together, such as the topics of one request, is one line. A name that was told is not told again
    within the interval, and no more than `DENIED_NAMES_MAX` are; the next line counts the others (``left_out``).
    """

    __slots__ = ("_clock", "_told")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[Cause, _Told] = {}
        """The oldest first."""

    def note(self, who: Asking, operation: int, resource_type: int, name: str) -> None:
        """See `OnDenied`."""
        cause = (who.principal, operation, resource_type)
        now_ms = self._clock.now_ms()
        told = self._told.get(cause)
        # Wall time may jump back. Then a new interval begins.
        if told is None or not 0 <= now_ms - told.since_ms < REPEATED_LINE_INTERVAL_MS:
            left_out = 0
            if told is not None:
                del self._told[cause]
                left_out = told.left_out
            elif len(self._told) >= REPEATED_LINES_MAX:
                del self._told[next(iter(self._told))]
            told = self._told[cause] = _Told(now_ms, left_out)
        if len(told.names) >= DENIED_NAMES_MAX or name in told.names:
            told.left_out += 1
            return
        told.names.add(name)
        told.new.append(name[:NAME_CHARS_SHOWN])
        if len(told.new) == 1:
            # The rest of the request, up to its next turn, comes before that.
            context = contextvars.copy_context()
            trio.lowlevel.current_trio_token().run_sync_soon(context.run, self._tell, cause, told, who.host)

    @staticmethod
    def _tell(cause: Cause, told: _Told, host: str) -> None:
        principal, operation, resource_type = cause
        details: dict[str, object] = {"left_out": told.left_out} if told.left_out else {}
        log.info(
            "denied",
            principal=principal,
            operation=OPERATION_NAMES[operation],
            resource=f"{RESOURCE_NAMES[resource_type]} {', '.join(told.new)}",
            host=host,
            **details,
        )
        told.new = []
        told.left_out = 0


class _Told:
    """What was told of one cause since a time (broker time, milliseconds)."""

    __slots__ = ("left_out", "names", "new", "since_ms")

    def __init__(self, since_ms: int, left_out: int) -> None:
        self.since_ms = since_ms
        self.names: set[str] = set()
        self.new: list[str] = []
        """Names for the next line."""
        self.left_out = left_out
        """Denials that no line names."""
