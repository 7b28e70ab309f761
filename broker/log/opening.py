"""Creating a partition's directory, and opening one that was closed cleanly.

After a clean stop the files are trusted: only names, sizes, the end of the last segment and the newest producer
snapshot are read. Source: Kafka's ``LogLoader``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from oncelog.broker.log.loaded_log import LoadedLog
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.partition_metadata import PARTITION_METADATA, encode_partition_metadata
from oncelog.broker.log.producers.replay import (
    RECOVERY_STEP_BYTES,
    has_markers,
    load_newest_snapshot,
    replay_producers,
)
from oncelog.broker.log.producers.snapshots import ProducerSnapshots
from oncelog.broker.log.producers.state import ProducerStateManager
from oncelog.broker.log.segment import Segment, open_segment
from oncelog.broker.logging.logs import get_logger
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.environment import LogEnvironment
    from oncelog.broker.log.recovery.partition_directory import PartitionDirectory

_log = get_logger(__name__)


def create_partition(
    env: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: TopicConfig,
    *,
    is_replicated: bool = False,
) -> PartitionLog:
    """Create the directory of a new partition. Nothing of it is synced before its first flush. Raises OSError,
    and then leaves no directory."""
    env.files.makedirs(directory)
    try:
        metadata = env.files.open(f"{directory}/{PARTITION_METADATA}", create=True)
        metadata.truncate(0)
        metadata.append(encode_partition_metadata(topic_id))
        metadata.close()
        segment = open_segment(env, directory, 0, config, new=True)
    except OSError:
        env.files.remove_tree(directory)
        raise
    loaded = LoadedLog(
        [segment],
        LeaderEpochs(),
        ProducerStateManager(),
        ProducerSnapshots(env.files, directory),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        metadata_synced=False,
        high_watermark=0 if is_replicated else None,
    )
    return PartitionLog(env, directory, topic, partition, topic_id, config, loaded)


def open_partition(
    env: LogEnvironment,
    directory: str,
    topic: str,
    partition: int,
    config: TopicConfig,
    log_start_offset: int,
    topic_id: bytes | None = None,
    high_watermark: int | None = None,
) -> PartitionLog:
    """Open a partition that was closed cleanly.

    ``log_start_offset`` comes from the checkpoint, and so does ``high_watermark``, which is None for a log with one
    replica. ``topic_id`` is used if ``partition.metadata`` has none. A
    directory that is not as a clean stop leaves it has its last segment recovered after all. Raises
    OSError, CorruptCheckpoint, CorruptPartitionMetadata.
    """
    from oncelog.broker.log.recovery.partition_directory import PartitionDirectory

    found = PartitionDirectory(env.files, directory)
    found.clean_up()
    segments = [open_segment(env, directory, base, config) for base in found.base_offsets]
    try:
        return _open(
            env, found, segments, topic, partition, config, log_start_offset, topic_id, high_watermark
        )
    except (OSError, DecodeError):
        for segment in segments:
            segment.close()
        raise


def _open(
    env: LogEnvironment,
    found: PartitionDirectory,
    segments: list[Segment],
    topic: str,
    partition: int,
    config: TopicConfig,
    log_start_offset: int,
    topic_id: bytes | None,
    high_watermark: int | None,
) -> PartitionLog:
    directory = found.directory
    for segment in segments:
        segment.synced_size = segment.size
    try:
        if not segments:
            raise DecodeError("there is no segment")
        for segment in segments:
            if not found.has_indexes(segment.base_offset):
                _log.warning("index is missing, rebuilding it", segment=segment.log_path)
                from oncelog.broker.log.recovery.indexes import rebuild_indexes

                rebuild_indexes(segment)
        log_end_offset = segments[-1].next_offset()
        if log_end_offset < log_start_offset:
            raise DecodeError("the log ends before it starts")
    except DecodeError as error:
        _log.warning("a clean stop left a log that is not sound", directory=directory, reason=error)
        recovery_point = segments[-1].base_offset if segments else 0
        for segment in segments:
            segment.close()
        from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery

        recovery = PartitionRecovery(
            env,
            directory,
            topic,
            partition,
            config,
            log_start_offset,
            recovery_point,
            topic_id,
            high_watermark,
        )
        while not recovery.step(RECOVERY_STEP_BYTES):
            pass
        return recovery.log
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs = LeaderEpochs.load(env.files, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
    epochs.truncate_from_end(log_end_offset + 1)  # + 1: the leader's epoch may have begun without a record
    epochs.truncate_from_start(log_start_offset)
    snapshots = ProducerSnapshots(env.files, directory, found.snapshot_offsets)
    snapshots.remove_strays(found.base_offsets)
    producers = ProducerStateManager()
    up_to = log_end_offset
    if high_watermark is not None and has_markers(segments, high_watermark, log_end_offset):
        up_to = high_watermark  # a snapshot above does not tell where the transactions began that end there
    start = load_newest_snapshot(env, snapshots, producers, up_to)
    if start >= 0 or up_to < log_end_offset:
        for _ in replay_producers(segments, producers, max(start, 0), log_end_offset):
            pass
    loaded = LoadedLog(
        segments,
        epochs,
        producers,
        snapshots,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset,
        metadata_synced=found.topic_id is not None,
        high_watermark=high_watermark,
    )
    return PartitionLog(
        env, directory, topic, partition, found.topic_id or topic_id or ZERO_UUID, config, loaded
    )
