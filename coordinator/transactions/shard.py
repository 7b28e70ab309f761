"""`TransactionShard`: the transactional ids that one partition of ``__transaction_state`` stores.

Durable state changes only in `replay`: a step computes the next `TransactionMetadata` and calls `transition_to`.
Kafka: ``TransactionStateManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.coordinator.deadlines import Deadlines
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID, CoordinatorRecord, PartitionWriter
from oncelog.coordinator.timer_event import TimerEvent, nobody
from oncelog.coordinator.transactions import expiry
from oncelog.coordinator.transactions.errors import to_client_error
from oncelog.coordinator.transactions.state import (
    PREPARED,
    TRANSACTIONS_V1,
    VALID_PREVIOUS_STATES,
    PendingEnd,
    Transaction,
    TransactionMetadata,
    TransactionState,
    from_value,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import Message
from oncelog.wire.stored.transactions import TransactionLogKey, TransactionLogValue


class TransactionSettings(Protocol):
    """The broker configuration that transactions read, with the names of `broker.config`."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int


class TransactionContext:
    """The outside world of the shards of transactional ids, the same for all of a node.

    ``now_ms`` returns wall time in milliseconds, ``settings`` the current settings, ``transaction_version`` the
    finalized level of that feature, ``next_producer_id`` a new producer id (it may raise KafkaError). ``on_prepared``
    is called in the step that decides a transaction and has its markers written, as described in `markers`.
    ``timer_event`` is told what was done because of a deadline.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        deadlines: Deadlines,
        settings: Callable[[], TransactionSettings],
        transaction_version: Callable[[], int],
        next_producer_id: Callable[[], int],
        on_prepared: Callable[[TransactionShard, PendingEnd], None],
        timer_event: TimerEvent = nobody,
    ) -> None:
        self.now_ms = now_ms
        self.deadlines = deadlines
        self.settings = settings
        self.transaction_version = transaction_version
        self.next_producer_id = next_producer_id
        self.on_prepared = on_prepared
        self.timer_event = timer_event


class TransactionShard:
    """The shard of one ``partition``; ``coordinator_epoch`` is the leader epoch of this node in it."""

    __slots__ = ("context", "coordinator_epoch", "loaded", "partition", "transactions", "writer")

    def __init__(
        self, partition: int, coordinator_epoch: int, writer: PartitionWriter, context: TransactionContext
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.writer = writer
        self.context = context
        self.transactions: dict[str, Transaction] = {}
        self.loaded = False
        """Whether the whole log has been replayed; before, no timers run and no requests are served."""

    def transaction(self, transactional_id: str) -> Transaction:
        """The transaction. Raises KafkaError: INVALID_REQUEST for an empty id, INVALID_PRODUCER_ID_MAPPING for
        an unknown one.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    # --- durable state

    def transition_to(self, transactional_id: str, new: TransactionMetadata) -> None:
        """Append and apply the next metadata. Raises KafkaError if the append fails; then nothing has changed."""
        transaction = self.transactions.get(transactional_id)
        old = new if transaction is None else transaction.metadata
        assert old.state in VALID_PREVIOUS_STATES[new.state], f"{old.state.name} -> {new.state.name}"
        assert new.producer_id >= 0
        assert new.producer_epoch >= 0
        version = 1 if self.context.transaction_version() >= TRANSACTIONS_V1 else 0
        self._commit([CoordinatorRecord(TransactionLogKey(transactional_id), new.to_value(version), version)])
        self.transactions[transactional_id].volatile.previous_producer_id = old.producer_id
        if new.state is TransactionState.ONGOING and old.state is not TransactionState.ONGOING:
            expiry.schedule_timeout(self, transactional_id)
        elif transaction is None:
            expiry.schedule_id_expiration(self)

    def forget(self, transactional_ids: Sequence[str]) -> None:
        """Delete expired ids. Raises like `transition_to`."""
        for transactional_id in transactional_ids:
            assert (
                self.transactions[transactional_id].metadata.state
                in VALID_PREVIOUS_STATES[TransactionState.DEAD]
            )
        self._commit([CoordinatorRecord(TransactionLogKey(name), None) for name in transactional_ids])

    def _commit(self, records: Sequence[CoordinatorRecord]) -> None:
        try:
            offset = self.writer.append(records)
        except KafkaError as error:
            raise to_client_error(error) from error
        for record_offset, record in enumerate(records, offset):
            self.replay(record.key, record.value, record_offset)

    def replay(
        self, key: Message, value: Message | None, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log. Durable state changes only here."""
        assert isinstance(key, TransactionLogKey)
        name = key.transactional_id
        if value is None:
            self.transactions.pop(name, None)
            return
        assert isinstance(value, TransactionLogValue)
        metadata = from_value(value)
        transaction = self.transactions.get(name)
        if transaction is None:
            self.transactions[name] = Transaction(metadata, offset)
        else:
            transaction.metadata = metadata
            transaction.offset = offset

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no record of this topic belongs to a transaction."""

    # --- volatile state and timers

    def begin_markers(self, transactional_id: str) -> PendingEnd:
        """Begin to write the markers of a decided transaction."""
        transaction = self.transactions[transactional_id]
        assert transaction.metadata.state in PREPARED
        assert transaction.volatile.pending_end is None
        pending = transaction.volatile.pending_end = PendingEnd(transactional_id, transaction.metadata)
        self.context.on_prepared(self, pending)
        return pending

    def on_loaded(self) -> None:
        """The whole log is replayed: complete decided transactions and start the timers of open ones."""
        self.loaded = True
        if self.transactions:
            expiry.schedule_id_expiration(self)
        for transactional_id, transaction in list(self.transactions.items()):
            expiry.schedule_timeout(self, transactional_id)
            if transaction.metadata.state in PREPARED:
                self.begin_markers(transactional_id)

    def on_unloaded(self) -> None:
        """The shard is given up: cancel its timers."""
        self.loaded = False
        for transactional_id in self.transactions:
            self.context.deadlines.cancel(expiry.TransactionDeadline(self.partition, transactional_id))
        self.context.deadlines.cancel(("transactional-ids", self.partition))
