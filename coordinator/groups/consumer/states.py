"""The states of a consumer group and of its members, and their legal moves: the only list of them.

A member's state is stored with its current assignment. A group's state is stored nowhere: it follows from the group's
epochs and its members (`coordinator.groups.consumer.group.ConsumerGroup.state`).

How a member gets from one target assignment to the next::

             the target takes something away              the member says that it is gone
    STABLE ---------------------------------> UNREVOKED -------------------------------> STABLE
      |                                          |                                         ^
      | the target gives what another            | (the same)                              |
      | member still holds                       v                                         |
      +------------------------------------> UNRELEASED -----------------------------------+
                                                          the other member gave it up

Source: Kafka's ``MemberState``, ``ConsumerGroup.ConsumerGroupState``, ``CurrentAssignmentBuilder``; KIP-848.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class MemberState(IntEnum):
    """How far a member's reconciliation is, as it is stored."""

    STABLE = 0
    """It has all that its epoch gives it, and nothing to give up."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give partitions up, and has not yet said that they are gone."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up."""
    UNKNOWN = 127
    """Written by a later version; the member is fenced and begins anew."""

    @classmethod
    def stored(cls, value: int) -> MemberState:
        return cls(value) if value in (0, 1, 2) else cls.UNKNOWN


class ConsumerGroupState(Enum):
    """A group's state, with the words that Kafka's tools show."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target assignment."""
    RECONCILING = "Reconciling"
    """A member is not yet where the target assignment wants it."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


_LIVE = (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)

MEMBER_TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    # A member may stay what it is with another epoch or other partitions.
    MemberState.STABLE: frozenset(_LIVE),
    MemberState.UNREVOKED_PARTITIONS: frozenset(_LIVE),
    MemberState.UNRELEASED_PARTITIONS: frozenset(_LIVE),
    MemberState.UNKNOWN: frozenset(_LIVE),
}

GROUP_TRANSITIONS: dict[ConsumerGroupState, frozenset[ConsumerGroupState]] = {
    ConsumerGroupState.EMPTY: frozenset(
        # A first member whose assignment must wait; one that takes over a classic group; one that gets everything.
        {
            ConsumerGroupState.ASSIGNING,
            ConsumerGroupState.RECONCILING,
            ConsumerGroupState.STABLE,
            ConsumerGroupState.DEAD,
        }
    ),
    ConsumerGroupState.ASSIGNING: frozenset(
        {ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.RECONCILING: frozenset(
        {ConsumerGroupState.ASSIGNING, ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.STABLE: frozenset(
        {ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING, ConsumerGroupState.EMPTY}
    ),
    ConsumerGroupState.DEAD: frozenset(),
}
