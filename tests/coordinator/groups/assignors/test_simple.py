"""The simple assignor of share groups: every assignable partition has as many members as balance wants, and members
keep what they can.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from oncelog.coordinator.groups.assignors import Assignment, GroupSpec, simple
from oncelog.wire.steps import finish
from tests.coordinator.groups.assignors.groups import rows_of, spec

A, B = b"A" * 16, b"B" * 16


def assign(group: GroupSpec) -> dict[str, Assignment]:
    return finish(simple.assign(group))


def shared(
    partitions: dict[bytes, int], reads: dict[str, list[bytes]], assigned: dict[str, Assignment] | None = None
) -> GroupSpec:
    """A group in which all partitions are assignable."""
    assignable = {topic_id: range(count) for topic_id, count in partitions.items()}
    return spec(partitions, reads, assigned)._replace(owners={}, assignable=assignable)


def test_more_partitions_than_members() -> None:
    made = assign(shared({A: 5}, {"m1": [A], "m2": [A]}))
    assert sorted(len(rows_of(one)) for one in made.values()) == [2, 3]
    assert rows_of(made["m1"]).isdisjoint(rows_of(made["m2"]))


def test_more_members_than_partitions() -> None:
    made = assign(shared({A: 2}, {f"m{n}": [A] for n in range(5)}))
    counts = Counter(row for one in made.values() for row in rows_of(one))
    assert sorted(counts.values()) == [3, 3]
    assert sorted(len(rows_of(one)) for one in made.values()) == [1, 1, 1, 1, 2]


def test_only_assignable_partitions() -> None:
    group = shared({A: 4, B: 2}, {"m1": [A, B]})._replace(assignable={A: {1, 2}})
    assert assign(group) == {"m1": {A: frozenset({1, 2})}}
    assert assign(group._replace(assignable={})) == {"m1": {}}


def test_members_keep_what_they_have() -> None:
    has: dict[str, Assignment] = {"m1": {A: frozenset({0, 1, 2})}, "m2": {A: frozenset({3})}}
    made = assign(shared({A: 4}, {"m1": [A], "m2": [A]}, has))
    assert len(rows_of(made["m1"]) & rows_of(has["m1"])) == 2
    assert rows_of(has["m2"]) <= rows_of(made["m2"])
    again = assign(shared({A: 4}, {"m1": [A], "m2": [A]}, made))
    assert again == made
    assert all(again[member_id] is made[member_id] for member_id in made), (
        "unchanged assignments are not made anew"
    )


def test_a_topic_that_nobody_reads_any_more() -> None:
    has: dict[str, Assignment] = {"m1": {A: frozenset({0}), B: frozenset({0})}}
    assert assign(shared({A: 1}, {"m1": [A]}, has)) == {"m1": {A: frozenset({0})}}
    assert assign(shared({}, {"m1": []}, has)) == {"m1": {}}
    assert assign(shared({A: 1}, {})) == {}


@pytest.mark.parametrize("same_topics", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_random_histories(seed: int, same_topics: bool) -> None:
    rng = random.Random(seed)
    partitions = {rng.randbytes(16): rng.randint(1, 9) for _ in range(rng.randint(1, 4))}
    common = rng.sample(list(partitions), rng.randint(1, len(partitions)))
    reads: dict[str, list[bytes]] = {}
    made: dict[str, Assignment] = {}
    for step in range(15):
        if rng.random() < 0.6 or not reads:
            topics = common if same_topics else rng.sample(list(partitions), rng.randint(1, len(partitions)))
            reads[f"m{step}"] = list(topics)
        elif rng.random() < 0.5:
            del reads[rng.choice(list(reads))]
        else:
            partitions[rng.choice(list(partitions))] += 1
        group = shared(partitions, reads, {key: one for key, one in made.items() if key in reads})
        made = assign(group)
        check(group, made)
        assert assign(shared(partitions, reads, made)) == made, "nothing moves without a cause"


def check(group: GroupSpec, made: dict[str, Assignment]) -> None:
    counts = Counter(row for one in made.values() for row in rows_of(one))
    for topics in (
        [list(group.partitions)] if group.homogeneous else [[topic_id] for topic_id in group.partitions]
    ):
        members = [
            key
            for key, member in group.members.items()
            if any(topic_id in member.topics for topic_id in topics)
        ]
        rows = [
            (topic_id, number)
            for topic_id in topics
            for number in range(group.partitions[topic_id])
            if any(topic_id in group.members[key].topics for key in members)
        ]
        if not rows or not members:
            continue
        sharing = -(-len(members) // len(rows))
        assert all(1 <= counts[row] <= sharing for row in rows)
        loads = [sum(row in rows for row in rows_of(made[key])) for key in members]
        assert max(loads) - min(loads) <= 1 or min(counts[row] for row in rows) < sharing
    for key, one in made.items():
        assert set(one) <= set(group.members[key].topics)
