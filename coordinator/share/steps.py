"""The steps of Initialize-, Read-, Write-, Delete- and ReadShareGroupStateSummary (APIs 83 to 87).

Each raises KafkaError with Kafka's code and message, also if its record could not be written. Then nothing has changed.
Source: ``ShareCoordinatorShard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.share.batches import combine
from oncelog.coordinator.share.state import (
    UNINITIALIZED_START_OFFSET,
    UNINITIALIZED_SUMMARY,
    UNKNOWN_COUNT,
    ShareState,
    StateBatch,
    StateSummary,
)
from oncelog.coordinator.share.stored_state import snapshot_record, tombstone, update_record
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.coordinator.share.shard import ShareShard
    from oncelog.coordinator.share.state import SharePartitionKey
    from oncelog.coordinator.share.stored_state import StoredShareState


def initialize(shard: ShareShard, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
    """Begin the state anew, without batches. Also raises FENCED_STATE_EPOCH."""
    _check_partition(key)
    _check_number("state epoch", state_epoch)
    state = shard.states.get(key)
    if state is not None:
        _check_state_epoch(state, state_epoch)
    _check_topic(shard, key)
    now_ms = shard.context.now_ms()
    record = snapshot_record(
        key,
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNINITIALIZED_START_OFFSET else 0,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
        batches=(),
    )
    shard.commit([record])


def read(shard: ShareShard, key: SharePartitionKey, leader_epoch: int) -> ShareState:
    """Return the state, and store a new leader's epoch. Also raises FENCED_LEADER_EPOCH."""
    _check_partition(key)
    _check_number("leader epoch", leader_epoch)
    state = _existing_state(shard, key, "Read")
    _check_leader_epoch(state, leader_epoch)
    _check_topic(shard, key)
    found = ShareState(state.state_epoch, state.start_offset, tuple(state.batches))
    if leader_epoch != state.leader_epoch_max:
        shard.commit(
            [
                _state_record(
                    shard, key, state, leader_epoch, state.start_offset, state.delivery_complete_count, ()
                )
            ]
        )
    return found


def write(
    shard: ShareShard,
    key: SharePartitionKey,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> None:
    """Put batches over those of the state. Also raises FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH."""
    _check_partition(key)
    _check_number("leader epoch", leader_epoch)
    _check_number("state epoch", state_epoch)
    state = _existing_state(shard, key, "Write")
    _check_leader_epoch(state, leader_epoch)
    _check_state_epoch(state, state_epoch)
    _check_topic(shard, key)
    shard.commit(
        [_state_record(shard, key, state, state.leader_epoch, start_offset, delivery_complete_count, batches)]
    )


def delete(shard: ShareShard, key: SharePartitionKey) -> None:
    """Delete the state, if there is one."""
    _check_partition(key)
    _check_topic(shard, key)
    if key in shard.states:
        shard.commit([tombstone(key)])


def summary(shard: ShareShard, key: SharePartitionKey) -> StateSummary:
    """Return the state in numbers."""
    _check_partition(key)
    _check_topic(shard, key)
    state = shard.states.get(key)
    if state is None:
        return UNINITIALIZED_SUMMARY
    return StateSummary(
        state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
    )


def _state_record(
    shard: ShareShard,
    key: SharePartitionKey,
    state: StoredShareState,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    new: Sequence[StateBatch],
) -> CoordinatorRecord:
    """Return an update, or after so many of them a snapshot. The start offset never falls, nor its count of deliveries
    (``generateShareStateRecord``).
    """
    if start_offset <= state.start_offset:
        if start_offset < state.start_offset:
            delivery_complete_count = state.delivery_complete_count
        delivery_complete_count = max(delivery_complete_count, state.delivery_complete_count)
        start_offset = state.start_offset
    if state.updates < shard.context.settings().share_coordinator_snapshot_update_records_per_snapshot:
        batches: list[StateBatch] = []
        combine(batches, new, start_offset)
        return update_record(
            key,
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=batches,
        )
    batches = list(state.batches)
    combine(batches, new, start_offset)
    now_ms = shard.context.now_ms()
    return snapshot_record(
        key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
        batches=batches,
    )


def _existing_state(shard: ShareShard, key: SharePartitionKey, what: str) -> StoredShareState:
    state = shard.states.get(key)
    if state is None:
        text = f"{what} operation on uninitialized share partition not allowed."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return state


def _check_partition(key: SharePartitionKey) -> None:
    _check_number("partition id", key.partition)


def _check_number(name: str, number: int) -> None:
    if number < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {name} cannot be a negative number.")


def _check_topic(shard: ShareShard, key: SharePartitionKey) -> None:
    if key.partition >= shard.context.partition_count(key.topic_id):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )


def _check_state_epoch(state: StoredShareState, epoch: int) -> None:
    if epoch < state.state_epoch_max:
        text = "The coordinator rejected the request because the state epoch did not match."
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, text)


def _check_leader_epoch(state: StoredShareState, epoch: int) -> None:
    if epoch < state.leader_epoch_max:
        text = "The leader epoch in the request is older than the epoch on the broker."
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, text)
