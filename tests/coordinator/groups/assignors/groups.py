"""Random groups as input for assignors: topics, members and their previous assignments."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from oncelog.coordinator.groups.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec
from oncelog.wire.steps import finish

Rows = set[tuple[bytes, int]]


def spec(
    partitions: Mapping[bytes, int],
    reads: Mapping[str, list[bytes]],
    assigned: Mapping[str, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    """A group whose members have these topics and partitions; ``homogeneous`` is derived."""
    has = assigned or {}
    members = {
        member_id: MemberSpec(dict.fromkeys(topics), has.get(member_id, {}), (instances or {}).get(member_id))
        for member_id, topics in reads.items()
    }
    owners: dict[bytes, dict[int, str]] = {}
    for member_id, assignment in has.items():
        if member_id in members:
            for topic_id, numbers in assignment.items():
                owners.setdefault(topic_id, {}).update(dict.fromkeys(sorted(numbers), member_id))
    homogeneous = len({frozenset(topics) for topics in reads.values()}) <= 1
    return GroupSpec(members, partitions, owners, homogeneous)


def assign(assignor: str, group: GroupSpec) -> dict[str, Assignment]:
    return finish(ASSIGNORS[assignor](group))


def rows_of(assignment: Assignment) -> Rows:
    return {(topic_id, number) for topic_id, numbers in assignment.items() for number in numbers}


def check(group: GroupSpec, made: Mapping[str, Assignment]) -> None:
    """Every partition of a subscribed topic is assigned once, to a member that subscribes to it."""
    assert set(made) <= set(group.members)
    count = Counter(row for assignment in made.values() for row in rows_of(assignment))
    read = {topic_id for member in group.members.values() for topic_id in member.topics}
    assert count == Counter(
        (topic_id, number) for topic_id in read for number in range(group.partitions[topic_id])
    )
    for member_id, assignment in made.items():
        assert set(assignment) <= set(group.members[member_id].topics)
        assert all(assignment.values()), "a topic without partitions is left out"


def random_history(rng: random.Random, assignor: str, *, same_topics: bool, topics: int) -> list[GroupSpec]:
    """A group after some changes: members join and leave, topics grow, subscriptions change."""
    partitions = {rng.randbytes(16): rng.randint(1, 12) for _ in range(topics)}
    ids = list(partitions)
    common = rng.sample(ids, rng.randint(1, topics))

    def choose() -> list[bytes]:
        return list(common) if same_topics else rng.sample(ids, rng.randint(0, topics))

    reads = {f"m{number}": choose() for number in range(rng.randint(1, 8))}
    instances = {name: f"i{rng.randint(0, 99)}{name}" for name in reads if rng.random() < 0.3}
    history: list[GroupSpec] = []
    assigned: dict[str, Assignment] = {}
    made = len(reads)
    for _ in range(rng.randint(1, 6)):
        group = spec(partitions, reads, assigned, instances)
        history.append(group)
        assigned = assign(assignor, group)
        reads, partitions = dict(reads), dict(partitions)
        for _ in range(rng.randint(0, 3)):
            made += 1
            reads[f"m{made}"] = choose()
        for name in rng.sample(sorted(reads), rng.randint(0, len(reads) - 1)):
            if rng.random() < 0.4:
                del reads[name]
            elif not same_topics:
                reads[name] = choose()
        if rng.random() < 0.3:
            partitions[rng.choice(ids)] += rng.randint(1, 4)
    return history
