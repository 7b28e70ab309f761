"""`LogManager`: the data directory and the logs of all its partitions.

Source: Kafka's ``LogManager``. Kafka loads every log before it serves. Here a log is opened when it is first
used, and after an unclean stop logs are recovered beside requests (see ``recovery/queue.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from oncelog.broker.log.checkpoints import PartitionKey, PartitionOffsets
from oncelog.broker.log.closing import close_all, flush_all
from oncelog.broker.log.data_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    DataDirectory,
    DataDirectoryError,
    partition_of,
    set_aside_name,
)
from oncelog.broker.log.deletions import Deletions
from oncelog.broker.log.environment import LogEnvironment, shortage_of
from oncelog.broker.log.file_names import LOG_SUFFIX
from oncelog.broker.log.flusher import Flusher
from oncelog.broker.log.opening import create_partition, open_partition
from oncelog.broker.log.partition_metadata import CorruptPartitionMetadata, read_partition_metadata
from oncelog.broker.log.recovery.queue import RecoveryQueue
from oncelog.broker.log.time_gaps import MalformedTimeGapsError, read_time_gaps
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Sequence
    from random import Random

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.wire.schema import Uuid

UNREADABLE = (OSError, DecodeError)
"""Errors that the files of a partition may cause."""

_log = get_logger(__name__)


class LocalTopic(NamedTuple):
    """A topic that has partitions on this node, as the metadata describes it."""

    topic_id: Uuid
    config: TopicConfig
    partitions: Collection[int]
    """Those of which this node has a replica."""
    replicated: Container[int] = ()
    """Those of them that have other replicas, too."""


class LogManager:
    """All partitions of one data directory.

    ``start``, ``load``, ``run`` (until cancelled) and ``stop``, in this order. ``on_internal_error`` is called when
    background work failed with an internal error, after its traceback was logged.
    """

    def __init__(
        self, data_dir: str, files: FileSystem, clock: Clock, random: Random, config: BrokerConfig
    ) -> None:
        self.data_dir = data_dir
        self.files = files
        self.clock = clock
        self.config = config
        """The broker's configuration; `update_broker_config` replaces it."""
        self.on_internal_error: Callable[[], None] = lambda: None
        self.on_offline: Callable[[str, int], None] = lambda topic, partition: None
        """Called with the topic and the partition of a log that cannot be used until the next start."""
        self.background = BackgroundWork()
        self.flusher = Flusher(files, clock, data_dir, self.background)
        self.deletions = Deletions(files, clock, self.background)
        self.logs: dict[PartitionKey, PartitionLog] = {}
        """The partitions that are open."""
        self.random = random
        self._directory = DataDirectory(files, data_dir)
        self._env = LogEnvironment(
            files,
            clock,
            random,
            flusher=self.flusher,
            save_log_start=lambda log: self.offsets.save_log_starts(),
            lower_checkpoints=lambda log, end, start: self.offsets.lower(log, end, start),
            schedule_delete=self._schedule_delete,
            on_offline=lambda topic, partition: self.on_offline(topic, partition),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            has_fast_readers=config.oncelog_walk_readers_enable,
        )
        self.lines = self._env.lines
        self._unopened: dict[PartitionKey, str] = {}
        self._unusable: dict[PartitionKey, str] = {}
        self._queue = RecoveryQueue(
            files, self.lines, self._begin_recovery, self._recovery_done, self._recovery_failed
        )
        self._lookup: Callable[[str], LocalTopic | None] = lambda topic: None
        self._on_truncated: Callable[[PartitionLog], None] = lambda log: None
        self.offsets = PartitionOffsets(files, data_dir, self.logs, self._is_unopened)
        self._loaded = False
        self.keeps_data = True
        """Whether somebody may read the directory after the stop. If not, as with a disk in memory that ends with its
        node, the stop writes nothing, and takes a fraction of the time."""

    @property
    def cluster_id(self) -> str:
        return self._directory.cluster_id

    @property
    def directory_id(self) -> Uuid:
        return self._directory.directory_id

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean."""
        return self._directory.was_clean

    @property
    def clean_epoch(self) -> int:
        """See `DataDirectory.clean_epoch`."""
        return self._directory.clean_epoch

    # --- start and stop

    def start(self) -> None:
        """Lock the directory and read its checkpoints. Raises DataDirectoryError."""
        self._directory.open(self.config.node_id, self.config.oncelog_cluster_id, self.random)
        try:
            self._env.time_gaps = read_time_gaps(self.files, self.data_dir)
        except (OSError, MalformedTimeGapsError) as error:
            self._directory.release()
            raise DataDirectoryError.of(self.data_dir, error) from error
        self.offsets.read()

    def load(
        self, lookup: Callable[[str], LocalTopic | None], on_truncated: Callable[[PartitionLog], None]
    ) -> None:
        """Find the partitions in the directory. One that belongs to no topic is set aside (``-stray``).

        ``lookup`` returns what the metadata has of a topic, now and later. ``on_truncated`` is called with a
        log that has lost records, before it is served.
        """
        self._lookup = lookup
        self._on_truncated = on_truncated
        for name in self.files.listdir(self.data_dir):
            key = partition_of(name)
            path = f"{self.data_dir}/{name}"
            # The metadata log is in the same directory, but belongs to `broker/metadata/log.py`.
            if key is None or key[0] == CLUSTER_METADATA_TOPIC or not self.files.is_dir(path):
                continue
            if name.endswith(DELETE_SUFFIX):
                self.deletions.add(path, self.config.log_segment_delete_delay_ms)
            elif name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX)):
                _log.warning("directory of no partition", path=path)
            elif not self._is_local(*key):
                self._set_aside(key, path)
            elif self.was_clean:
                self._unopened[key] = path
            elif not self._set_aside_if_stray(key, path):
                self._queue.add(key, path)
        self._loaded = True
        _log.info(
            "found partitions", data_dir=self.data_dir, clean=len(self._unopened), to_recover=len(self._queue)
        )

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run recovery, flushes, checkpoints, deletions, retention and compaction until cancelled."""
        from oncelog.broker.log.background import run_background

        try:
            await run_background(self, task_status)
        finally:
            if self.keeps_data:
                # `stop` would flush one file after the other; this flushes many at a time.
                with trio.CancelScope(shield=True):
                    await flush_all(self.usable_logs(), len(self.logs), self.flusher)

    def stop(self, broker_epoch: int = -1) -> None:
        """Bring everything to the disk, and mark the stop as clean if nothing failed. It blocks."""
        try:
            if not self.keeps_data:
                for log in self.logs.values():
                    log.local.close()
                return
            if self._loaded:
                clean = close_all(self.logs.values()) and not self._unusable and not self._queue
                self.offsets.save_all()
            else:
                clean = self.was_clean  # and nothing has changed since
            if clean:
                # The checkpoints, which list new partitions, have synced the directory and thus their names.
                self._directory.mark_clean(broker_epoch)
        except OSError as error:
            _log.error("not stopped cleanly", data_dir=self.data_dir, error=str(error))
        finally:
            self._directory.release()

    # --- partitions

    def get(self, topic: str, partition: int) -> PartitionLog:
        """The partition's log, which is opened on first use.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER while it is being recovered, or if
        a shortage of the process or the disk keeps it from being opened; KAFKA_STORAGE_ERROR if its files
        cannot be used.
        """
        log = self.logs.get((topic, partition))
        return log if log is not None else self._open((topic, partition))

    def _open(self, key: PartitionKey) -> PartitionLog:
        if not self._is_local(*key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if key in self._queue and not self._queue.attempt(key):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{key[0]}-{key[1]} is being recovered")
        if key in self._unusable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._unusable[key])
        if key not in self.logs:
            try:
                self._open_found(key)
            except UNREADABLE as error:
                if shortage := shortage_of(error):
                    about = {"topic": key[0], "partition": key[1]}
                    self.lines.write(_log.warning, f"{shortage}, partition not opened", about, error=error)
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
                self._recovery_failed(key, error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self.logs[key]

    def _open_found(self, key: PartitionKey) -> None:
        local_topic = self._local_topic(key[0])
        directory = self._unopened.get(key)
        if directory is not None and self._set_aside_if_stray(key, directory):
            del self._unopened[key]
            directory = None
        if directory is None:
            self._create(key, local_topic)
            return
        start = self.offsets.log_starts.known.get(key, 0)
        log = open_partition(
            self._env,
            directory,
            *key,
            local_topic.config,
            start,
            local_topic.topic_id,
            self._high_watermark(key, local_topic),
        )
        try:
            self._report_loss(key, log, truncated=False)
        except (OSError, KafkaError):
            for segment in log.segments:
                segment.close()
            raise
        # Only now: had anything failed, the next use must open what is there, not create it anew.
        del self._unopened[key]
        self.logs[key] = log

    def _high_watermark(self, key: PartitionKey, local_topic: LocalTopic) -> int | None:
        """The checkpointed one of a replicated partition; None for one with a single replica."""
        return self.offsets.high_watermarks.known.get(key, 0) if key[1] in local_topic.replicated else None

    def _create(self, key: PartitionKey, local_topic: LocalTopic) -> None:
        try:
            self.offsets.forget(key)
            log = create_partition(
                self._env,
                f"{self.data_dir}/{key[0]}-{key[1]}",
                *key,
                local_topic.topic_id,
                local_topic.config,
                is_replicated=key[1] in local_topic.replicated,
            )
        except OSError as error:  # a full disk, perhaps; the next use tries again
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.flusher.new_names = True
        self.logs[key] = log

    def has(self, topic: str, partition: int) -> bool:
        """Whether the directory has that partition."""
        key = topic, partition
        return key in self.logs or self._is_unopened(key)

    def size_of(self, topic: str, partition: int) -> int:
        """Bytes of the partition's log files. The log is not opened. Raises OSError."""
        log = self.logs.get((topic, partition))
        if log is not None:
            return log.size
        directory = f"{self.data_dir}/{topic}-{partition}"
        if not self.files.is_dir(directory):
            return 0
        names = (name for name in self.files.listdir(directory) if name.endswith(LOG_SUFFIX))
        return sum(self.files.size(f"{directory}/{name}") for name in names)

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: its directory is renamed at once and removed ``file.delete.delay.ms`` later."""
        key = (topic, partition)
        directory = self._unopened.pop(key, f"{self.data_dir}/{topic}-{partition}")
        self._queue.forget(key)
        self._unusable.pop(key, None)
        log = self.logs.pop(key, None)
        target = f"{self.data_dir}/{set_aside_name(topic, partition, DELETE_SUFFIX, self.random)}"
        close = None
        try:
            if log is not None:
                log.mark_deleted()
                self.flusher.forget(log)
                log.rename(target)
                close = log.close
            elif self.files.exists(directory):
                self.files.rename(directory, target)
        except OSError as error:
            # The next start finds a directory that belongs to no topic, and sets it aside.
            _log.error("partition not removed", topic=topic, partition=partition, error=str(error))
            return
        self.flusher.new_names = True
        self.deletions.add(target, self.config.log_segment_delete_delay_ms, close)

    def update_broker_config(self, config: BrokerConfig) -> None:
        """Apply a changed configuration of the broker."""
        self.config = config
        self._env.producer_id_expiration_ms = config.producer_id_expiration_ms

    def update_config(self, topic: str, config: TopicConfig) -> None:
        """Apply a changed configuration of a topic."""
        for partition in self._local_topic(topic).partitions:
            log = self.logs.get((topic, partition))
            if log is not None:
                log.update_config(config)
                self.flusher.reschedule(log)

    def _is_local(self, topic: str, partition: int) -> bool:
        local_topic = self._lookup(topic)
        return local_topic is not None and partition in local_topic.partitions

    def _local_topic(self, topic: str) -> LocalTopic:
        local_topic = self._lookup(topic)
        if local_topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return local_topic

    def _is_unopened(self, key: PartitionKey) -> bool:
        return key in self._unopened or key in self._queue or key in self._unusable

    def unopened(self) -> list[PartitionKey]:
        """The partitions that have not been opened since the start."""
        return list(self._unopened)

    # --- stray directories

    def _set_aside_if_stray(self, key: PartitionKey, directory: str) -> bool:
        """Whether the directory belonged to an earlier topic of that name, and was set aside. Raises
        OSError."""
        try:
            topic_id = read_partition_metadata(self.files, directory)
        except CorruptPartitionMetadata as error:
            _log.warning("partition.metadata ignored", topic=key[0], partition=key[1], error=str(error))
            return False
        if topic_id in (None, self._local_topic(key[0]).topic_id):
            return False
        self._set_aside(key, directory)
        return True

    def _set_aside(self, key: PartitionKey, directory: str) -> None:
        target = f"{self.data_dir}/{set_aside_name(*key, STRAY_SUFFIX, self.random)}"
        self.files.rename(directory, target)
        _log.warning("moved aside: the metadata has no such replica", path=directory, to=target)

    # --- recovery

    async def recover(self) -> None:
        """Recover the partitions after an unclean stop; a background task calls this."""
        await self._queue.run()

    @property
    def is_recovered(self) -> bool:
        """Whether recovery is over."""
        return self._queue.finished.is_set()

    async def recovered(self) -> None:
        """Wait until recovery is over."""
        await self._queue.finished.wait()

    def _begin_recovery(self, key: PartitionKey) -> PartitionRecovery:
        # Imported here: after a clean stop, a start does without.
        from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery

        directory = f"{self.data_dir}/{key[0]}-{key[1]}"
        start = self.offsets.log_starts.known.get(key, 0)
        recovery_point = self.offsets.recovery_points.known.get(key, 0)
        local_topic = self._local_topic(key[0])
        return PartitionRecovery(
            self._env,
            directory,
            *key,
            local_topic.config,
            start,
            recovery_point,
            local_topic.topic_id,
            self._high_watermark(key, local_topic),
        )

    def _recovery_done(self, key: PartitionKey, recovery: PartitionRecovery) -> None:
        log = recovery.log
        self._report_loss(key, log, truncated=recovery.truncated)
        self.logs[key] = log
        if log.unflushed_bytes:
            self.flusher.due(log)

    def _report_loss(self, key: PartitionKey, log: PartitionLog, *, truncated: bool) -> None:
        """Report a log that has lost records which readers may have seen: its leader epoch is raised. Also
        after a clean stop.

        A replica that has lost records gets them again from its leader, and no checkpoint may claim them until
        then.
        """
        was_seen = self.offsets.high_watermarks.known.get(key, 0)
        if truncated or was_seen > log.log_end_offset:
            _log.warning("records were lost", topic=key[0], partition=key[1], from_offset=log.log_end_offset)
            if log.is_replicated:
                self.offsets.lower(log, log.log_end_offset, None)
            else:
                self._on_truncated(log)

    def _recovery_failed(self, key: PartitionKey, error: Exception) -> None:
        self._unopened.pop(key, None)
        self._unusable[key] = str(error)
        _log.exception("log is offline", topic=key[0], partition=key[1], error=str(error))
        self.on_offline(*key)
        if not isinstance(error, UNREADABLE):
            self.on_internal_error()

    def _schedule_delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            log = self.logs.get(partition_of(path.split("/")[-2]) or ("", -1))
            delay_ms = (
                self.config.log_segment_delete_delay_ms if log is None else log.config.file_delete_delay_ms
            )
            self.deletions.add(path, delay_ms)

    def usable_logs(self) -> Iterator[PartitionLog]:
        """The logs that are open and usable; each is checked when the iterator reaches it."""
        return (log for log in list(self.logs.values()) if not log.offline and not log.deleted)
