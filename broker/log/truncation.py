"""Truncation of a log: another replica leads, and this log has what the leader's has not.

Source: Kafka's ``UnifiedLog``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncelog.broker.log.partition_log import PreparedTruncation
from oncelog.broker.log.producers.replay import producers_at
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.producers.state import ProducerStateManager
    from oncelog.broker.log.read_ahead import Progress


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Remove all batches from the one on that holds ``offset`` (Kafka: ``UnifiedLog.truncateTo``). The log then
    ends at ``offset``, or where that batch began: Kafka leaves a gap there, and its next fetch fails.

    Producers, epochs, watermark and recovery point follow, a flush that is under way counts for what is left, a
    cleaning is given up, and waiters are notified. What a reader holds can be read as far as it is left.
    Durable when it returns. It blocks for the syncs, which are short after a `PartitionLog.flush`, and for what
    `prepare_truncation` does. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    assert offset >= 0, offset
    log.check_alive()
    if offset >= log.log_end_offset:
        # The latest epoch may have begun here without a record: this replica led, and wrote nothing.
        log.epochs.truncate_from_end(log.log_end_offset)
        log.durability.changed = log.durability.changed or log.epochs.changed
    elif offset < log.local.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset)
    else:
        with _truncating(log):
            offset = log.local.boundary_at(offset)
            producers = _take_producers_at(log, offset)
            start = offset if offset < log.log_start_offset else None
            log.env.lower_checkpoints(log, offset, start)
        with _truncating(log, is_begun=True):
            log.local.truncate_to(offset)
            log.epochs.truncate_from_end(offset)
            log.producers.replace_with(producers)
            log.truncated(offset, min(offset, log.log_start_offset))


def truncate_fully_and_start_at(log: PartitionLog, offset: int) -> None:
    """Remove everything, and begin anew at ``offset`` (Kafka: ``UnifiedLog.truncateFullyAndStartAt``). Otherwise as
    `truncate_to`.
    """
    log.check_alive()
    with _truncating(log):
        log.env.lower_checkpoints(log, offset, offset)
    with _truncating(log, is_begun=True):
        log.local.start_at(offset, log.config)
        log.epochs.clear()
        log.producers.clear()
        log.truncated(offset, offset)


def prepare_truncation(log: PartitionLog, offset: int) -> Iterator[Progress]:
    """Find out, in steps, which producers `truncate_to` will leave: that reads the headers of up to a segment.
    Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    log.check_alive()
    if log.local.segments[0].base_offset <= offset < log.log_end_offset:
        with _truncating(log):
            offset = log.local.boundary_at(offset)
            truncations = log.truncations
            found = yield from producers_at(log.env, log.snapshots, log.segments, log.producers, offset)
            log.prepared_truncation = PreparedTruncation(offset, truncations, found)


def _take_producers_at(log: PartitionLog, offset: int) -> ProducerStateManager:
    if log.prepared_truncation is None or log.prepared_truncation[:2] != (offset, log.truncations):
        for _ in prepare_truncation(log, offset):
            pass
    prepared, log.prepared_truncation = log.prepared_truncation, None
    assert prepared is not None
    return prepared.producers


@contextmanager
def _truncating(log: PartitionLog, *, is_begun: bool = False) -> Iterator[None]:
    """A part of a truncation. Raises KafkaError where it fails, and takes the log offline if files were changed."""
    try:
        yield
    except (OSError, DecodeError) as error:
        if not is_begun and isinstance(error, OSError):
            raise log.storage_error(error) from error
        log.fail(error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
