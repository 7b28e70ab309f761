"""`RecordTypes`: makes the records that consumer groups and share groups both have, each with types of its own.

Source: Kafka's ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.stored.groups import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.wire.schema import Message


class RecordTypes(NamedTuple):
    """The types of a kind of group: keys of the group, of its target assignment and of its members.

    Keys begin with the group id, those of members have the member id next.
    """

    group_key: Callable[[str], Message]
    group_value: Callable[[int, int], Message]
    target_epoch_key: Callable[[str], Message]
    target_epoch_value: Callable[[int, int], Message]
    target_key: Callable[[str, str], Message]
    target_value: Callable[[list[TopicPartition]], Message]
    current_key: Callable[[str, str], Message]
    member_key: Callable[[str, str], Message]

    def group_epoch(self, group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return CoordinatorRecord(self.group_key(group_id), self.group_value(epoch, metadata_hash))

    def target_epoch(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        return CoordinatorRecord(
            self.target_epoch_key(group_id), self.target_epoch_value(epoch, timestamp_ms)
        )

    def target_assignment(self, group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
        """Partitions are sorted; topics are in the order of the assignment."""
        return CoordinatorRecord(
            self.target_key(group_id, member_id), self.target_value(topic_partitions(assignment))
        )

    def member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Delete a member, in the order that replay expects."""
        return [
            CoordinatorRecord(self.current_key(group_id, member_id), None),
            CoordinatorRecord(self.target_key(group_id, member_id), None),
            CoordinatorRecord(self.member_key(group_id, member_id), None),
        ]

    def members_tombstones(self, group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
        """Delete all members of a group and its target assignment, in the order that replay expects."""
        ids = list(member_ids)
        return [
            *(CoordinatorRecord(self.current_key(group_id, member_id), None) for member_id in ids),
            *(CoordinatorRecord(self.target_key(group_id, member_id), None) for member_id in ids),
            CoordinatorRecord(self.target_epoch_key(group_id), None),
            *(CoordinatorRecord(self.member_key(group_id, member_id), None) for member_id in ids),
        ]

    def group_tombstone(self, group_id: str) -> CoordinatorRecord:
        return CoordinatorRecord(self.group_key(group_id), None)


def topic_partitions(assignment: Assignment) -> list[TopicPartition]:
    return [TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]
