"""`FollowerState`: what a leader knows of one of its followers, from the follower's fetches.

A follower is in sync while it has caught up with the leader's log end offset at some moment of the last
``replica.lag.time.max.ms``. It need not do so in any one fetch: under a steady stream of appends, each fetch begins
below the end that the leader has by then. So a fetch that begins where the log ended at the time of the fetch before
it says that the follower had caught up at that time.

Times are seconds of the leader's broker time (`Clock.monotonic`). Source: Kafka's ``Replica``, ``ReplicaState``.
"""

from __future__ import annotations

import math

UNKNOWN_OFFSET = -1
NEVER = -math.inf
UNKNOWN_BROKER_EPOCH = -1


class FollowerState:
    """One follower of a partition. It has not fetched yet; a follower in the ISR counts as caught up ``now_s``."""

    __slots__ = (
        "broker_epoch",
        "caught_up_s",
        "end_offset",
        "fetched_s",
        "leader_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int, now_s: float, *, is_in_sync: bool) -> None:
        self.node_id = node_id
        self.end_offset = UNKNOWN_OFFSET
        """Its log end offset: where its last fetch began."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None
        """The epoch of its registration as its last fetch named it, -1 if that named none; None before the first."""
        self.fetched_s = NEVER
        """When it fetched last."""
        self.leader_end_offset = UNKNOWN_OFFSET
        """Where the leader's log ended then."""
        self.caught_up_s = now_s if is_in_sync else NEVER
        """When it had caught up last."""

    def begin_epoch(self, now_s: float, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """The same leader begins another epoch, in which the follower has not fetched yet."""
        self.leader_end_offset = leader_end_offset
        self.fetched_s = self.caught_up_s = now_s if is_in_sync else NEVER

    def note_fetch(
        self, end_offset: int, log_start_offset: int, broker_epoch: int, now_s: float, leader_end_offset: int
    ) -> None:
        """The follower fetches from ``end_offset``, and the leader's log ends at ``leader_end_offset`` now."""
        if end_offset >= leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, now_s)
        elif end_offset >= self.leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_s = now_s
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)

    def note_idle(self, until_s: float) -> None:
        """Until then, the follower fetched in its session, and the partition had nothing new for it: it had caught
        up.
        """
        self.fetched_s = max(self.fetched_s, until_s)
        self.caught_up_s = max(self.caught_up_s, until_s)

    def is_caught_up(self, leader_end_offset: int, now_s: float, lag_max_s: float) -> bool:
        """Whether it has the whole log, or had so no longer than ``lag_max_s`` ago."""
        return self.end_offset == leader_end_offset or now_s - self.caught_up_s <= lag_max_s
