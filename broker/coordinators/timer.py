"""`CoordinatorTimer`: the deadlines of one coordinator, and the task that runs their actions.

The task sleeps until the next deadline. A request that is read in the same turn may come before the task: `run_due_of`
then does what is due of the request's group, transactional id or share partition. Source: ``CoordinatorTimer``,
``CoordinatorTimerImpl``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import trio

from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.scheduling.slices import Slices
from oncelog.broker.seams.clock import Clock, real_time
from oncelog.coordinator.deadlines import Deadlines
from oncelog.wire.errors import KafkaError

RETRY_BACKOFF_MS = 500
"""Milliseconds until an action whose append failed is tried again (``CoordinatorTimerImpl``)."""

RUN_DUE_MS = 20
"""Milliseconds of work that a request may have to do first, because it was due."""

_log = get_logger(__name__)


class CoordinatorTimer:
    """The deadlines of the coordinator of ``topic``, in broker time. The timer's task calls ``on_wake`` each time it
    wakes, and ``note_internal_error`` after an action failed with an internal error.
    """

    def __init__(
        self,
        topic: str,
        clock: Clock,
        lines: LineLimiter,
        background: BackgroundWork,
        on_wake: Callable[[], None],
        note_internal_error: Callable[[], None],
    ) -> None:
        self.deadlines = Deadlines(clock.monotonic, self.wake)
        self._topic = topic
        self._clock = clock
        self._lines = lines
        self._background = background
        self._on_wake = on_wake
        self._note_internal_error = note_internal_error
        self._woken = trio.Event()
        self._is_acting = False

    def wake(self) -> None:
        """Wake the timer's task."""
        self._woken.set()

    async def run(self) -> None:
        """Run the actions of deadlines that have passed, until cancelled."""
        while True:
            self._on_wake()
            self._woken = trio.Event()
            with self._clock.move_on_at(self.deadlines.next_at()):
                await self._woken.wait()
            with self._background.running(f"deadlines of {self._topic}"):
                slices = Slices()
                while (due := self.deadlines.take_due()) is not None:
                    self._act(*due)
                    if slices.is_over():
                        await slices.pause()

    def run_due_of(self, owner: Hashable) -> bool:
        """Run the actions of an owner's deadlines that have passed, before a request about it is handled.

        Returns False if some may be left after `RUN_DUE_MS`: the timer's task goes on with them. Does nothing if an
        action is the caller.
        """
        deadlines = self.deadlines
        if deadlines.next_at() > self._clock.monotonic() or self._is_acting:
            return True
        end = real_time.monotonic() + RUN_DUE_MS / 1000
        deadlines.collect_due()
        while (due := deadlines.take_due_of(owner)) is not None:
            self._act(*due)
            if real_time.monotonic() >= end:
                return False
        return True

    def _act(self, key: Hashable, action: Callable[[], None]) -> None:
        """Call ``action``. If it cannot write its records, try again after `RETRY_BACKOFF_MS`."""
        self._is_acting = True
        try:
            action()
        except KafkaError as error:
            about = {"topic": self._topic, "deadline": key}
            self._lines.write(_log.warning, "could not be done in time", about, error=error)
            if key not in self.deadlines:
                self.deadlines.set(key, RETRY_BACKOFF_MS, action, early_ms=RETRY_BACKOFF_MS)
        except Exception:
            _log.exception("a deadline failed with an internal error", topic=self._topic, deadline=key)
            self._note_internal_error()
        finally:
            self._is_acting = False
