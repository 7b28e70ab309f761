"""`Groups`: the broker's side of consumer groups and their offsets (``node.groups``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.coordinators.shards import M, Shards
from oncelog.broker.logs import get_logger
from oncelog.broker.metadata.image import GROUP
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.coordinator.groups.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from types import ModuleType
    from typing import Any

    from oncelog.broker.coordinators.shard_log import ShardLog
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.node import Node
    from oncelog.broker.request import RequestContext
    from oncelog.coordinator.groups.context import Client, GroupContext
    from oncelog.coordinator.groups.context import Topic as _AnyTopic
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.promise import Promise
    from oncelog.wire.schema import Message, Uuid

_log = get_logger(__name__)

LONGEST_INTERVAL_MS = 365 * 24 * 3600 * 1000
"""Kafka's "never" is 2**63-1 milliseconds, which no timer takes."""

_EXPIRY = "expiry of offsets"

# The modules of groups are imported with the first shard: a node that serves no group shall not wait for them.


def client_of(context: RequestContext) -> Client:
    """Who asks, as groups want to know it."""
    from oncelog.coordinator.groups.context import Client

    host = context.connection.transport.peer.rpartition(":")[0]
    return Client(context.client_id or "", f"/{java_address(host)}", context.api_version)


def java_address(host: str) -> str:
    """As Java writes an address: IPv6 in eight groups, none left out."""
    host = host.strip("[]")
    if ":" not in host or "." in host:
        return host
    head, gap, tail = host.partition("::")
    first = head.split(":") if head else []
    last = tail.split(":") if tail else []
    left_out = ["0"] * (8 - len(first) - len(last)) if gap else []
    return ":".join(part.lstrip("0") or "0" for part in first + left_out + last)


class _Topics:
    """The cluster's topics as groups see them."""

    __slots__ = ("_metadata",)

    def __init__(self, node: Node) -> None:
        self._metadata = node.metadata

    @property
    def version(self) -> int:
        return self._metadata.image.offset

    def by_name(self, name: str) -> Topic | None:
        return self._metadata.image.topics.get(name)

    def by_id(self, topic_id: Uuid) -> Topic | None:
        return self._metadata.image.topics_by_id.get(topic_id)

    def names(self) -> Sequence[str]:
        return list(self._metadata.image.topics)

    def racks(self, topic: _AnyTopic, partition: int) -> Sequence[str]:
        image = self._metadata.image
        state = image.topics[topic.name].partitions[partition]
        found = (image.brokers.get(replica) for replica in state.replicas)
        return [broker.rack for broker in found if broker is not None and broker.rack is not None]


class Groups(Shards["GroupShard"]):
    """The shards of ``__consumer_offsets``."""

    BASE_SEQUENCE = 0

    def __init__(self, node: Node) -> None:
        self._context: GroupContext | None = None
        self._changed: dict[str, None] = {}
        self._deleted: list[tuple[str, Uuid]] = []
        self._deleted_before_load: list[tuple[str, Uuid]] = []
        """Topics that were deleted while shards were yet to be loaded, which may have offsets of them."""
        super().__init__(node, OFFSETS_TOPIC)

    @property
    def context(self) -> GroupContext:
        if self._context is None:
            from oncelog.coordinator.groups.context import GroupContext

            self._context = GroupContext(
                now_ms=self.node.clock.now_ms,
                rng=self.node.random,
                deadlines=self.deadlines,
                settings=lambda: self.node.config.current,
                overrides=self._overrides,
                topics=_Topics(self.node),
                log_info=_log.info,
            )
        return self._context

    def _overrides(self, group_id: str) -> Mapping[str, str]:
        return self.node.metadata.image.configs.get((GROUP, group_id), {})

    def shard(self, group_id: str, *, empty_allowed: bool = False) -> GroupShard:
        """The shard that stores the group. Only OffsetCommit and OffsetFetch know a group with an empty name.

        Raises KafkaError: INVALID_GROUP_ID, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
        """
        if not group_id and not empty_allowed:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self.shard_of(group_id)

    def ask(
        self,
        group_id: str,
        step: Callable[[GroupShard], M | Promise[M]],
        refused: Callable[[KafkaError], M],
        *,
        empty_allowed: bool = False,
    ) -> M | Coroutine[Any, Any, M]:
        """What a handler returns for a step in the group's shard; see `answer`. Errors of the log are translated."""
        try:
            shard = self.shard(group_id, empty_allowed=empty_allowed)
            result = step(shard)
        except KafkaError as error:
            return refused(to_client_error(error))
        return self.answer(shard, result, refused)

    # -- what a shard is

    def make(self, partition: int, journal: ShardLog) -> GroupShard:
        from oncelog.coordinator.groups.shard import GroupShard

        return GroupShard(partition, journal, self.context)

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        from oncelog.coordinator.groups.shard import REPLAYS
        from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES

        return {kind: key for kind, key in KEY_TYPES.items() if key in REPLAYS}, VALUE_TYPES

    def codec(self) -> int:
        return self.node.config.current.offsets_topic_compression_codec

    # -- what comes from outside of requests

    def began(self, shard: GroupShard) -> None:
        if _EXPIRY not in self.deadlines:
            self._set_expiry()
        deleted = self._deleted_before_load
        if deleted:
            self.do_in_slices(self._forget(list(deleted), [shard.partition]))
            if not self._loading and not self._unread:
                deleted.clear()

    def _set_expiry(self) -> None:
        interval_ms = self.node.config.current.offsets_retention_check_interval_ms
        self.deadlines.set(_EXPIRY, min(interval_ms, LONGEST_INTERVAL_MS), self._expire)

    def _expire(self) -> None:
        """Forget offsets that nobody has used for offsets.retention.minutes, and groups that have nothing else."""
        self.do_in_slices(self._each_group(lambda shard, group_id: _expiry().expire_group(shard, group_id)))
        self._set_expiry()

    def _each_group(
        self,
        do: Callable[[GroupShard, str], Iterator[None] | None],
        partitions: Sequence[int] | None = None,
    ) -> Iterator[None]:
        """The steps for every group there is now; one that a step before has removed is left out. A shard whose log
        cannot be written costs the others nothing.
        """
        for partition in list(self._loaded) if partitions is None else partitions:
            served = self._loaded.get(partition)
            if served is None:
                continue
            shard = served.shard
            for group_id in list(shard.groups):
                if group_id not in shard.groups:
                    continue
                try:
                    for _ in do(shard, group_id) or ():
                        yield
                        if served.is_lost():
                            break
                except KafkaError as error:
                    self.node.lines.write(
                        _log.warning,
                        "not done for a group",
                        {"topic": self.topic},
                        group=group_id,
                        error=error,
                    )
                yield
                if served.is_lost():
                    break

    def on_record(self, record: Message, topic: Topic | None) -> None:
        super().on_record(record, topic)
        if topic is None:
            return
        if isinstance(record, RemoveTopicRecord):
            if topic.name == self.topic:
                self._deleted_before_load.clear()
            elif self._loading or self._unread:
                self._deleted_before_load.append((topic.name, topic.topic_id))
        if not self._loaded:
            return
        if isinstance(record, TopicRecord | PartitionRecord | RemoveTopicRecord):
            if not self._changed:
                self.do_in_slices(self._tell_of_topics())
            self._changed[topic.name] = None
            if isinstance(record, RemoveTopicRecord):
                self._deleted.append((topic.name, topic.topic_id))

    def _tell_of_topics(self) -> Iterator[None]:
        changed, self._changed = list(self._changed), {}
        deleted, self._deleted = self._deleted, []
        if deleted:
            yield from self._forget(deleted)
        yield from self._each_group(
            lambda shard, group_id: shard.groups[group_id].on_topics_changed(shard, changed)
        )

    def _forget(
        self, deleted: Sequence[tuple[str, Uuid]], partitions: Sequence[int] | None = None
    ) -> Iterator[None]:
        """Offsets of topics that were deleted go, in all shards or in some."""
        return self._each_group(
            lambda shard, group_id: _expiry().forget_topics(shard, group_id, deleted), partitions
        )

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
        """Write the marker that ends a transaction in a partition, upon which the offsets that it committed count.

        Raises KafkaError as `at` and as the log gives it; `answer` waits for its flush.
        """
        shard = self.at(partition)
        self.journal_of(shard).append_marker(
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
