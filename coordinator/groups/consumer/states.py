"""The states of a consumer group and of its members (`MemberState`), with the valid transitions.

A member's state is stored with its current assignment. A group's state is not stored: it is computed from the group's
epochs and members (`coordinator.groups.consumer.group.ConsumerGroup.state`).

How a member is reconciled to a new target assignment::

             a partition must be revoked                  the member has revoked it
    STABLE ---------------------------------> UNREVOKED -------------------------------> STABLE
      |                                          |                                         ^
      | another member still holds a             | (the same)                              |
      | partition of the target                  v                                         |
      +------------------------------------> UNRELEASED -----------------------------------+
                                                          the other member has revoked it

Source: Kafka's ``MemberState``, ``ConsumerGroup.ConsumerGroupState``, ``CurrentAssignmentBuilder``; KIP-848.
"""

from __future__ import annotations

from enum import Enum

from oncelog.coordinator.groups.modern.member import MemberState


class ConsumerGroupState(Enum):
    """A group's state; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target assignment."""
    RECONCILING = "Reconciling"
    """A member is not yet reconciled to the target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


_LIVE = (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)

MEMBER_TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    # A member may keep its state with another epoch or other partitions.
    MemberState.STABLE: frozenset(_LIVE),
    MemberState.UNREVOKED_PARTITIONS: frozenset(_LIVE),
    MemberState.UNRELEASED_PARTITIONS: frozenset(_LIVE),
    MemberState.UNKNOWN: frozenset(_LIVE),
}

GROUP_TRANSITIONS: dict[ConsumerGroupState, frozenset[ConsumerGroupState]] = {
    ConsumerGroupState.EMPTY: frozenset(
        # The first member must wait for its assignment; or it upgraded a classic group; or it got everything at once.
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
