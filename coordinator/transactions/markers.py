"""What follows from a decision: a marker in every partition of the transaction, then the record that it is complete.

The writer (the broker) takes a `PendingEnd`, appends a marker to each of its partitions, says here how that went, and
calls `complete` when none is left. Each is a step of its own, so a crash may fall between any two: loading finds the
prepared record and begins anew, and a marker that is there already is one more that ends nothing. Source: Kafka's
``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``; KIP-98.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.end import complete
from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.coordinator.transactions.state import PendingEnd

__all__ = [
    "RETRY_MS_MAX",
    "RETRY_MS_MIN",
    "MarkerOutcome",
    "complete",
    "is_current",
    "on_marker_appended",
    "retry_delay_ms",
]

RETRY_MS_MIN = 20
RETRY_MS_MAX = 5_000
"""Milliseconds to wait before markers that could not be written are tried again; doubled each time."""


class MarkerOutcome(Enum):
    DONE = 1
    """The partition needs no more of this transaction."""
    RETRY = 2
    """It could not be written now."""
    GIVE_UP = 3
    """Another coordinator has taken over: it ends the transaction, not this one."""


def is_current(shard: TransactionShard, pending: PendingEnd) -> bool:
    """Whether it is still this one that is to be finished: the shard has not been given up or loaded anew."""
    known = shard.transactions.get(pending.transactional_id)
    return (
        shard.loaded and known is not None and known.volatile.pending_end is pending and not pending.given_up
    )


def on_marker_appended(
    pending: PendingEnd, topic: str, partition: int, code: ErrorCode, *, exists: bool
) -> MarkerOutcome:
    """Take note of what appending a marker gave (NONE: it is in the log). ``exists``: so does the partition."""
    if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        pending.given_up = True
        return MarkerOutcome.GIVE_UP
    # A later epoch in the partition means that this transaction has its end there. Kafka gives up on the whole
    # transaction then, and its id can never be used again; the other partitions would stay open for ever.
    done = code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
    # A partition that was deleted took its part of the transaction with it.
    if done or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists):
        pending.partitions.pop((topic, partition), None)
        return MarkerOutcome.DONE
    return MarkerOutcome.RETRY


def retry_delay_ms(pending: PendingEnd) -> int:
    """How long to wait before the next try; called once per try."""
    delay = min(RETRY_MS_MIN << pending.retries, RETRY_MS_MAX)
    pending.retries = min(pending.retries + 1, 16)
    return int(delay)
