"""The range assignor: each subscriber gets consecutive partitions of a topic, in the same order of members for all
topics.

So one member gets the same partition number of all topics, as joins of topics need. Static members come first, by
instance id, the others by member id. Source: Kafka's ``RangeAssignor``.
"""

from __future__ import annotations

from oncelog.coordinator.groups.assignors.spec import Assignment, GroupSpec
from oncelog.wire.schema import Uuid
from oncelog.wire.steps import Steps

_NOTHING: frozenset[int] = frozenset()


class _Topic:
    """Divides one topic: ``each`` partitions for every subscriber, one more for the first ``extra``."""

    __slots__ = ("count", "each", "extra", "next")

    def __init__(self, count: int, subscribers: int) -> None:
        self.count = count
        self.each, self.extra = divmod(count, subscribers)
        self.next = 0

    def take(self) -> frozenset[int]:
        start = self.next
        size = self.each
        if self.extra:
            self.extra -= 1
            size += 1
        if not size:
            return _NOTHING
        self.next = start + size
        return frozenset(range(start, self.next))


def assign(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    order = sorted(group.members, key=lambda member_id: _place(group, member_id))
    subscribers: dict[Uuid, int] = {}
    for spec in group.members.values():
        for topic_id in spec.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
            yield
    topics = {topic_id: _Topic(group.partitions[topic_id], count) for topic_id, count in subscribers.items()}
    assignments: dict[str, dict[Uuid, frozenset[int]]] = {}
    for member_id in order:
        runs = assignments[member_id] = {}
        for topic_id in group.members[member_id].topics:
            run = topics[topic_id].take()
            if run:
                runs[topic_id] = run
            yield
    return {**assignments}


def _place(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
