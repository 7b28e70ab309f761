"""The states of a classic group and the valid transitions (Kafka: ``ClassicGroupState``).

    EMPTY ──────────────▶ PREPARING_REBALANCE ◀──────────── STABLE
      ▲                     │      ▲      │                    ▲
      └── no members left ──┘      │      └─ all have joined   │ the leader has
                                   │             ▼             │ assigned
                                   └──── COMPLETING_REBALANCE ─┘

A group of any state becomes DEAD when its shard is given up.
"""

from __future__ import annotations

from enum import Enum


class ClassicGroupState(Enum):
    """The values are the names that clients and tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.DEAD: frozenset({ClassicGroupState.DEAD}),
}
"""State -> the states that may follow it."""
