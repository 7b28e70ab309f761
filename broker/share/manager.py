"""`SharePartitionManager`: the share partitions and share sessions of a node.

The first read of a group makes a share partition. It is removed when its topic is deleted, when it cannot
be loaded, when another leader epoch begins or another leader has stored a state, and when a connection closes and the
group has no session left. Without traffic it costs memory only.
Source: ``SharePartitionManager``.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from oncelog.broker.coordinators.timer import CoordinatorTimer
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.image import GROUP
from oncelog.broker.share.sessions import ShareSessions
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import ConfigRecord, FeatureLevelRecord, RemoveTopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.share.partition import SharePartition
    from oncelog.broker.share.persister import SharePersister
    from oncelog.broker.share.sessions import SessionKey
    from oncelog.broker.share.settings import ShareGroupSettings
    from oncelog.broker.share.window.window import DeadLetterRange
    from oncelog.wire.schema import Message, Uuid

NAME = "share partitions"
SHARE_PARTITIONS_MAX = 100_000
"""Share partitions of a node, at about 1.5 KB each without records in flight."""

_log = get_logger(__name__)


class SessionConnection(Protocol):
    """A client's connection, as far as sessions end with it."""

    on_close: Callable[[], None] | None
    """Called once it is closed."""


class SharePartitionManager:
    """``persister`` keeps the partitions' state."""

    def __init__(self, environment: CoordinatorEnvironment, persister: SharePersister) -> None:
        self.persister = persister
        self.clock = environment.clock
        self.files = environment.files
        self._config = environment.config
        self._metadata = environment.metadata
        self._cluster = environment.cluster
        self._creator = environment.auto_topics.creator
        self._background = environment.background
        self.timer_event = environment.background.timer_event
        self._note_internal_error = environment.note_internal_error
        self.sessions = ShareSessions(environment.config.current.group_share_max_share_sessions)
        self._partitions: dict[tuple[str, Uuid, int], SharePartition] = {}
        self._storing: dict[tuple[str, Uuid, int], SharePartition] = {}
        """Removed share partitions that still store: acknowledgements, released records, or dead letters."""
        self._to_load: deque[SharePartition] = deque()
        """New share partitions, in the order of the requests that read them."""
        self._groups: dict[object, set[str]] = {}
        """The groups of each open connection's sessions."""
        self._settings: dict[str, ShareGroupSettings] = {}
        self._own_queue_readers: set[str] = set()
        """The groups with a session that were found to read their own dead-letter queue: one warning for each."""
        self.timer = CoordinatorTimer(
            NAME,
            self.clock,
            environment.lines,
            self._background,
            self._remove_lost,
            self._note_internal_error,
        )
        self._has_lost = False
        """Whether a new leader epoch has begun in some partition."""
        self._nursery: trio.Nursery | None = None
        self._metadata.subscribe(self._on_record)
        self._cluster.subscribe(self._on_new_epoch)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let locks end in time, and do the work beside requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self.timer.run()
            finally:
                self._nursery = None

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do ``work`` beside requests; drop it if the node has stopped."""
        if self._nursery is None:
            work.close()
        else:
            self._nursery.start_soon(self._work, work)

    async def _work(self, work: Coroutine[None, None, None]) -> None:
        with self._background.running(NAME):
            try:
                await work
            except KafkaError as error:  # only a release raises it: the others log their own errors
                _log.debug("the release of a member's records was not stored", error=str(error))
            except Exception:
                _log.exception("work for a share partition failed with an internal error")
                self._note_internal_error()

    def set_deadline(self, partition: SharePartition, at: float) -> None:
        """Call `SharePartition.expire` at that time, in the clock's seconds."""
        delay_ms = max(0.0, at - self.clock.monotonic()) * 1000
        self.timer.deadlines.set(_key(partition), delay_ms, partition.expire)

    def settings(self, group_id: str) -> ShareGroupSettings:
        """Return the group's settings as they are now."""
        found = self._settings.get(group_id)
        if found is None:
            from oncelog.broker.metadata.features import are_dead_letter_queues_enabled
            from oncelog.broker.share.settings import settings_of

            overrides = self._metadata.image.configs.get((GROUP, group_id), {})
            found = self._settings[group_id] = settings_of(
                overrides,
                self._config.current,
                may_have_queue=are_dead_letter_queues_enabled(self._metadata.image),
            )
        return found

    async def write_dead_letters(self, partition: SharePartition, letters: Sequence[DeadLetterRange]) -> None:
        """Write records of a share partition to its group's dead-letter queue. What cannot be written is logged."""
        from oncelog.broker.share.dead_letters import DeadLetterWriter

        group_id = partition.group_id
        settings = self.settings(group_id)
        if settings.dead_letter_topic == partition.topic and group_id not in self._own_queue_readers:
            self._own_queue_readers.add(group_id)
            _log.warning(
                "a share group reads its own dead-letter queue", group=group_id, topic=partition.topic
            )
        writer = DeadLetterWriter(
            self._metadata,
            self._config,
            self._cluster,
            self._creator,
            self.clock,
            self.files,
            self.timer_event,
        )
        await writer.write(partition, settings, letters)

    # -- share partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, group_id: str, topic_id: Uuid, partition: int) -> SharePartition | None:
        """Return a share partition that was read already, or None. Locks that are due have ended."""
        key = (group_id, topic_id, partition)
        found = self._partitions.get(key)
        if found is None:
            return None
        if not self._renew(found):
            self._lose(found)
            return None
        self.timer.run_due_of(key)
        return found

    def get_or_load(self, group_id: str, topic: str, topic_id: Uuid, partition: int) -> SharePartition:
        """Return a share partition; a new one is being loaded.

        Raises KafkaError as `Cluster.leader_partition`, and INCONSISTENT_TOPIC_ID, UNKNOWN_SERVER_ERROR (too many).
        """
        found = self.get(group_id, topic_id, partition)
        if found is not None:
            return found
        from oncelog.broker.share.partition import SharePartition

        leader = self._cluster.leader_partition(topic, partition)
        if leader.log.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if len(self._partitions) >= SHARE_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"More than {SHARE_PARTITIONS_MAX} share partitions are read."
            )
        key = (group_id, topic_id, partition)
        predecessor = self._storing.pop(key, None)
        found = SharePartition(self, group_id, topic, topic_id, partition, leader, predecessor)
        self._partitions[key] = found
        self._to_load.append(found)
        if len(self._to_load) == 1:
            self.spawn(self._load_next())
        return found

    async def _load_next(self) -> None:
        """Load the share partition whose turn it is. The next load begins right after this one has begun, without
        waiting for its end. So they are loaded in order, as in Kafka, and share a flush (``PersisterStateManager``).
        """
        partition = self._to_load.popleft()
        if self._to_load:
            self.spawn(self._load_next())
        await partition.load()

    def remove(self, partition: SharePartition) -> None:
        """Forget a share partition; the next request loads it again. Members lose their acquired records."""
        partition.is_fenced = True
        key = _key(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            if partition.is_storing:
                # forget those that have finished
                self._storing = {
                    other_key: other for other_key, other in self._storing.items() if other.is_storing
                }
                self._storing[key] = partition
            self.timer.deadlines.cancel(key)

    def _lose(self, partition: SharePartition) -> None:
        """Remove a share partition of an earlier leader epoch, and tell who waits for its records."""
        partition.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.remove(partition)
        partition.wake()

    def _on_new_epoch(self, topic: Topic, partition: int) -> None:
        # A batch of metadata may change many partitions: one search after it finds all share partitions to remove.
        if self._partitions:
            self._has_lost = True
            self.timer.wake()

    def _remove_lost(self) -> None:
        if self._has_lost:
            self._has_lost = False
            for partition in list(self._partitions.values()):
                if not self._renew(partition):
                    self._lose(partition)

    def _renew(self, partition: SharePartition) -> bool:
        """Go on with a share partition whose leader epoch goes on with another number of replicas. Return whether it is
        still led.
        """
        if not partition.leader.is_current:
            with suppress(KafkaError):
                leader = self._cluster.leader_partition(partition.topic, partition.partition)
                if (leader.log, leader.leader_epoch) == (partition.leader.log, partition.leader.leader_epoch):
                    partition.leader = leader
        return partition.leader.is_current

    def partitions_of(self, group_id: str) -> list[SharePartition]:
        """Return the share partitions of a group."""
        return [it for it in self._partitions.values() if it.group_id == group_id]

    # -- sessions

    def end_session(self, key: SessionKey) -> None:
        """End a session and release the records that its member has acquired."""
        session = self.sessions.end(key)
        if session is None:
            return
        group_id, member_id = key
        for topic_id, partition in session.partitions:
            found = self.get(group_id, topic_id, partition)
            if found is not None:
                release = found.release(member_id)
                if release is not None:
                    self.spawn(release.run())

    def watch(self, connection: SessionConnection, group_id: str) -> None:
        """Note a session that begins on the connection, and ends with it. A group without sessions keeps no share
        partitions.
        """
        groups = self._groups.get(connection)
        if groups is None:
            groups = self._groups[connection] = set()
            connection.on_close = lambda: self._on_close(connection)
        groups.add(group_id)

    def _on_close(self, connection: SessionConnection) -> None:
        for key in self.sessions.of_connection(connection):
            self.end_session(key)
        for group_id in self._groups.pop(connection):
            if not self.sessions.has_group(group_id):
                self._forget_group(group_id)

    def _forget_group(self, group_id: str) -> None:
        for partition in self.partitions_of(group_id):
            self.remove(partition)
        self._settings.pop(group_id, None)
        self._own_queue_readers.discard(group_id)

    def clear(self) -> None:
        """End all sessions and forget all share partitions: share groups are no longer served."""
        self.sessions.clear()
        for partition in list(self._partitions.values()):
            self.remove(partition)

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        if isinstance(record, RemoveTopicRecord):
            for partition in [it for it in self._partitions.values() if it.topic_id == record.topic_id]:
                self.remove(partition)
        elif isinstance(record, ConfigRecord | FeatureLevelRecord):
            self._settings.clear()


def _key(partition: SharePartition) -> tuple[str, Uuid, int]:
    return (partition.group_id, partition.topic_id, partition.partition)
