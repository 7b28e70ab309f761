"""`ShareCoordinator`: the broker's side of the state of share partitions that this node coordinates.

It creates ``__share_group_state`` with the first call. Beside requests it writes snapshots of idle share partitions,
deletes the state of deleted topics, and prunes the log. Source: ``ShareCoordinatorService``.
The state itself is in `oncelog.coordinator.share`, whose modules are imported with the first shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from oncelog.broker.coordinators.runtime import CoordinatorRuntime
from oncelog.broker.logging.logs import get_logger
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import RemoveTopicRecord
from oncelog.wire.topic_names import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.log import CoordinatorLog
    from oncelog.broker.metadata.image import Topic
    from oncelog.coordinator.share.shard import ShareContext, ShareShard
    from oncelog.coordinator.share.state import SharePartitionKey, ShareState, StateBatch, StateSummary
    from oncelog.wire.schema import Message, Uuid

_log = get_logger(__name__)

T = TypeVar("T")


class ShareCoordinator:
    """Builds the shards of ``__share_group_state`` for its ``runtime``, and runs the steps of calls in them.

    The calls are those of `oncelog.broker.share.persister.SharePersister`. They are tried once: who makes them, tries
    again (`oncelog.broker.share.state_manager`).
    """

    BASE_SEQUENCE = 0
    SKIPS_VERSIONS = False
    RELOADS = False
    IS_ACKS_ALL = False

    def __init__(self, environment: CoordinatorEnvironment) -> None:
        self._metadata = environment.metadata
        self._config = environment.config
        self._clock = environment.clock
        self._lines = environment.lines
        self._auto_topics = environment.auto_topics
        self._background = environment.background
        self._context: ShareContext | None = None
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            SHARE_GROUP_STATE_TOPIC, self, environment
        )
        self._metadata.subscribe(self._on_record)

    @property
    def context(self) -> ShareContext:
        if self._context is None:
            from oncelog.coordinator.share.shard import ShareContext

            self._context = ShareContext(
                now_ms=self._clock.now_ms,
                settings=lambda: self._config.current,
                partition_count=self._partition_count,
            )
        return self._context

    def _partition_count(self, topic_id: Uuid) -> int:
        topic = self._metadata.image.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards, write snapshots and prune, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runtime.run)
            nursery.start_soon(self._snapshot_cold_partitions)
            nursery.start_soon(self._prune)
            task_status.started()

    # -- ShardBuilder

    def build(self, partition: int, log: CoordinatorLog) -> ShareShard:
        from oncelog.coordinator.share.shard import ShareShard

        return ShareShard(partition, log, self.context)

    def build_view(self, partition: int, log: CoordinatorLog) -> ShareShard:
        return self.build(partition, log)

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        from oncelog.wire.stored.share import KEY_TYPES, VALUE_TYPES

        return KEY_TYPES, VALUE_TYPES

    def codec(self) -> int:
        return self._config.current.share_coordinator_state_topic_compression_codec

    def write_timeout_ms(self) -> int:
        return self._config.current.share_coordinator_write_timeout_ms

    def on_shard_loaded(self, shard: ShareShard) -> None:
        # A topic may have been deleted while the shard was not loaded, or just before the process died.
        if shard.states:
            self.runtime.background.add(self._delete_states_without_topic(shard.partition))

    # -- SharePersister

    async def initialize(
        self, group_id: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """See `SharePersister.initialize`."""
        from oncelog.coordinator.share import steps

        key = _key(group_id, topic_id, partition)
        await self._call(key, lambda shard: steps.initialize(shard, key, state_epoch, start_offset))

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        """See `SharePersister.read`."""
        from oncelog.coordinator.share import steps

        key = _key(group_id, topic_id, partition)
        return await self._call(key, lambda shard: steps.read(shard, key, leader_epoch))

    async def write(
        self,
        group_id: str,
        topic_id: Uuid,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See `SharePersister.write`."""
        from oncelog.coordinator.share import steps

        key = _key(group_id, topic_id, partition)
        await self._call(
            key,
            lambda shard: steps.write(
                shard, key, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches
            ),
        )

    async def delete(self, group_id: str, topic_id: Uuid, partition: int) -> None:
        """See `SharePersister.delete`."""
        from oncelog.coordinator.share import steps

        key = _key(group_id, topic_id, partition)
        await self._call(key, lambda shard: steps.delete(shard, key))

    async def summary(
        self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int = -1
    ) -> StateSummary:
        """See `SharePersister.summary`. As in Kafka, ``leader_epoch`` is not checked."""
        from oncelog.coordinator.share import steps

        key = _key(group_id, topic_id, partition)
        return await self._call(key, lambda shard: steps.summary(shard, key))

    async def _call(self, key: SharePartitionKey, step: Callable[[ShareShard], T]) -> T:
        """Run ``step`` in the key's shard, and wait until its record is committed. Raises KafkaError."""
        self._auto_topics.ensure(SHARE_GROUP_STATE_TOPIC)
        shard = self.runtime.shard_of(key.coordinator_key())
        result = step(shard)
        try:
            log = self.runtime.log_of(shard)
            if not log.is_durable():
                await log.wait_durable()
        except KafkaError as error:
            raise to_client_error(error) from error
        return result

    # -- upkeep

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        if isinstance(record, RemoveTopicRecord) and self.runtime.loaded:
            self.runtime.background.add(self._delete_states())

    def _delete_states(self) -> Iterator[None]:
        """Delete the state of deleted topics in all loaded shards."""
        for partition in list(self.runtime.loaded):
            yield from self._delete_states_without_topic(partition)

    def _delete_states_without_topic(self, partition: int) -> Iterator[None]:
        from oncelog.coordinator.share.upkeep import delete_states_without_topic

        return self._steps_of(partition, delete_states_without_topic)

    def _steps_of(self, partition: int, steps: Callable[[ShareShard], Iterator[None]]) -> Iterator[None]:
        """Yield after each of ``steps`` in a shard, until it fails or is lost."""
        context = self.runtime.loaded.get(partition)
        if context is None:
            return
        try:
            for _ in steps(context.shard):
                yield
                if context.is_lost():
                    return
        except KafkaError as error:
            about = {"topic": SHARE_GROUP_STATE_TOPIC, "partition": partition}
            self._lines.write(_log.warning, "upkeep of share partitions not finished", about, error=error)

    async def _snapshot_cold_partitions(self) -> None:
        """Write snapshots of idle share partitions from time to time."""
        while True:
            interval_ms = self._config.current.share_coordinator_cold_partition_snapshot_interval_ms
            await self._clock.pause(interval_ms / 1000)
            if not self.runtime.loaded:
                continue
            from oncelog.coordinator.share.upkeep import snapshot_cold_partitions

            for partition in list(self.runtime.loaded):
                self.runtime.background.add(self._steps_of(partition, snapshot_cold_partitions))

    async def _prune(self) -> None:
        """Delete the records that nobody needs from time to time."""
        while True:
            await self._clock.pause(
                self._config.current.share_coordinator_state_topic_prune_interval_ms / 1000
            )
            with self._background.running(f"pruning of {SHARE_GROUP_STATE_TOPIC}"):
                for partition in list(self.runtime.loaded):
                    await self._prune_partition(partition)

    async def _prune_partition(self, partition: int) -> None:
        """Move the log start offset to the first record that somebody needs.

        What makes older records redundant must be on the disk first, and committed. Otherwise a loss of power, or of
        the leader, could take both, whatever ``flush.messages`` is.
        """
        context = self.runtime.loaded.get(partition)
        if context is None:
            return
        log, offset = context.partition_log, context.shard.redundant_offset()
        if offset <= log.log_start_offset:
            return
        try:
            await log.flush(log.log_end_offset)
            await context.log.wait_durable()
            log.delete_records(offset)
        except KafkaError as error:
            about = {"topic": SHARE_GROUP_STATE_TOPIC, "partition": partition}
            self._lines.write(_log.warning, "records not pruned", about, error=error)


def _key(group_id: str, topic_id: Uuid, partition: int) -> SharePartitionKey:
    """Raises KafkaError (INVALID_REQUEST) for an empty group id."""
    from oncelog.coordinator.share.state import SharePartitionKey

    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id is empty.")
    return SharePartitionKey(group_id, topic_id, partition)
