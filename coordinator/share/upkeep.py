"""The share coordinator's upkeep: it writes snapshots of idle share partitions, so that older records can go, and
deletes the state of deleted topics.

Source: ``ShareCoordinatorShard.snapshotColdPartitions``, ``maybeCleanupShareState``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.share.stored_state import snapshot_record, tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.coordinator.share.shard import ShareShard


def snapshot_cold_partitions(shard: ShareShard) -> Iterator[None]:
    """Write a snapshot of each share partition whose last one is older than
    ``share.coordinator.cold.partition.snapshot.interval.ms``, and yield after each.

    If all partitions got their last snapshot so, none is written: the shard is quiet, and nothing would become free.
    Raises KafkaError.
    """
    if all(state.create_timestamp != state.write_timestamp for state in shard.states.values()):
        return
    interval_ms = shard.context.settings().share_coordinator_cold_partition_snapshot_interval_ms
    for key, state in list(shard.states.items()):
        now_ms = shard.context.now_ms()
        if shard.states.get(key) is not state or now_ms - state.write_timestamp < interval_ms:
            continue
        record = snapshot_record(
            key,
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp,
            write_timestamp=now_ms,
            batches=state.batches,
        )
        shard.commit([record])
        yield


def delete_states_without_topic(shard: ShareShard) -> Iterator[None]:
    """Delete the state of share partitions whose topic is gone, and yield after each. Raises KafkaError."""
    for key in list(shard.states):
        if key in shard.states and not shard.context.partition_count(key.topic_id):
            shard.commit([tombstone(key)])
            yield
