"""Completes a decided transaction: a marker to each of its partitions, then the record that it is complete.

The broker takes a `PendingEnd`, appends a marker to each of its partitions, reports each result here, and calls
`complete` when no partition is left. Each is a step of its own, and the broker may crash between any two: loading finds
the prepared record and starts again, and a second marker in a partition has no effect. Source: Kafka's
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
"""Milliseconds before failed markers are tried again; doubled each time."""


class MarkerOutcome(Enum):
    DONE = 1
    """The partition is complete."""
    RETRY = 2
    """The append failed; try again."""
    GIVE_UP = 3
    """Another coordinator has taken over and completes the transaction."""


def is_current(shard: TransactionShard, pending: PendingEnd) -> bool:
    """Whether this coordinator still has to complete it: the shard was neither given up nor loaded again."""
    transaction = shard.transactions.get(pending.transactional_id)
    return (
        shard.loaded
        and transaction is not None
        and transaction.volatile.pending_end is pending
        and not pending.given_up
    )


def on_marker_appended(
    pending: PendingEnd, topic: str, partition: int, code: ErrorCode, *, exists: bool
) -> MarkerOutcome:
    """Record the result of appending a marker (NONE: success). ``exists``: whether the partition exists."""
    if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        pending.given_up = True
        return MarkerOutcome.GIVE_UP
    # A newer producer epoch in the partition means that the transaction has ended there. Kafka then gives up the whole
    # transaction: its id can never be used again, and its other partitions stay open for ever.
    done = code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
    # A deleted partition needs no marker.
    if done or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists):
        pending.partitions.pop((topic, partition), None)
        return MarkerOutcome.DONE
    return MarkerOutcome.RETRY


def retry_delay_ms(retries: int) -> int:
    """Milliseconds to wait before the next attempt, after so many that were repeated."""
    return int(min(RETRY_MS_MIN << min(retries, 16), RETRY_MS_MAX))
