"""`Deadlines`: all timers of a coordinator in one queue, for the one task that sleeps until the next is due.

A heartbeat only postpones its member's deadline, which costs no queue operation. A postponed or cancelled deadline
leaves a stale entry in the queue, which is queued again or dropped when its time comes. Where most entries are stale
they are all dropped at once: thousands of members with long sessions may come and go. Kafka: ``CoordinatorTimer``.

Each deadline has an owner, such as a group: what is due of an owner may be run before the rest (`collect_due`,
`take_due_of`). A key says who it is by its attribute ``owner``; a key without one is its own owner.

A periodic check may come due earlier than its interval says, by up to ``early_ms``: whoever moves time ahead wants what
the check would find. `next_possible`, `postpone`, `hasten` and `hasten_possible` are for moving time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count

NEVER = float("inf")

STALE_ENTRIES_MAX = 1_000
"""Stale entries that may stay in the queue, beyond as many as there are deadlines."""


class _Deadline:
    __slots__ = ("action", "at", "possible_at", "queued_at")

    def __init__(self, at: float, possible_at: float, action: Callable[[], None]) -> None:
        self.at = at
        self.possible_at = possible_at
        self.action = action
        self.queued_at = NEVER


class Deadlines:
    """``now`` returns the seconds of a monotonic clock. ``on_earlier`` is called when a new deadline is due before all
    others: the sleeping task must wake earlier.
    """

    __slots__ = ("_by_key", "_counter", "_due", "_due_of", "_now", "_queue", "on_earlier")

    def __init__(self, now: Callable[[], float], on_earlier: Callable[[], None] = lambda: None) -> None:
        self._now = now
        self.on_earlier = on_earlier
        self._by_key: dict[Hashable, _Deadline] = {}
        self._queue: list[tuple[float, int, Hashable, _Deadline]] = []
        self._due: deque[tuple[Hashable, _Deadline]] = deque()
        """What has left the queue because it was due, earliest first. Some may have been taken or cancelled since."""
        self._due_of: dict[Hashable, deque[tuple[Hashable, _Deadline]]] = {}
        """The same by owner."""
        self._counter = count()

    def set(self, key: Hashable, delay_ms: float, action: Callable[[], None], *, early_ms: float = 0) -> None:
        """Call ``action`` in ``delay_ms`` milliseconds, and replace an earlier deadline of ``key``.

        ``early_ms``: by how much earlier `hasten_possible` may call it.
        """
        at = self._now() + delay_ms / 1000
        existing = self._by_key.get(key)
        if existing is not None and existing.queued_at <= at:
            existing.at = at
            existing.possible_at = at - early_ms / 1000
            existing.action = action
            return
        deadline = self._by_key[key] = _Deadline(at, at - early_ms / 1000, action)
        earlier = at < self.next_at()
        self._enqueue(key, deadline)
        if earlier:
            self.on_earlier()

    def cancel(self, key: Hashable) -> None:
        """Remove the deadline of ``key``, if there is one."""
        self._by_key.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def next_at(self) -> float:
        """When to call `run_due` next, in the clock's seconds; never later than a deadline, perhaps sooner."""
        if self._due:
            return -NEVER
        return self._queue[0][0] if self._queue else NEVER

    def take_due(self) -> tuple[Hashable, Callable[[], None]] | None:
        """Remove the earliest deadline that is due. Returns its key and its action, which the caller must call; or
        None.
        """
        self.collect_due()
        taken = self._take(self._due)
        if not self._due:
            self._due_of.clear()
        return taken

    def collect_due(self) -> None:
        """Find what is due now, for `take_due_of`."""
        now = self._now()
        while self._queue and self._queue[0][0] <= now:
            queued_at, _, key, deadline = heappop(self._queue)
            if self._by_key.get(key) is not deadline:
                continue
            if deadline.at > queued_at:
                self._enqueue(key, deadline)
                continue
            self._due.append((key, deadline))
            self._due_of.setdefault(getattr(key, "owner", key), deque()).append((key, deadline))

    def take_due_of(self, owner: Hashable) -> tuple[Hashable, Callable[[], None]] | None:
        """Do as `take_due` with what was due of ``owner`` at the last `collect_due`, and not with what its actions set
        since.
        """
        due = self._due_of.get(owner)
        return None if due is None else self._take(due)

    def _take(self, due: deque[tuple[Hashable, _Deadline]]) -> tuple[Hashable, Callable[[], None]] | None:
        now = self._now()
        while due:
            key, deadline = due.popleft()
            if self._by_key.get(key) is not deadline:
                continue
            if deadline.at > now:
                self._enqueue(key, deadline)
                continue
            del self._by_key[key]
            return key, deadline.action
        return None

    def run_due(self) -> None:
        """Call the actions of all deadlines that are due, earliest first."""
        while (due := self.take_due()) is not None:
            due[1]()

    # -- moving time

    def __iter__(self) -> Iterator[Hashable]:
        """The keys."""
        return iter(tuple(self._by_key))

    def next_possible(self, but: Collection[Hashable] = ()) -> float:
        """When the next deadline may come due that may not yet, in the clock's seconds. ``but`` are left out."""
        now = self._now()
        return min(
            (it.possible_at for key, it in self._by_key.items() if it.possible_at > now and key not in but),
            default=NEVER,
        )

    def postpone(self, keys: Collection[Hashable], seconds: float) -> None:
        """Let the deadlines of ``keys`` come due ``seconds`` later."""
        for key in keys:
            deadline = self._by_key[key]
            deadline.at += seconds
            deadline.possible_at += seconds

    def hasten_possible(self, since: float = -NEVER) -> None:
        """Let all deadlines come due now that may, if they may only since then (in the clock's seconds)."""
        now = self._now()
        for key, deadline in self._by_key.items():
            if since < deadline.possible_at <= now < deadline.at:
                self._hasten(key, deadline)

    def hasten(self, key: Hashable) -> None:
        """Let the deadline of ``key`` come due now. Raises KeyError."""
        self._hasten(key, self._by_key[key])

    def _hasten(self, key: Hashable, deadline: _Deadline) -> None:
        deadline.at = min(deadline.at, self._now())
        self._enqueue(key, deadline)
        self.on_earlier()

    # -- the queue

    def _enqueue(self, key: Hashable, deadline: _Deadline) -> None:
        deadline.queued_at = deadline.at
        heappush(self._queue, (deadline.at, next(self._counter), key, deadline))
        if len(self._queue) > 2 * len(self._by_key) + STALE_ENTRIES_MAX:
            self._queue = [entry for entry in self._queue if self._by_key.get(entry[2]) is entry[3]]
            heapify(self._queue)
