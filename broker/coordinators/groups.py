"""`GroupCoordinator`: the broker's side of consumer groups and their offsets.

Source: ``GroupCoordinatorService``. The groups themselves are in `oncelog.coordinator.groups`, whose modules are
imported with the first shard: a node that serves no group does not wait for them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncelog.broker.config.group_config import beyond_limits, within_limits
from oncelog.broker.coordinators.members_heard import MembersHeard
from oncelog.broker.coordinators.runtime import CoordinatorRuntime, M
from oncelog.broker.coordinators.shard import without_timers
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.image import GROUP
from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.groups.group import SHARE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from types import ModuleType

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.log import CoordinatorLog
    from oncelog.broker.coordinators.members_heard import Peer
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.requests.request import Pending
    from oncelog.coordinator.groups.context import CoordinatorTopic, GroupContext
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.promise import Promise
    from oncelog.wire.schema import Message, Uuid

_log = get_logger(__name__)

INTERVAL_MAX_MS = 365 * 24 * 3600 * 1000
"""Longer intervals are cut to this: Kafka's "never" is 2**63-1 milliseconds, which is too long for a timer."""

_EXPIRY = "expiry of offsets"


class _ImageTopics:
    """The topics of the metadata image, with the interface that groups need."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        return self._metadata.image.offset

    def by_name(self, name: str) -> Topic | None:
        return self._metadata.image.topics.get(name)

    def by_id(self, topic_id: Uuid) -> Topic | None:
        return self._metadata.image.topics_by_id.get(topic_id)

    def existing(self, names: frozenset[str]) -> AbstractSet[str]:
        topics = self._metadata.image.topics
        # Each goes through its argument: through whichever is smaller here.
        return names.intersection(topics) if len(topics) < len(names) else topics.keys() & names

    def names(self) -> Sequence[str]:
        return list(self._metadata.image.topics)

    def racks(self, topic: CoordinatorTopic, partition: int) -> Sequence[str]:
        image = self._metadata.image
        state = image.topics[topic.name].partitions[partition]
        found = (image.brokers.get(replica) for replica in state.replicas)
        return [broker.rack for broker in found if broker is not None and broker.rack is not None]


class GroupCoordinator:
    """Builds the shards of ``__consumer_offsets`` for its ``runtime``, expires offsets, and tells groups about changed
    topics."""

    BASE_SEQUENCE = 0
    SKIPS_VERSIONS = False
    RELOADS = False
    IS_ACKS_ALL = False

    def __init__(self, environment: CoordinatorEnvironment, rng: random.Random) -> None:
        self._metadata = environment.metadata
        self._config = environment.config
        self._clock = environment.clock
        self._lines = environment.lines
        self._came_due = environment.background.timer_event
        self._random = rng
        self._context: GroupContext | None = None
        self._held: set[str] = set()
        self._expiry_at = 0.0
        """When offsets are to be expired next, in seconds of broker time."""
        self._changed_topics: dict[str, None] = {}
        self._deleted_topics: list[tuple[str, Uuid]] = []
        self._deleted_before_load: list[tuple[str, Uuid]] = []
        """Topics deleted before all shards were loaded. Shards that are loaded later may have offsets for them."""
        self.members_heard = MembersHeard(self._expects)
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(OFFSETS_TOPIC, self, environment)
        self._metadata.subscribe(self._on_record)

    @property
    def context(self) -> GroupContext:
        if self._context is None:
            from oncelog.coordinator.groups.context import GroupContext

            self._context = GroupContext(
                now_ms=self._clock.now_ms,
                rng=self._random,
                deadlines=self.runtime.timer.deadlines,
                settings=lambda: self._config.current,
                overrides=self._overrides,
                topics=_ImageTopics(self._metadata),
                log_info=_log.info,
                timer_event=self._came_due,
            )
        return self._context

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return within_limits(self._metadata.image.configs.get((GROUP, group_id), {}), self._config.current)

    def warn_of_limits(self) -> None:
        """Log each setting of a group that the broker's limits, which only a start changes, do not allow any more."""
        broker = self._config.current
        for (kind, group_id), overrides in self._metadata.image.configs.items():
            for key, limit in beyond_limits(overrides, broker) if kind == GROUP else ():
                _log.warning(
                    "a setting of a group is beyond the broker's limit, which counts instead",
                    group=group_id,
                    key=key,
                    value=overrides[key],
                    limit=limit,
                    counts_as=broker.value(limit),
                )

    def shard(self, group_id: str, *, empty_allowed: bool = False) -> GroupShard:
        """Return the shard that stores the group, for a request about it (`CoordinatorRuntime.shard_for`). Only
        OffsetCommit and OffsetFetch allow an empty group id.

        Raises KafkaError: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
        """
        if not group_id and not empty_allowed:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if group_id in self._held:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.runtime.shard_for(group_id)

    @contextmanager
    def held(self, group_id: str) -> Iterator[GroupShard]:
        """Give the shard of the group, to which nobody else gets meanwhile: a change of it takes several turns. Clients
        ask again.

        Raises KafkaError as `shard`.
        """
        shard = self.shard(group_id, empty_allowed=True)
        self._held.add(group_id)
        try:
            yield shard
        finally:
            self._held.remove(group_id)

    def serve(
        self,
        group_id: str,
        step: Callable[[GroupShard], M | Promise[M]],
        error_response: Callable[[KafkaError], M],
        *,
        empty_allowed: bool = False,
        sender: tuple[str, Peer] | None = None,
    ) -> M | Pending[M]:
        """Run ``step`` in the group's shard and return what the handler returns: see `CoordinatorRuntime.respond`.

        ``error_response`` makes the response for a KafkaError of the step, after `to_client_error`. ``sender``: the
        member that sent the request, and its connection. A new member has no id yet; its response has.
        """
        try:
            shard = self.shard(group_id, empty_allowed=empty_allowed)
            result = step(shard)
        except KafkaError as error:
            return error_response(to_client_error(error))
        if sender is not None:
            group = shard.groups.get(group_id)
            member_id = sender[0] or getattr(result, "member_id", "")
            if group is not None and group.expects(member_id):
                self.members_heard.note(group_id, member_id, sender[1])
        return self.runtime.respond([shard], result, error_response)

    def _expects(self, group_id: str, member_id: str) -> bool:
        """Whether a group has that member, or waits for it to join."""
        context = self.runtime.loaded.get(self.runtime.partition_for(group_id))
        group = None if context is None else context.shard.groups.get(group_id)
        return group is not None and group.expects(member_id)

    # -- ShardBuilder

    def build(self, partition: int, log: CoordinatorLog) -> GroupShard:
        from oncelog.coordinator.groups.shard import GroupShard

        return GroupShard(partition, log, self.context)

    def build_view(self, partition: int, log: CoordinatorLog) -> GroupShard:
        from oncelog.coordinator.groups.shard import GroupShard

        return GroupShard(partition, log, without_timers(self.context, self._clock))

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        from oncelog.coordinator.groups.shard import REPLAYS
        from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES

        return {kind: key for kind, key in KEY_TYPES.items() if key in REPLAYS}, VALUE_TYPES

    def codec(self) -> int:
        return self._config.current.offsets_topic_compression_codec

    def write_timeout_ms(self) -> int:
        return self._config.current.offsets_commit_timeout_ms

    def on_shard_loaded(self, shard: GroupShard) -> None:
        if _EXPIRY not in self.runtime.timer.deadlines:
            self._set_expiry()
        deleted = self._deleted_before_load
        if deleted:
            self.runtime.background.add(self._remove_offsets(list(deleted), [shard.partition]))
            if not self.runtime.has_unloaded():
                deleted.clear()

    # -- background work

    def _set_expiry(self) -> None:
        interval_ms = self._config.current.offsets_retention_check_interval_ms
        delay_ms = min(interval_ms, INTERVAL_MAX_MS)
        self._expiry_at = self._clock.monotonic() + delay_ms / 1000
        self.runtime.timer.deadlines.set(_EXPIRY, delay_ms, self._expire, early_ms=delay_ms)

    def _expire(self) -> None:
        """Remove offsets older than ``offsets.retention.minutes``, and groups that have nothing else.

        Where a test moves time, this may come earlier than its interval says. Then a group that never had offsets
        stays: the test wants to see it empty.
        """
        is_early = self._clock.monotonic() < self._expiry_at

        def expire(shard: GroupShard, group_id: str) -> Iterator[None] | None:
            if is_early and not shard.offsets.topics(group_id):
                return None
            steps: Iterator[None] = _expiry().expire_group(shard, group_id)
            return steps

        self.runtime.background.add(self._steps_of_groups(expire))
        self._set_expiry()

    def _steps_of_groups(
        self,
        do: Callable[[GroupShard, str], Iterator[None] | None],
        partitions: Sequence[int] | None = None,
    ) -> Iterator[None]:
        """Call ``do`` for every group of the partitions (None: all of them), and yield after each step.

        Skips groups that an earlier step removed. If a group's records cannot be written, goes on with the next group.
        """
        for partition in list(self.runtime.loaded) if partitions is None else partitions:
            context = self.runtime.loaded.get(partition)
            if context is None:
                continue
            shard = context.shard
            for group_id in list(shard.groups):
                if group_id not in shard.groups:
                    continue
                try:
                    for _ in do(shard, group_id) or ():
                        yield
                        if context.is_lost():
                            break
                except KafkaError as error:
                    about = {"topic": OFFSETS_TOPIC}
                    self._lines.write(
                        _log.warning, "not done for a group", about, group=group_id, error=error
                    )
                yield
                if context.is_lost():
                    break

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        if topic is None:
            return
        if isinstance(record, RemoveTopicRecord):
            if topic.name == OFFSETS_TOPIC:
                self._deleted_before_load.clear()
            elif self.runtime.has_unloaded():
                self._deleted_before_load.append((topic.name, topic.topic_id))
        if not self.runtime.loaded:
            return
        has_moved = (
            isinstance(record, PartitionChangeRecord) and record.replicas is not None
        )  # to other racks
        if has_moved or isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord):
            if not self._changed_topics:
                self.runtime.background.add(self._notify_groups_of_topics())
            self._changed_topics[topic.name] = None
            if isinstance(record, RemoveTopicRecord):
                self._deleted_topics.append((topic.name, topic.topic_id))

    def _notify_groups_of_topics(self) -> Iterator[None]:
        changed, self._changed_topics = list(self._changed_topics), {}
        deleted, self._deleted_topics = self._deleted_topics, []
        if deleted:
            yield from self._remove_offsets(deleted)
        yield from self._steps_of_groups(
            lambda shard, group_id: shard.groups[group_id].on_topics_changed(shard, changed)
        )

    def _remove_offsets(
        self, deleted: Sequence[tuple[str, Uuid]], partitions: Sequence[int] | None = None
    ) -> Iterator[None]:
        """Remove the offsets for deleted topics, and share groups' notes of them, in the shards of ``partitions``
        (None: in all).
        """

        def remove(shard: GroupShard, group_id: str) -> Iterator[None]:
            steps: Iterator[None]
            if shard.groups[group_id].group_type == SHARE:
                from oncelog.coordinator.groups.share import offsets

                steps = offsets.remove_deleted_topics(shard, group_id, deleted)
            else:
                steps = _expiry().remove_deleted_topics(shard, group_id, deleted)
            return steps

        return self._steps_of_groups(remove, partitions)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
        *,
        committed: bool,
    ) -> GroupShard:
        """Append the marker that ends a transaction to a partition. If it was committed, its offsets become valid.

        Returns the shard, whose log may have to be flushed. Raises KafkaError as `CoordinatorRuntime.at` and the log's.
        """
        shard = self.runtime.at(partition)
        self.runtime.log_of(shard).append_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        shard.replay_end_transaction(producer_id, committed=committed)
        return shard


def _expiry() -> ModuleType:
    from oncelog.coordinator.groups import offset_expiry

    return offset_expiry
