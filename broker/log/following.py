"""A follower's log takes the leader's batches, and follows the start of the leader's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.batches import read_fetched_batches
from oncelog.broker.log.producers.replay import read_marker, replay
from oncelog.broker.log.truncation import truncate_fully_and_start_at
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.seams.files import Buffer
    from oncelog.wire.batch import BatchHeader


def append_as_follower(
    log: PartitionLog, records: Buffer, leader_epoch: int, leader_log_start: int = 0
) -> None:
    """Append batches as they came from the leader, with its offsets and epochs (Kafka:
    ``UnifiedLog.appendAsFollower``). A last batch that is not whole is left out.

    So is everything from the first batch on whose leader epoch is above ``leader_epoch``, the epoch in which they
    were asked for: such a batch was written after its sender had lost the leadership (KAFKA-18723).

    Where the leader's log starts within a batch, the first batch may begin below the end of this one, which is
    empty, or ends at ``leader_log_start``: all that it has, the leader has deleted. It begins with that batch then.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD (a batch begins below the end of those before it), and then
    nothing was appended; KAFKA_STORAGE_ERROR where a batch cannot be written, and then those before it are in
    the log.
    """
    log.check_alive()
    batches = read_fetched_batches(records, leader_epoch)
    if not batches:
        return
    for header, batch in batches:
        if header.is_control and header.has_producer_id:
            read_marker(batch)  # or a bad one would be noticed when it is in the file
    first = batches[0][0]
    start_offset = max(log.log_start_offset, leader_log_start)
    if first.base_offset < log.log_end_offset == start_offset < first.next_offset:
        truncate_fully_and_start_at(log, first.base_offset)
    if first.base_offset < log.log_end_offset:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"A batch from the leader begins at offset {first.base_offset}, below {log.log_end_offset}",
        )
    try:
        for header, batch in batches:
            _append(log, header, batch)
    finally:
        _publish(log)


def follow_log_start(log: PartitionLog, offset: int) -> None:
    """Follow the leader's log start offset. It becomes durable some time later, as the leader's is durable. Raises
    KafkaError: KAFKA_STORAGE_ERROR.
    """
    log.check_alive()
    if offset > log.log_end_offset:
        truncate_fully_and_start_at(log, offset)
    elif offset > log.log_start_offset:
        log.raise_log_start(offset)
        log.durability.changed = True


def _append(log: PartitionLog, header: BatchHeader, batch: memoryview) -> None:
    base_offset, last_offset, size = header.base_offset, header.last_offset, header.size
    # Where the leader has a gap, there is one here, too: a segment that begins now begins after it.
    log.log_end_offset = base_offset
    local, durability = log.local, log.durability
    try:
        if local.active.should_roll(
            size, last_offset, header.max_timestamp, log.env.clock.now_ms(), log.config
        ):
            log.roll()
        local.active.append(batch, size, last_offset, header.max_timestamp)
    except OSError as error:
        log.write_failed(error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    local.size += size
    durability.changed = True
    durability.unflushed_bytes += size
    log.log_end_offset = last_offset + 1
    if 0 <= header.partition_leader_epoch != log.epochs.latest:
        log.epochs.assign(header.partition_leader_epoch, base_offset)
    aborted = replay(log.producers, header, batch)
    if aborted is not None:
        local.active.txn_index.append(aborted)


def _publish(log: PartitionLog) -> None:
    """Tell others of the batches that were appended."""
    durability = log.durability
    if log.is_replicated:
        log.local.remember_end(log.log_end_offset)
        log.end_waiters.notify(log)
    else:
        log.advance_high_watermark(log.durable_offset)
    if durability.unflushed_bytes >= durability.due_bytes:
        log.env.flusher.due(log)
