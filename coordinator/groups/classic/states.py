"""The states of a classic group, and which moves between them are legal (Kafka: ``ClassicGroupState``).

    EMPTY ──────────────▶ PREPARING_REBALANCE ◀──────────── STABLE
      ▲                     │      ▲      │                    ▲
      └── nobody is left ───┘      │      └─ all have joined   │ the leader has
                                   │             ▼             │ assigned
                                   └──── COMPLETING_REBALANCE ─┘

From every state a group becomes DEAD when its shard is given up.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The value is what clients and tools are shown."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset({State.DEAD}),
}
"""State -> the states it may move to."""
