"""`GroupShard`: the groups and offsets that one partition of ``__consumer_offsets`` stores.

Durable state changes only in `replay`. A step (a function that takes the shard and a request) reads the state, computes
records and a response, and calls `commit`. Kafka: ``GroupCoordinatorShard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.classic.replay import replay_group_metadata
from oncelog.coordinator.groups.consumer.replay import REPLAYS as CONSUMER_GROUP_REPLAYS
from oncelog.coordinator.groups.offset_store import OffsetStore, replay_offset
from oncelog.coordinator.groups.share.replay import REPLAYS as SHARE_GROUP_REPLAYS
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.groups import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.group import Group
    from oncelog.coordinator.partition_writer import CoordinatorRecord, PartitionWriter
    from oncelog.wire.schema import Message

REPLAYS: dict[type[Message], Callable[[Any, Any, Any, int, int], None]] = {
    LegacyOffsetCommitKey: replay_offset,
    OffsetCommitKey: replay_offset,
    GroupMetadataKey: replay_group_metadata,
    **CONSUMER_GROUP_REPLAYS,
    **SHARE_GROUP_REPLAYS,
}
"""Key type -> the function that replays such a record of ``__consumer_offsets``. Its parameters: shard, key, value
(None: a tombstone), offset of the record, producer id (-1: none)."""


class GroupShard:
    """The shard of one ``partition``, to which ``writer`` appends.

    All shards share the ``deadlines`` of `context`: their keys begin with the partition.
    """

    __slots__ = ("context", "groups", "loaded", "offsets", "partition", "writer")

    def __init__(self, partition: int, writer: PartitionWriter, context: GroupContext) -> None:
        self.partition = partition
        self.writer = writer
        self.context = context
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.loaded = False
        """Whether the whole log has been replayed; before, no timers run and no requests are served."""

    def group(self, group_id: str) -> Group:
        """The group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def commit(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> None:
        """Append ``records`` as one batch, then replay them. Raises KafkaError if the append fails; then nothing has
        changed.
        """
        if not records:
            return
        offset = self.writer.append(records, producer_id, producer_epoch)
        for record_offset, record in enumerate(records, offset):
            self.replay(record.key, record.value, record_offset, producer_id)

    def replay(
        self, key: Message, value: Message | None, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply the log's record at ``offset``. Durable state changes only here and in `replay_end_transaction`."""
        REPLAYS[type(key)](self, key, value, offset, producer_id)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a COMMIT or ABORT marker: make the producer's pending offsets valid, or drop them."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> None:
        """The whole log is replayed: start the members' timers (Kafka: ``onLoaded``)."""
        self.loaded = True
        for group in list(self.groups.values()):
            group.on_loaded(self)

    def on_unloaded(self) -> None:
        """The shard is given up: cancel its timers and complete waiting requests with NOT_COORDINATOR."""
        self.loaded = False
        for group in self.groups.values():
            group.on_unloaded(self)
