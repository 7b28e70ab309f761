"""The state of a transactional id: durable metadata, volatile state, and the valid transitions.

`TransactionMetadata` never changes: a replayed record puts a new one in its place. `VolatileTransactionState` is lost
with the process; Kafka does not store it either. Source: Kafka's ``TransactionState``, ``TransactionMetadata``,
``TransactionLog``; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from oncelog.wire.stored.transactions import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
PRODUCER_EPOCH_MAX = 0x7FFF
"""No client gets it, so that a coordinator can always fence with a higher epoch."""
TIMEOUT_NEVER_MS = 0x7FFFFFFF
"""The timeout of a two-phase commit, which only its producer may end (KIP-939)."""
TRANSACTIONS_V0 = 0
"""The levels of the feature ``transaction.version``, and of a client's protocol. At this one the client adds
partitions."""
TRANSACTIONS_V1 = 1
"""From this level on records are written in version 1, with tagged fields."""
TRANSACTIONS_V2 = 2
"""From this level on every end bumps the producer epoch, and the broker adds partitions (KIP-890)."""


class TransactionState(IntEnum):
    """The values are those in stored records."""

    EMPTY = 0
    """No transaction since the producer was initialised."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: after this record the transaction is completed with this outcome, even after a crash."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired; stored as a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Never stored: one step both fences a producer and aborts its transaction."""

    @property
    def label(self) -> str:
        """The name that tools show: ``PrepareCommit``."""
        return LABELS[self]


LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
STATES_BY_LABEL = {label: state for state, label in LABELS.items()}

_ENDED = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

VALID_PREVIOUS_STATES: Mapping[TransactionState, tuple[TransactionState, ...]] = {
    TransactionState.EMPTY: _ENDED,
    TransactionState.ONGOING: (TransactionState.ONGOING, *_ENDED),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    # From an ended state too: with transactions v2 a producer may abort a transaction unknown to the coordinator.
    TransactionState.PREPARE_ABORT: (TransactionState.ONGOING, *_ENDED),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    TransactionState.DEAD: _ENDED,
    TransactionState.PREPARE_EPOCH_FENCE: (),
}
"""State -> the states from which it may follow."""

PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
ENDED = _ENDED
"""States without an open transaction: the id may begin one, be initialised again, or expire."""

Partitions = dict[str, tuple[int, ...]]
"""Topic -> partitions; immutable by convention."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


class TransactionMetadata(NamedTuple):
    """The durable state of a transactional id: its last record. Times in ms; -1 for no id or epoch."""

    producer_id: int
    previous_producer_id: int
    """The producer id before the last transition; mostly unchanged."""
    next_producer_id: int
    """The producer id after completion, where the epochs of the present one are used up."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    """Partitions with data or offsets of the transaction."""
    start_ms: int
    last_update_ms: int
    client_version: int
    """The producer's transaction version (`TRANSACTIONS_V0` and so on)."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    def has(self, topic: str, partition: int) -> bool:
        return partition in self.partitions.get(topic, ())

    def to_value(self, version: int) -> TransactionLogValue:
        """The record's value; version 0 lacks the previous and next producer id and the client's version."""
        flexible = version > 0
        return TransactionLogValue(
            self.producer_id,
            self.previous_producer_id if flexible else NO_PRODUCER_ID,
            self.next_producer_id if flexible else NO_PRODUCER_ID,
            self.producer_epoch,
            NO_PRODUCER_EPOCH,
            self.timeout_ms,
            self.state,
            None
            if self.state is TransactionState.EMPTY
            else [PartitionsSchema(topic, list(ids)) for topic, ids in self.partitions.items()],
            self.last_update_ms,
            self.start_ms,
            self.client_version if flexible else 0,
        )


def from_value(value: TransactionLogValue) -> TransactionMetadata:
    partitions: Partitions = {}
    for row in value.transaction_partitions or ():
        # A topic may have several rows.
        partitions[row.topic] = (*partitions.get(row.topic, ()), *row.partition_ids)
    return TransactionMetadata(
        value.producer_id,
        value.previous_producer_id,
        value.next_producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )


def is_epoch_exhausted(epoch: int) -> bool:
    return epoch >= PRODUCER_EPOCH_MAX - 1


def with_added(partitions: Partitions, added: Iterable[tuple[str, int]]) -> Partitions:
    """``partitions`` with ``added``, in the order of their addition."""
    topics = {topic: dict.fromkeys(ids) for topic, ids in partitions.items()}
    for topic, partition in added:
        topics.setdefault(topic, {})[partition] = None
    return {topic: tuple(ids) for topic, ids in topics.items()}


def topic_partitions(partitions: Partitions) -> Iterator[tuple[str, int]]:
    for topic, ids in partitions.items():
        for partition in ids:
            yield topic, partition


class VolatileTransactionState:
    """State of a transactional id that is lost at a restart."""

    __slots__ = ("last_producer_epoch", "pending_end", "previous_producer_id")

    def __init__(self) -> None:
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        """The previous epoch, if its own producer bumped it: that producer may repeat the request (KIP-360)."""
        self.previous_producer_id = NO_PRODUCER_ID
        """The producer id before the last transition (`Transaction.previous_producer_id`)."""
        self.pending_end: PendingEnd | None = None
        """Set while markers are being written; requests meanwhile get CONCURRENT_TRANSACTIONS."""


class PendingEnd:
    """A transaction between prepare and complete, with the ``partitions`` that have no marker yet."""

    __slots__ = ("given_up", "metadata", "partitions", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        assert metadata.state in PREPARED
        self.transactional_id = transactional_id
        self.metadata = metadata
        """The prepared metadata."""
        self.partitions = dict.fromkeys(topic_partitions(metadata.partitions))
        self.given_up = False
        """Another coordinator has taken over; this one stops."""

    @property
    def committed(self) -> bool:
        return self.metadata.state is TransactionState.PREPARE_COMMIT


class Transaction:
    """A transactional id: its durable metadata and its volatile state."""

    __slots__ = ("metadata", "offset", "volatile")

    def __init__(self, metadata: TransactionMetadata, offset: int) -> None:
        self.metadata = metadata
        self.offset = offset
        """The offset of its last record; markers must wait until that is durable."""
        self.volatile = VolatileTransactionState()

    @property
    def previous_producer_id(self) -> int:
        """The producer id before the last transition. Records of version 0 lack it."""
        previous = self.volatile.previous_producer_id
        return self.metadata.previous_producer_id if previous == NO_PRODUCER_ID else previous
