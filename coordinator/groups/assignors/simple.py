"""The simple assignor of share groups: as many members for each partition as balance needs, and each keeps what it can.

With fewer partitions than members, several members share a partition; otherwise each partition has one member. If all
members subscribe to the same topics, all partitions are spread together, otherwise topic by topic. Source: Kafka's
``SimpleAssignor``, ``SimpleHomogeneousAssignmentBuilder``, ``SimpleHeterogeneousAssignmentBuilder``; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from oncelog.coordinator.groups.assignors.spec import Assignment, GroupSpec
from oncelog.wire.schema import Uuid
from oncelog.wire.steps import Steps

Partition = tuple[Uuid, int]

NAME = "simple"


def assign(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    if not group.members:
        return {}
    assigned: dict[str, set[Partition]] = {member_id: set() for member_id in group.members}
    if group.homogeneous:
        topics = next(iter(group.members.values())).topics
        yield from _spread(group, topics, list(group.members), assigned)
    else:
        subscribers: dict[Uuid, list[str]] = {}
        for member_id, spec in group.members.items():
            for topic_id in spec.topics:
                subscribers.setdefault(topic_id, []).append(member_id)
                yield
        for topic_id, member_ids in subscribers.items():
            yield from _spread(group, (topic_id,), member_ids, assigned)
    assignments: dict[str, Assignment] = {}
    for member_id, partitions in assigned.items():
        assignments[member_id] = _as_assignment(partitions, group.members[member_id].assigned)
        yield from repeat(None, 1 + len(partitions))
    return assignments


def _spread(
    group: GroupSpec,
    topics: Iterable[Uuid],
    member_ids: Sequence[str],
    assigned: Mapping[str, set[Partition]],
) -> Steps[None]:
    """Add the assignable partitions of ``topics`` to the sets of the members."""
    members: dict[Partition, list[str]] = {}
    for topic_id in topics:
        assignable = group.assignable.get(topic_id, ())
        members |= {
            (topic_id, number): [] for number in range(group.partitions[topic_id]) if number in assignable
        }
        yield
    if not members:
        return
    sharing = -(-len(member_ids) // len(members))
    room = _rooms(member_ids, sharing * len(members))
    for member_id in member_ids:
        yield from _keep(group.members[member_id].assigned, member_id, members, sharing, room)
    yield from _fill(members, sharing, room)
    for partition, holders in members.items():
        yield
        for member_id in holders:
            assigned[member_id].add(partition)


def _rooms(member_ids: Sequence[str], total: int) -> dict[str, int]:
    """Member -> how many of ``total`` assignments it shall have: all the same, give or take one."""
    count = len(member_ids)
    return {
        member_id: -(-total * (index + 1) // count) + (-total * index // count)
        for index, member_id in enumerate(member_ids)
    }


def _keep(
    held: Assignment,
    member_id: str,
    members: Mapping[Partition, list[str]],
    sharing: int,
    room: dict[str, int],
) -> Steps[None]:
    """Let a member keep what it holds, as long as it has room and the partition does not have too many members."""
    for topic_id, numbers in held.items():
        for number in sorted(numbers):
            holders = members.get((topic_id, number))
            if holders is not None and room[member_id] and len(holders) < sharing:
                holders.append(member_id)
                room[member_id] -= 1
        yield


def _fill(members: Mapping[Partition, list[str]], sharing: int, room: dict[str, int]) -> Steps[None]:
    """Give partitions that want more members to members with room, in turn. No member gets a partition twice, so a
    partition may be left with fewer members.
    """
    unfilled = [member_id for member_id, left in room.items() if left]
    at = 0
    for holders in members.values():
        skipped = 0
        while len(holders) < sharing and unfilled and skipped < len(unfilled):
            yield
            at %= len(unfilled)
            member_id = unfilled[at]
            if member_id in holders:
                skipped += 1
                at += 1
                continue
            skipped = 0
            holders.append(member_id)
            room[member_id] -= 1
            if room[member_id]:
                at += 1
            else:
                del unfilled[at]


def _as_assignment(partitions: Iterable[Partition], before: Assignment) -> Assignment:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    after = {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}
    return before if after == before else after
