"""`GroupShard`: the groups and offsets that one partition of ``__consumer_offsets`` stores.

Everything durable in it changes only in `replay`. A step (a function that takes the shard and a request) reads the
state, computes records and an answer, and calls `commit`. Kafka: ``GroupCoordinatorShard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.groups.offset_store import OffsetStore
from oncelog.coordinator.groups.replay import REPLAYS
from oncelog.coordinator.partition_writer import NO_PRODUCER_ID
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.context import GroupContext
    from oncelog.coordinator.groups.group import Group
    from oncelog.coordinator.partition_writer import CoordinatorRecord, PartitionWriter
    from oncelog.wire.schema import Message


class GroupShard:
    """``partition`` of the offsets topic; ``writer`` appends to it.

    ``deadlines`` of `context` are shared with other shards: keys begin with the partition.
    """

    __slots__ = ("context", "groups", "loaded", "offsets", "partition", "writer")

    def __init__(self, partition: int, writer: PartitionWriter, context: GroupContext) -> None:
        self.partition = partition
        self.writer = writer
        self.context = context
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.loaded = False
        """Whether the whole log has been replayed: only then do deadlines run and requests get responses."""

    def group(self, group_id: str) -> Group:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        found = self.groups.get(group_id)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return found

    def commit(
        self,
        records: Sequence[CoordinatorRecord],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> None:
        """Append ``records`` as one batch, then replay them. Raises what the log raises; nothing changed then."""
        if not records:
            return
        offset = self.writer.append(records, producer_id, producer_epoch)
        for at, record in enumerate(records, offset):
            self.replay(record.key, record.value, at, producer_id)

    def replay(
        self, key: Message, value: Message | None, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log, at ``offset``; the only place where durable state changes."""
        REPLAYS[type(key)](self, key, value, offset, producer_id)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a COMMIT or ABORT marker: what was pending in the producer's transaction counts, or never did."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> None:
        """The log is replayed to its end: members get their deadlines (Kafka: ``onLoaded``)."""
        self.loaded = True
        for group in list(self.groups.values()):
            group.on_loaded(self)

    def on_unloaded(self) -> None:
        """The shard is given up: its deadlines go, and whoever waits is told NOT_COORDINATOR."""
        self.loaded = False
        for group in self.groups.values():
            group.on_unloaded(self)
