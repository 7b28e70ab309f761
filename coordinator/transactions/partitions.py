"""Adds partitions to a transaction, and verifies that they were added.

Older producers add partitions with AddPartitionsToTxn and AddOffsetsToTxn; with transactions v2 the first Produce to a
partition or the first TxnOffsetCommit adds it (KIP-890). Source: Kafka's ``TransactionCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.transactions.state import (
    ENDED,
    PREPARED,
    TRANSACTIONS_V1,
    TRANSACTIONS_V2,
    TransactionState,
    with_added,
)
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.coordinator.transactions.state import Transaction


def add_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[tuple[str, int]],
    client_version: int,
) -> None:
    """Add the partitions to the open transaction, or begin one with them.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while the last transaction
    is being ended, UNSUPPORTED_VERSION for v2 while ``transaction.version`` is 0, errors of the log.
    """
    transaction = shard.transaction(transactional_id)
    if transaction.volatile.pending_end is not None:
        # Checked first: the producer may already use the producer id that the completed transaction will have.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_owner(transaction, producer_id, producer_epoch)
    old = transaction.metadata
    if old.state is TransactionState.ONGOING and all(old.has(*partition) for partition in partitions):
        return
    if client_version >= TRANSACTIONS_V2 and shard.context.transaction_version() < TRANSACTIONS_V1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    now = shard.context.now_ms()
    shard.transition_to(
        transactional_id,
        old._replace(
            previous_producer_id=old.producer_id,
            state=TransactionState.ONGOING,
            partitions=with_added(old.partitions, partitions),
            start_ms=now if old.state in ENDED else old.start_ms,
            last_update_ms=now,
            client_version=client_version,
        ),
    )


def verify_partitions(
    shard: TransactionShard,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[tuple[str, int]],
) -> list[tuple[str, int]]:
    """The partitions that are not part of the producer's open transaction.

    Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    transaction = shard.transaction(transactional_id)
    _check_owner(transaction, producer_id, producer_epoch)
    return [partition for partition in partitions if not transaction.metadata.has(*partition)]


def _check_owner(transaction: Transaction, producer_id: int, producer_epoch: int) -> None:
    metadata = transaction.metadata
    if metadata.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if metadata.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
