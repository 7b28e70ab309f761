"""Records in flight: their states, the valid transitions, and `InFlightBatch`.

Neighbouring records in the same state are one `Run`, so the cost is that of batches, not of records. Kafka keeps one
object for a batch, and one for each offset as soon as its offsets differ. Pure. Source: ``RecordState``,
``InFlightState``, ``InFlightBatch``.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.coordinator.share.state import DeliveryState

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = ""
"""The member id of records that are not acquired (``EMPTY_MEMBER_ID``)."""
NEVER = float("inf")


AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
ARCHIVING = DeliveryState.ARCHIVING

TRANSITIONS: dict[DeliveryState, frozenset[DeliveryState]] = {
    AVAILABLE: frozenset((ACQUIRED, ARCHIVED)),  # archived: no longer in the log
    ACQUIRED: frozenset((AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)),
    ARCHIVING: frozenset((ARCHIVED,)),  # the dead-letter queue has the record, or cannot have it
    ACKNOWLEDGED: frozenset(),
    ARCHIVED: frozenset(),
}
"""State -> the states to which it may change."""
FINAL = frozenset(state for state, others in TRANSITIONS.items() if not others)
"""The states without a transition."""


class Run:
    """Neighbouring records in the same state. A transition that has to be stored first is ``pending``: the state
    changes only when it is stored, and until then no other transition begins.
    """

    __slots__ = (
        "deadline",
        "delivery_count",
        "first",
        "is_rejected",
        "last",
        "member_id",
        "pending",
        "state",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState,
        delivery_count: int,
        member_id: str = NOBODY,
        deadline: float = NEVER,
        pending: DeliveryState | None = None,
        *,
        is_rejected: bool = False,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        """The member that has acquired the records."""
        self.deadline = deadline
        """When their lock ends, in the clock's seconds."""
        self.pending = pending
        """The new state, while it is being stored."""
        self.is_rejected = is_rejected
        """Whether a member rejected the records that are `ARCHIVING`; otherwise they were delivered too often."""

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} {self.state.name} x{self.delivery_count} {self.member_id!r})"

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def outcome(self) -> DeliveryState:
        """The state after the pending transition, if there is one."""
        return self.state if self.pending is None else self.pending

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records."""
        return self.state is AVAILABLE

    @property
    def is_done(self) -> bool:
        """Whether the records have reached a final state, and it is stored."""
        return self.state in FINAL

    def is_due(self, now: float) -> bool:
        """Whether the lock of the records has ended, and nothing else happens to them."""
        return self.state is ACQUIRED and self.pending is None and self.deadline <= now

    def transition_to(self, state: DeliveryState) -> None:
        """Change the state; records that nobody has acquired have no lock."""
        assert state in TRANSITIONS[self.state], (self, state)
        self.state = state
        self.pending = None
        if state is not ACQUIRED:
            self.member_id = NOBODY
            self.deadline = NEVER

    def acquire(self, member_id: str, deadline: float) -> None:
        """Deliver the records to a member, which holds their lock until ``deadline``."""
        self.transition_to(ACQUIRED)
        self.delivery_count += 1
        self.member_id = member_id
        self.deadline = deadline

    def cut(self, offset: int) -> Run:
        """Keep the records below ``offset``; return a run with the others."""
        rest = Run(
            offset,
            self.last,
            self.state,
            self.delivery_count,
            self.member_id,
            self.deadline,
            self.pending,
            is_rejected=self.is_rejected,
        )
        self.last = offset - 1
        return rest

    def continues(self, other: Run) -> bool:
        """Whether the records are those after ``other``'s, in the same state. Not while something is being stored: the
        two may not be stored together.
        """
        return (
            self.first == other.last + 1
            and self.state is other.state
            and self.pending is other.pending is None
            and self.delivery_count == other.delivery_count
            and self.deadline == other.deadline
            and self.member_id == other.member_id
            and self.is_rejected == other.is_rejected
        )


class InFlightBatch:
    """Records that were acquired together, as one run or several. ``is_split``: whether Kafka would have one state for
    each offset by now. Kafka's errors differ then.
    """

    __slots__ = ("first", "is_split", "last", "runs")

    def __init__(self, run: Run) -> None:
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        self.is_split = False

    def __repr__(self) -> str:
        return f"InFlightBatch({self.runs})"

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def whole(self) -> Run:
        """The only run of a batch that is not split."""
        return self.runs[0]

    def at(self, offset: int) -> Run:
        """Return the run with the offset; the last one for offsets after the batch."""
        runs = self.runs
        return runs[0] if len(runs) == 1 else runs[bisect_right(runs, offset, key=_first) - 1]

    def between(self, first: int, last: int) -> list[Run]:
        """Return the runs from offset ``first`` to ``last``; those that reach beyond are cut there."""
        runs = self.runs
        if first <= self.first and last >= self.last:
            return list(runs)
        begin = self._cut(max(first, self.first))
        end = self._cut(last + 1) if last < self.last else len(runs)
        return runs[begin:end]

    def _cut(self, offset: int) -> int:
        """Let a run begin at the offset, which is in the batch; return its index."""
        index = bisect_right(self.runs, offset, key=_first) - 1
        if self.runs[index].first == offset:
            return index
        self.is_split = True
        self.runs.insert(index + 1, self.runs[index].cut(offset))
        return index + 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs with offsets from ``first`` to ``last``, as they are."""
        runs = self.runs
        begin = 0 if len(runs) == 1 else max(0, bisect_right(runs, first, key=_first) - 1)
        for index in range(begin, len(runs)):
            run = runs[index]
            if run.first > last:
                break
            if run.last >= first:
                yield run

    def join(self) -> None:
        """Make one run of neighbours that do not differ."""
        runs = self.runs
        if len(runs) == 1:
            return
        joined = [runs[0]]
        for run in runs[1:]:
            if run.continues(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined


_first = attrgetter("first")
