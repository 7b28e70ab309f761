"""The target assignment, which is computed anew when the group epoch has risen.

It is computed at most once in each assignment interval (KIP-1263); later changes wait for the first heartbeat after the
interval. What takes more than `STEPS_AT_ONCE` goes on after the heartbeat, from what the group was at its begin; the
members keep the present target assignment meanwhile. Source: Kafka's
``GroupMetadataManager.maybeUpdateTargetAssignment``, ``TargetAssignmentBuilder``; KIP-1263.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Generic, NamedTuple

from oncelog.coordinator.groups.modern import timers
from oncelog.coordinator.groups.modern.group import NO_TARGET_EPOCH, ModernGroup
from oncelog.coordinator.groups.modern.member import M
from oncelog.wire.errors import KafkaError
from oncelog.wire.steps import Steps, finish, take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.coordinator.groups.assignors.spec import Assignment
    from oncelog.coordinator.groups.context import GroupContext, Topics
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord
    from oncelog.wire.schema import Uuid


STEPS_AT_ONCE = 5_000
"""Steps that a heartbeat takes: enough for most groups, whose members so get their assignment by it."""
STEPS_PER_TURN = 500
ROWS_PER_TURN = 500
"""Topics of members whose assignment is written in one turn; a member's is written whole."""


class TargetAssignment(NamedTuple):
    """The epoch of the target assignment, the requesting member's part of it, and its ``records`` if it is new."""

    epoch: int
    assignment: Assignment
    records: list[CoordinatorRecord]


def get_or_compute(
    shard: GroupShard,
    group: ModernGroup[M],
    epoch: int,
    new: M,
    interval_ms: int,
    compute: Callable[[], Steps[dict[str, Assignment]]],
    *,
    offloads: bool,
) -> TargetAssignment:
    """The target assignment for the group epoch ``epoch``, or the present one where the interval is not over, or the
    computation of another goes on.

    ``new`` sent the request. ``compute`` makes the assignment of each member, from copies of what the group has.
    Without ``offloads`` all of its steps are taken here.
    """
    if _is_due(shard.context, group, epoch, interval_ms) and not _is_being_computed(shard, group):
        steps = compute()
        # A group that had none before has no present one either.
        offloads = offloads and group.target_epoch != NO_TARGET_EPOCH
        assignments = take(steps, STEPS_AT_ONCE) if offloads else finish(steps)
        if assignments is not None:
            records = [*_changes(group, assignments), _epoch(shard.context, group, epoch)]
            return TargetAssignment(epoch, assignments.get(new.member_id, {}), records)
        _Computation(shard, group, epoch, steps).go_on()
    return TargetAssignment(group.target_epoch, group.target(new), [])


def _is_due(context: GroupContext, group: ModernGroup[M], epoch: int, interval_ms: int) -> bool:
    """Whether the target assignment must be computed for the group epoch ``epoch``, and may be by now."""
    if group.target_epoch >= epoch:
        return False
    if group.target_timestamp_ms == 0:
        return True  # the time of the last computation is unknown
    # Without an interval do not compare timestamps: wall time may have been set back.
    return interval_ms == 0 or context.now_ms() >= group.target_timestamp_ms + interval_ms


def _is_being_computed(shard: GroupShard, group: ModernGroup[M]) -> bool:
    return timers.key(shard, timers.COMPUTATION, group.group_id) in shard.context.deadlines


class _Computation(Generic[M]):
    """The rest of a computation, and the writing of its result, a turn at a time.

    The epoch is written last: until then a restart, or a member that has gone, makes the next heartbeat begin anew.
    The result counts also for an epoch that has passed: a group that always changes has an assignment all the same.
    """

    def __init__(
        self, shard: GroupShard, group: ModernGroup[M], epoch: int, steps: Steps[dict[str, Assignment]]
    ) -> None:
        self._shard = shard
        self._group = group
        self._epoch = epoch
        self._steps = steps
        self._assignments: dict[str, Assignment] | None = None
        self._unwritten: list[str] = []

    def go_on(self) -> None:
        timers.start(self._shard, timers.COMPUTATION, self._group.group_id, "", 0, self._turn)

    def _turn(self) -> None:
        if self._assignments is None:
            self._assignments = take(self._steps, STEPS_PER_TURN)
            if self._assignments is not None:
                self._unwritten = list(self._assignments)
            self.go_on()
            return
        group = self._group
        if not self._assignments.keys() <= group.members.keys() or group.target_epoch >= self._epoch:
            return
        try:
            self._shard.commit(self._next_records(self._assignments))
        except KafkaError as error:
            self._shard.context.log_info("an assignment cannot be stored", group=group.group_id, error=error)
            return
        if group.target_epoch != self._epoch:
            self.go_on()

    def _next_records(self, assignments: Mapping[str, Assignment]) -> list[CoordinatorRecord]:
        part: dict[str, Assignment] = {}
        rows = 0
        while self._unwritten and rows < ROWS_PER_TURN:
            member_id = self._unwritten.pop()
            part[member_id] = assignments[member_id]
            rows += 1 + len(part[member_id])
        records = _changes(self._group, part)
        return (
            records if self._unwritten else [*records, _epoch(self._shard.context, self._group, self._epoch)]
        )


def _changes(group: ModernGroup[M], assignments: Mapping[str, Assignment]) -> list[CoordinatorRecord]:
    make = group.record_types.target_assignment
    return [
        make(group.group_id, member_id, assignment)
        for member_id, assignment in assignments.items()
        if assignment != group.targets.get(member_id)
    ]


def _epoch(context: GroupContext, group: ModernGroup[M], epoch: int) -> CoordinatorRecord:
    return group.record_types.target_epoch(group.group_id, epoch, context.now_ms())


def topic_ids(names: frozenset[str], topics: Topics) -> dict[Uuid, int]:
    """Topic id -> number of partitions, of existing topics, in the order of their names."""
    known_topics = (topics.by_name(name) for name in sorted(topics.existing(names)))
    return {topic.topic_id: len(topic.partitions) for topic in known_topics if topic is not None}


class TopicIds:
    """Topic ids by subscribed names, as `topic_ids`; members with the same names share one. ``partitions`` has them
    all.
    """

    def __init__(self, topics: Topics) -> None:
        self.partitions: dict[Uuid, int] = {}
        self._topics = topics
        self._by_names: dict[frozenset[str], dict[Uuid, int]] = {}

    def of(self, names: frozenset[str]) -> Steps[dict[Uuid, int]]:
        """Take a step, and one for each topic that the first member with these names reads."""
        read = self._by_names.get(names)
        if read is None:
            read = self._by_names[names] = topic_ids(names, self._topics)
            self.partitions |= read
            yield from repeat(None, 1 + len(read))
        return read
