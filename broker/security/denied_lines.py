"""`DeniedLines`: tells in the log what clients wanted and may not do, as Kafka's authorizer does, in few lines."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.line_limiter import REPEATED_LINE_INTERVAL_MS, REPEATED_LINES_MAX
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.authorization import OPERATION_NAMES, RESOURCE_NAMES

if TYPE_CHECKING:
    from oncelog.broker.requests.authorization import Requester
    from oncelog.broker.seams.clock import Clock

DENIED_NAMES_MAX = 10
"""Names that a line tells. There is one in `REPEATED_LINE_INTERVAL_MS` for each `Cause`."""
NAME_CHARS_SHOWN = 250
"""Characters of a name that are shown: topics have no longer ones."""

log = get_logger(__name__)

Cause = tuple[str, int, int]
"""A principal, an operation and a type of resource."""


class DeniedLines:
    """At most one line in the interval for each cause. The first one tells at once what is denied together, such as the
    topics of one request. What is denied later in the interval is told by the next line, which the first denial after
    it writes: `DENIED_NAMES_MAX` names, and how many denials no line names (``left_out``).
    """

    __slots__ = ("_clock", "_told")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[Cause, _Told] = {}
        """The oldest first."""

    def note(self, requester: Requester, operation: int, resource_type: int, name: str) -> None:
        """See `OnDenied`."""
        cause = (requester.principal, operation, resource_type)
        now_ms = self._clock.now_ms()
        told = self._told.get(cause)
        # Wall time may jump back. Then a new interval begins.
        if told is None or not 0 <= now_ms - told.since_ms < REPEATED_LINE_INTERVAL_MS:
            earlier = self._told.pop(cause, None)
            if len(self._told) >= REPEATED_LINES_MAX:
                del self._told[next(iter(self._told))]
            told = self._told[cause] = _Told(now_ms, earlier)
            # The rest of the request, up to its next turn, comes before that.
            context = contextvars.copy_context()
            trio.lowlevel.current_trio_token().run_sync_soon(
                context.run, self._tell, cause, told, requester.host
            )
        shown = name[:NAME_CHARS_SHOWN]
        if len(told.new) >= DENIED_NAMES_MAX or shown in told.names:
            told.left_out += 1
            return
        told.names.add(shown)
        told.new.append(shown)

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
    """What was denied for one cause since its last line (broker time, milliseconds)."""

    __slots__ = ("left_out", "names", "new", "since_ms")

    def __init__(self, since_ms: int, earlier: _Told | None) -> None:
        """``earlier``: what the interval before this one has left for this one's line, which has a place for what is
        denied now, too.
        """
        waiting: list[str] = [] if earlier is None else earlier.new
        left_out: int = 0 if earlier is None else earlier.left_out
        self.since_ms = since_ms
        self.new: list[str] = waiting[: DENIED_NAMES_MAX - 1]
        """Names for the next line."""
        self.names = set(self.new)
        """These, and those that the last line told."""
        self.left_out: int = left_out + len(waiting) - len(self.new)
        """Denials that no line names."""
