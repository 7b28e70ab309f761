"""Records in flight: the delivery states, the valid transitions, `InFlightState` and `InFlightBatch`.

Neighbouring records that do not differ have one `InFlightState`, so the cost is that of batches, not of records. Kafka
has one for a batch, and one for each offset as soon as its offsets differ. Pure. Source: ``RecordState``,
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


class InFlightState:
    """The in-flight state of neighbouring records. A transition that has to be stored first is ``pending``: ``state``
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
        return f"InFlightState({self.first}-{self.last} {self.state.name} x{self.delivery_count} {self.member_id!r})"

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
    def is_final(self) -> bool:
        """Whether the state is final. A pending transition does not count."""
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

    def cut(self, offset: int) -> InFlightState:
        """Keep the records below ``offset``; return the state of the others."""
        rest = InFlightState(
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

    def continues(self, other: InFlightState) -> bool:
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
    """Records that were acquired together, with one state or several. ``is_split``: whether Kafka would have one state
    for each offset by now. Kafka's errors differ then.
    """

    __slots__ = ("first", "is_split", "last", "states")

    def __init__(self, records: InFlightState) -> None:
        self.first = records.first
        self.last = records.last
        self.states = [records]
        self.is_split = False

    def __repr__(self) -> str:
        return f"InFlightBatch({self.states})"

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def whole(self) -> InFlightState:
        """The only in-flight state of a batch that is not split."""
        return self.states[0]

    def at(self, offset: int) -> InFlightState:
        """Return the in-flight state with the offset; the last one for offsets after the batch."""
        states = self.states
        return states[0] if len(states) == 1 else states[bisect_right(states, offset, key=_first) - 1]

    def cut_between(self, first: int, last: int) -> list[InFlightState]:
        """Return the states from offset ``first`` to ``last``; those that reach beyond are cut there."""
        states = self.states
        if first <= self.first and last >= self.last:
            return list(states)
        begin = self._cut(max(first, self.first))
        end = self._cut(last + 1) if last < self.last else len(states)
        return states[begin:end]

    def _cut(self, offset: int) -> int:
        """Let a state begin at the offset, which is in the batch; return its index."""
        index = bisect_right(self.states, offset, key=_first) - 1
        if self.states[index].first == offset:
            return index
        self.is_split = True
        self.states.insert(index + 1, self.states[index].cut(offset))
        return index + 1

    def overlapping(self, first: int, last: int) -> Iterator[InFlightState]:
        """The states with offsets from ``first`` to ``last``, as they are."""
        states = self.states
        begin = 0 if len(states) == 1 else max(0, bisect_right(states, first, key=_first) - 1)
        for index in range(begin, len(states)):
            records = states[index]
            if records.first > last:
                break
            if records.last >= first:
                yield records

    def join(self) -> None:
        """Make one state of neighbours that do not differ."""
        states = self.states
        if len(states) == 1:
            return
        joined = [states[0]]
        for records in states[1:]:
            if records.continues(joined[-1]):
                joined[-1].last = records.last
            else:
                joined.append(records)
        self.states = joined


_first = attrgetter("first")
