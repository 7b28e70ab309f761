"""InitProducerId with a transactional id: bumps the producer epoch, which fences the former producer.

Source: Kafka's ``TransactionCoordinator.handleInitProducerId``, ``TransactionMetadata``; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.end import fence
from oncelog.coordinator.transactions.state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREPARED,
    TIMEOUT_NEVER_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    is_epoch_exhausted,
)
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.coordinator.transactions.state import Transaction


def init_producer_id(
    shard: TransactionShard,
    transactional_id: str,
    timeout_ms: int | None,
    expected: ProducerIdAndEpoch | None,
) -> ProducerIdAndEpoch:
    """Return the producer id and epoch to use. Its transactions time out after ``timeout_ms``; None: never.

    ``expected``: the id and epoch of a producer that recovers from an error (KIP-360).
    Raises KafkaError: INVALID_TRANSACTION_TIMEOUT; PRODUCER_FENCED if another producer has taken over the id;
    CONCURRENT_TRANSACTIONS while a transaction of the id is being ended, which this call may have aborted; errors of
    the log or of ``next_producer_id``.
    """
    if timeout_ms is None:
        timeout_ms = TIMEOUT_NEVER_MS
    elif not 0 < timeout_ms <= shard.context.settings().transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        return _begin(shard, transactional_id, timeout_ms)
    old = transaction.metadata
    if transaction.volatile.pending_end is not None or old.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_owner(transaction, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if old.state is TransactionState.ONGOING:
        fence(shard, transactional_id, transaction)
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if old.is_epoch_exhausted and (expected is None or expected.producer_epoch == old.producer_epoch):
        producer = ProducerIdAndEpoch(shard.context.next_producer_id(), 0)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else old.producer_epoch
    else:
        epoch, last_epoch = _next_epoch(transaction, expected)
        producer = ProducerIdAndEpoch(old.producer_id, epoch)
    shard.transition_to(transactional_id, _initialised(shard, old, producer, timeout_ms))
    transaction.volatile.last_producer_epoch = last_epoch
    return producer


def _begin(shard: TransactionShard, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
    """Store a new transactional id, whatever epoch its producer expects."""
    producer = ProducerIdAndEpoch(shard.context.next_producer_id(), 0)
    now = shard.context.now_ms()
    empty = TransactionMetadata(
        producer.producer_id,
        producer.producer_id,
        NO_PRODUCER_ID,
        producer.producer_epoch,
        timeout_ms,
        TransactionState.EMPTY,
        {},
        NO_TIMESTAMP,
        now,
        0,
    )
    shard.transition_to(transactional_id, empty)
    return producer


def _is_owner(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer id is the present one, or the former one whose epochs are used up. Does not check
    the epoch.
    """
    metadata = transaction.metadata
    if expected.producer_id == metadata.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and is_epoch_exhausted(
        expected.producer_epoch
    )


def _next_epoch(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    """The epoch to respond with, and the previous epoch, with which its producer may repeat the request."""
    current = transaction.metadata.producer_epoch
    if expected is None:
        return current + 1, NO_PRODUCER_EPOCH
    if expected.producer_epoch == current:
        return current + 1, current
    if expected.producer_epoch == transaction.volatile.last_producer_epoch:
        # The producer repeats a request whose response was lost; a newer producer would have reset the last epoch.
        return current, transaction.volatile.last_producer_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _initialised(
    shard: TransactionShard, old: TransactionMetadata, producer: ProducerIdAndEpoch, timeout_ms: int
) -> TransactionMetadata:
    return old._replace(
        producer_id=producer.producer_id,
        previous_producer_id=old.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions={},
        start_ms=NO_TIMESTAMP,
        last_update_ms=shard.context.now_ms(),
    )
