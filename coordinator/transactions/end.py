"""EndTxn: decides whether a producer may end its transaction, and records the decision.

A decision is one record. `coordinator.transactions.markers` then writes a marker to every partition, and the record of
the completed transaction. With transactions v2 every end bumps the producer epoch, so the epoch tells a repeated
request from the next transaction's:

    repeated: its epoch + 1 is the stored epoch      current: its epoch is the stored epoch

                     abort                     commit
                     repeated    current       repeated    current
    Empty            fenced      new epoch     fenced      INVALID_TXN_STATE
    CompleteAbort    as before   new epoch     INVALID..   INVALID_TXN_STATE
    CompleteCommit   INVALID..   new epoch     as before   INVALID_TXN_STATE

Without v2 the epoch stays, only the same decision may be repeated, and an empty transaction cannot be ended.
Source: Kafka's ``TransactionCoordinator.endTransaction``; KIP-98, KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.state import (
    NO_PRODUCER_ID,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
    PendingEnd,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    TransactionState,
)
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.coordinator.transactions.shard import TransactionShard

_PREPARE = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def end_transaction(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    client_version: int,
) -> ProducerIdAndEpoch:
    """Decide the open transaction, or recognise a repeated request.

    Returns the producer id and epoch to use from now on (v2), or -1 and -1. Raises KafkaError:
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS while a transaction is
    being ended, UNSUPPORTED_VERSION for v2 while ``transaction.version`` is 0, errors of the log.
    """
    transaction = shard.transaction(transactional_id)
    if client_version >= TRANSACTIONS_V2:
        return _end_v2(shard, transactional_id, transaction, (producer_id, producer_epoch), commit)
    metadata = transaction.metadata
    if metadata.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.volatile.pending_end is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.state is TransactionState.ONGOING:
        _prepare(shard, transactional_id, transaction, commit=commit)
    elif metadata.state is _PREPARE[commit]:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    elif metadata.state is not _COMPLETE[commit]:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return ProducerIdAndEpoch(NO_PRODUCER_ID, -1)


def _prepare(
    shard: TransactionShard, transactional_id: str, transaction: Transaction, *, commit: bool
) -> None:
    old = transaction.metadata
    shard.transition_to(
        transactional_id,
        old._replace(
            previous_producer_id=old.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=_PREPARE[commit],
            last_update_ms=shard.context.now_ms(),
            client_version=0,
        ),
    )
    shard.begin_markers(transactional_id)


def _end_v2(
    shard: TransactionShard,
    transactional_id: str,
    transaction: Transaction,
    sent: tuple[int, int],
    commit: bool,
) -> ProducerIdAndEpoch:
    if transaction.volatile.pending_end is not None:
        # Checked first: the producer may already use the producer id that the completed transaction will have.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    metadata = transaction.metadata
    producer_id, producer_epoch = sent
    repeated_overflow = (
        transaction.previous_producer_id == producer_id != metadata.producer_id
        and producer_epoch == PRODUCER_EPOCH_MAX - 1
        and metadata.producer_epoch == 0
    )
    if producer_id != metadata.producer_id and not repeated_overflow:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    repeated = repeated_overflow or producer_epoch + 1 == metadata.producer_epoch
    current = producer_epoch == metadata.producer_epoch
    state = metadata.state
    if state in PREPARED:
        allowed = repeated and not repeated_overflow
    elif state in (TransactionState.ONGOING, TransactionState.EMPTY):
        allowed = current
    else:
        allowed = repeated or current
    if not allowed:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if state is TransactionState.ONGOING:
        return prepare_v2(shard, transactional_id, transaction, commit=commit, empty=False)
    if state is _PREPARE[commit]:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if repeated and state is _COMPLETE[commit]:
        return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)
    if commit or repeated or state in PREPARED:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    # The producer aborts a transaction whose writes may or may not have arrived: none has.
    return prepare_v2(shard, transactional_id, transaction, commit=False, empty=True)


def prepare_v2(
    shard: TransactionShard, transactional_id: str, transaction: Transaction, *, commit: bool, empty: bool
) -> ProducerIdAndEpoch:
    """Decide with a new producer epoch; after the last epoch the producer gets a new producer id.

    ``empty``: the transaction has no partition, and so no start time yet.
    """
    if shard.context.transaction_version() < TRANSACTIONS_V1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    old = transaction.metadata
    next_producer_id = shard.context.next_producer_id() if old.is_epoch_exhausted else NO_PRODUCER_ID
    now = shard.context.now_ms()
    shard.transition_to(
        transactional_id,
        old._replace(
            previous_producer_id=old.producer_id,
            next_producer_id=next_producer_id,
            # No producer gets the highest epoch; one that has it by an error must still be able to abort.
            producer_epoch=min(old.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            state=_PREPARE[commit],
            start_ms=now if empty else old.start_ms,
            last_update_ms=now,
            client_version=TRANSACTIONS_V2,
        ),
    )
    transaction.volatile.last_producer_epoch = old.producer_epoch
    prepared = shard.begin_markers(transactional_id).metadata
    after = completed(prepared, prepared.last_update_ms)
    return ProducerIdAndEpoch(after.producer_id, after.producer_epoch)


def fence(shard: TransactionShard, transactional_id: str, transaction: Transaction) -> None:
    """Abort the open transaction with a new epoch, which fences its producer.

    Raises KafkaError: errors of the log; then nothing has changed.
    """
    old = transaction.metadata
    assert old.state is TransactionState.ONGOING
    if shard.context.transaction_version() >= TRANSACTIONS_V2:
        prepare_v2(shard, transactional_id, transaction, commit=False, empty=False)
        return
    shard.transition_to(
        transactional_id,
        old._replace(
            previous_producer_id=old.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=min(old.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            state=TransactionState.PREPARE_ABORT,
            last_update_ms=shard.context.now_ms(),
            client_version=0,
        ),
    )
    transaction.volatile.last_producer_epoch = -1
    shard.begin_markers(transactional_id)


def completed(prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The metadata of a decided transaction once every partition has its marker."""
    rotates = prepared.client_version >= TRANSACTIONS_V2 and prepared.next_producer_id != NO_PRODUCER_ID
    return prepared._replace(
        producer_id=prepared.next_producer_id if rotates else prepared.producer_id,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=0 if rotates else prepared.producer_epoch,
        state=_COMPLETE[prepared.state is TransactionState.PREPARE_COMMIT],
        partitions={},
        last_update_ms=now_ms,
    )


def complete(shard: TransactionShard, pending: PendingEnd) -> None:
    """Store that every partition has its marker. Raises KafkaError if the append fails; the caller then retries."""
    assert not pending.partitions
    transaction = shard.transactions[pending.transactional_id]
    assert transaction.volatile.pending_end is pending
    shard.transition_to(pending.transactional_id, completed(transaction.metadata, shard.context.now_ms()))
    transaction.volatile.pending_end = None
