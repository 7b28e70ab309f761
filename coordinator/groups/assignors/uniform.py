"""The uniform assignor: all members get the same number of partitions, give or take one, and keep what they can.

If all members subscribe to the same topics, each has a quota, as done here; otherwise see
`coordinator.groups.assignors.uniform_heterogeneous`. Source: Kafka's ``UniformAssignor``,
``UniformHomogeneousAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Container

from oncelog.coordinator.groups.assignors import uniform_heterogeneous
from oncelog.coordinator.groups.assignors.spec import Assignment, GroupSpec
from oncelog.wire.schema import Uuid
from oncelog.wire.steps import Steps


def assign(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    if not group.members:
        return {}
    if group.homogeneous:
        return (yield from _by_quota(group))
    return (yield from uniform_heterogeneous.assign(group))


def _by_quota(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    topics = next(iter(group.members.values())).topics
    free: list[tuple[Uuid, int]] = []
    for topic_id in topics:
        unowned = _unowned(group.partitions[topic_id], group.owners.get(topic_id, {}))
        free += ((topic_id, partition) for partition in unowned)
        yield
    quota, extras = divmod(sum(group.partitions[topic_id] for topic_id in topics), len(group.members))
    assignments: dict[str, Assignment] = {}
    unfilled: list[tuple[str, int]] = []
    still_to_come = len(group.members)
    for member_id, spec in group.members.items():
        room = quota + (1 if extras else 0)
        kept, lost, room = yield from _kept(spec.assigned, topics, room)
        free += lost
        takes_extra = extras > 0
        # Leave the extra partition to a later member, if there are more of them than extra partitions.
        if room and takes_extra and still_to_come > extras:
            room -= 1
            takes_extra = False
        if room:
            unfilled.append((member_id, room))
        extras -= takes_extra
        still_to_come -= 1
        assignments[member_id] = kept
    yield from _fill(assignments, unfilled, free)
    return assignments


def _unowned(count: int, owners: Container[int]) -> list[int]:
    return [partition for partition in range(count) if partition not in owners]


def _kept(
    assigned: Assignment, topics: Container[Uuid], room: int
) -> Steps[tuple[Assignment, list[tuple[Uuid, int]], int]]:
    """The partitions that a member keeps, at most ``room``; those of ``topics`` that it loses; the room left."""
    lost: list[tuple[Uuid, int]] = []
    kept: dict[Uuid, frozenset[int]] = {}
    changed = False
    for topic_id, partitions in assigned.items():
        if topic_id not in topics:
            changed = True
        elif len(partitions) <= room:
            kept[topic_id] = partitions
            room -= len(partitions)
        else:
            order = sorted(partitions)
            lost += ((topic_id, partition) for partition in order[room:])
            if room:
                kept[topic_id] = frozenset(order[:room])
            room = 0
            changed = True
        yield
    return kept if changed else assigned, lost, room


def _fill(
    assignments: dict[str, Assignment], unfilled: list[tuple[str, int]], free: list[tuple[Uuid, int]]
) -> Steps[None]:
    """Assign the free partitions to the members with room, in order."""
    start = 0
    for member_id, room in unfilled:
        more: dict[Uuid, list[int]] = {}
        for topic_id, partition in free[start : start + room]:
            more.setdefault(topic_id, []).append(partition)
            yield
        start += room
        current = assignments[member_id]
        assignments[member_id] = {
            **current,
            **{topic_id: current.get(topic_id, frozenset()).union(rows) for topic_id, rows in more.items()},
        }
    assert start >= len(free), "partitions were left unassigned"
