"""Aborts transactions after their timeout, and removes transactional ids that are no longer used.

Kafka checks all transactions every ``transaction.abort.timed.out.transaction.cleanup.interval.ms``. Here each
transaction has a timer, set to the first such check that would find it timed out; so the interval has the same effect
as in Kafka, without periodic checks. Where time is moved, a check may come earlier (``early_ms`` of `Deadlines`).
Source: Kafka's ``abortTimedOutTransactions``, ``removeExpiredTransactionalIds``.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.transactions.end import fence
from oncelog.coordinator.transactions.state import ENDED, TIMEOUT_NEVER_MS, TransactionState
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.coordinator.transactions.state import Transaction

EXPIRED_BATCH = 100
"""Tombstones in one batch."""


class TransactionDeadline(NamedTuple):
    """The key of the timer of a transaction."""

    partition: int
    transactional_id: str

    @property
    def owner(self) -> str:
        """See `Deadlines`."""
        return self.transactional_id


def schedule_timeout(shard: TransactionShard, transactional_id: str) -> None:
    """Start the timer of a transaction that has just begun.

    The end of the transaction does not cancel the timer: the next one of the id postpones it, which is cheap, and
    without a next one it does nothing.
    """
    metadata = shard.transactions[transactional_id].metadata
    if metadata.state is not TransactionState.ONGOING or metadata.timeout_ms == TIMEOUT_NEVER_MS:
        return
    _set(shard, transactional_id, metadata.start_ms + metadata.timeout_ms + 1)


def _set(shard: TransactionShard, transactional_id: str, due_ms: int) -> None:
    """Set the timer to the first check that is not before ``due_ms``, a wall time."""
    interval = shard.context.settings().transaction_abort_timed_out_transaction_cleanup_interval_ms
    delay = _delay_to_next_check(shard, due_ms, interval)
    shard.context.deadlines.set(
        TransactionDeadline(shard.partition, transactional_id),
        delay,
        partial(_time_out, shard, transactional_id),
        early_ms=delay - max(due_ms - shard.context.now_ms(), 0),
    )


def _delay_to_next_check(shard: TransactionShard, due_ms: int, interval_ms: int) -> int:
    """Milliseconds until the first multiple of ``interval_ms`` that is neither before ``due_ms`` nor before now."""
    now = shard.context.now_ms()
    due_ms = max(due_ms, now)
    return due_ms + -due_ms % interval_ms - now


def _time_out(shard: TransactionShard, transactional_id: str) -> None:
    transaction = shard.transactions.get(transactional_id)
    if transaction is None or not shard.loaded or transaction.metadata.state is not TransactionState.ONGOING:
        return
    metadata = transaction.metadata
    if metadata.start_ms + metadata.timeout_ms < shard.context.now_ms():
        try:
            abort(shard, transactional_id, transaction)
        except KafkaError:
            # The append failed: try again at the next check, as Kafka does.
            _set(shard, transactional_id, shard.context.now_ms() + 1)
    else:
        # A newer transaction, or wall time was set back.
        schedule_timeout(shard, transactional_id)


def abort(shard: TransactionShard, transactional_id: str, transaction: Transaction) -> None:
    """Abort an open transaction because its time is over, and fence its producer.

    Raises KafkaError: errors of the log; then nothing has changed.
    """
    metadata = transaction.metadata
    fence(shard, transactional_id, transaction)
    shard.context.timer_event(
        "transaction timed out",
        transactional_id=transactional_id,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
    )


def schedule_id_expiration(shard: TransactionShard) -> None:
    """Start the shard's timer for the next removal of expired ids, if it has ids."""
    deadlines = shard.context.deadlines
    key = ("transactional-ids", shard.partition)
    if key in deadlines or not shard.transactions:
        return
    interval = shard.context.settings().transaction_remove_expired_transaction_cleanup_interval_ms
    delay = _delay_to_next_check(shard, shard.context.now_ms() + 1, interval)
    deadlines.set(key, delay, lambda: _expire_ids(shard), early_ms=delay)


def _expire_ids(shard: TransactionShard) -> None:
    # If an append fails, the next run finds the ids again.
    with suppress(KafkaError):
        forget_expired(shard)
    schedule_id_expiration(shard)


def forget_expired(shard: TransactionShard) -> list[str]:
    """Remove the ids without an open transaction that were unused for ``transactional.id.expiration.ms``; returns them.

    Raises KafkaError: errors of the log; ids of earlier batches are then removed.
    """
    before = shard.context.now_ms() - shard.context.settings().transactional_id_expiration_ms
    expired = [
        name
        for name, transaction in shard.transactions.items()
        if transaction.metadata.state in ENDED
        and transaction.volatile.pending_end is None
        and transaction.metadata.last_update_ms <= before
    ]
    for at in range(0, len(expired), EXPIRED_BATCH):
        names = expired[at : at + EXPIRED_BATCH]
        shard.forget(names)
        for name in names:
            shard.context.timer_event("transactional id expired", transactional_id=name)
    return expired
