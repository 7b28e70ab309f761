"""`PartitionFetchState`: where a follower is with a partition, and what it does about each answer of the leader.

==========  ===============================  ==========================================================================
state       in the next request              what ends it
==========  ===============================  ==========================================================================
fetching    yes                              an answer: `ON_ERROR` says what follows an error
delayed     no                               its time, after which the same is asked again
failed      no                               a new leader epoch in the metadata; never for a log that is offline
==========  ===============================  ==========================================================================

A follower's log may have records that its leader never had: of a leader that had not replicated them, or before an
unclean election. The follower says with each fetch which epoch its last record has; a leader in whose log that epoch
ends earlier answers with its last common epoch and where that ends, and the follower cuts (`truncation_offset`).
Sometimes that takes several rounds: each cuts back to an epoch that the follower knows (KIP-279, KIP-595).

Source: Kafka's ``AbstractFetcherThread``, ``PartitionFetchState``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.broker.log.partition_log import PartitionLog

NOT_DELAYED = -1.0


class Step(Enum):
    """What follows an error of the leader's."""

    DELAY = "ask again later"
    FAIL = "wait for the metadata: the leader's are newer"
    FIND_OFFSET = "ask where the leader's log begins and ends"


ON_ERROR = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Step.FIND_OFFSET,
    ErrorCode.FENCED_LEADER_EPOCH: Step.FAIL,
}
"""All other errors: `Step.DELAY`."""


class PartitionFetchState:
    """A partition that this node fetches from its leader, in one leader epoch."""

    __slots__ = (
        "asked_offset",
        "delayed_until_s",
        "in_session",
        "is_current",
        "is_failed",
        "lag",
        "leader_epoch",
        "log",
        "offset",
        "sent_log_start",
    )

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.offset = log.log_end_offset
        """Where the next fetch begins."""
        self.lag: int | None = None
        """How far its end is below the leader's watermark; None before the first answer."""
        self.is_current = True
        """False after it was removed from its fetcher, or another leader epoch has begun."""
        self.is_failed = False
        self.delayed_until_s = NOT_DELAYED
        """In real time, seconds."""
        self.in_session = False
        """Whether the fetch session has it, as it was `asked_offset`."""
        self.asked_offset = -1
        self.sent_log_start = -1

    def __repr__(self) -> str:
        return f"PartitionFetchState({self.log!r}, epoch {self.leader_epoch}, offset {self.offset})"

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record, -1 if there is none."""
        return self.log.latest_epoch

    @property
    def is_fetching(self) -> bool:
        return self.is_current and not self.is_failed and self.delayed_until_s == NOT_DELAYED

    def is_asked(self) -> bool:
        """Whether the session has it, as it is now."""
        return (
            self.in_session
            and self.asked_offset == self.offset
            and self.sent_log_start == self.log.log_start_offset
        )


def truncation_offset(log: PartitionLog, epoch: int, end_offset: int) -> int:
    """Return the offset to truncate ``log`` to. The leader has said: the latest epoch that both logs have is ``epoch``,
    and ends at ``end_offset`` in its own (Kafka: ``getOffsetTruncationState``).
    """
    if end_offset < 0:
        return log.high_watermark
    own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
    if own_epoch < 0 or own_end_offset < 0:
        return min(end_offset, log.log_end_offset)
    if own_epoch != epoch:
        return min(own_end_offset, log.log_end_offset)
    return min(own_end_offset, end_offset, log.log_end_offset)
