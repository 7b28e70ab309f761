"""`Deadlines`: everything a coordinator does at a time, in one queue, for the one task that sleeps until the next.

A heartbeat moves its member's deadline on and nothing else: it costs no queue operation. A deadline that was moved on
or taken back leaves its old entry in the queue, which is dropped or queued again when its time comes; where most of
the queue is such entries, they are dropped at once: members may come and go by the thousand, with long sessions.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

NEVER = float("inf")

OLD_ENTRIES_MAX = 1_000
"""Entries of deadlines that are no more, beyond as many as there are deadlines, that may wait for their time."""


class _Deadline:
    __slots__ = ("action", "at", "queued_at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.action = action
        self.queued_at = NEVER


class Deadlines:
    """``now`` gives seconds of a clock that never goes back; ``on_earlier`` is called when the next deadline comes
    sooner than it was, since whoever sleeps until then must wake.
    """

    __slots__ = ("_by_key", "_counter", "_now", "_queue", "on_earlier")

    def __init__(self, now: Callable[[], float], on_earlier: Callable[[], None] = lambda: None) -> None:
        self._now = now
        self.on_earlier = on_earlier
        self._by_key: dict[Hashable, _Deadline] = {}
        self._queue: list[tuple[float, int, Hashable, _Deadline]] = []
        self._counter = count()

    def set(self, key: Hashable, delay_ms: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_ms`` milliseconds, instead of what ``key`` stood for before."""
        at = self._now() + delay_ms / 1000
        known = self._by_key.get(key)
        if known is not None and known.queued_at <= at:
            known.at = at
            known.action = action
            return
        deadline = self._by_key[key] = _Deadline(at, action)
        earlier = at < self.next_at()
        self._enqueue(key, deadline)
        if earlier:
            self.on_earlier()

    def cancel(self, key: Hashable) -> None:
        """Forget ``key``, if it is there."""
        self._by_key.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def next_at(self) -> float:
        """When to call `run_due` next, in the clock's seconds; never later than a deadline, perhaps sooner."""
        return self._queue[0][0] if self._queue else NEVER

    def take_due(self) -> tuple[Hashable, Callable[[], None]] | None:
        """The deadline that has come due first, with its action, which is the caller's to do; None where none has."""
        now = self._now()
        while self._queue and self._queue[0][0] <= now:
            _, _, key, deadline = heappop(self._queue)
            if self._by_key.get(key) is not deadline:
                continue
            if deadline.at > now:
                self._enqueue(key, deadline)
                continue
            del self._by_key[key]
            return key, deadline.action
        return None

    def run_due(self) -> None:
        """Call the actions whose time has come, in the order of their times."""
        while (due := self.take_due()) is not None:
            due[1]()

    def _enqueue(self, key: Hashable, deadline: _Deadline) -> None:
        deadline.queued_at = deadline.at
        heappush(self._queue, (deadline.at, next(self._counter), key, deadline))
        if len(self._queue) > 2 * len(self._by_key) + OLD_ENTRIES_MAX:
            self._queue = [entry for entry in self._queue if self._by_key.get(entry[2]) is entry[3]]
            heapify(self._queue)
