"""Our assignors against Kafka's own (AssignorOracle.java), on random groups: the assignments must be equal.

One exception: if all members subscribe to the same topics, Kafka's uniform assignor assigns free partitions in the
order of a hash table of topics, and revokes partitions in that of another one. Where these orders matter, only the
numbers of partitions that each member gets and keeps are compared.
"""

from __future__ import annotations

import pathlib
import random
from collections import Counter

import pytest

from oncelog.coordinator.groups.assignors import ASSIGNORS, Assignment, GroupSpec, simple
from oncelog.wire.steps import finish
from tests.coordinator.groups.assignors.groups import assign, check, random_history, rows_of
from tests.harness.kafka_oracle import Oracle

ORACLE = pathlib.Path(__file__).with_name("AssignorOracle.java")
HISTORIES, RECORDED_HISTORIES = 400, 100
SMALLEST_TABLE = 16
"""Buckets of Java's smallest hash table, which keeps smaller numbers in order."""

pytestmark = pytest.mark.slow


def by_kafka(oracle: Oracle, cases: list[tuple[str, GroupSpec]]) -> list[dict[str, Assignment]]:
    given = "".join(as_text(assignor, group) for assignor, group in cases)
    lines = iter(oracle(ORACLE, given.encode()).decode().splitlines())
    return [{member_id: parsed(group, next(lines)) for member_id in group.members} for _, group in cases]


def histories(oracle: Oracle) -> int:
    return HISTORIES if oracle.is_asked else RECORDED_HISTORIES


def as_text(assignor: str, group: GroupSpec) -> str:
    number = {topic_id: str(at) for at, topic_id in enumerate(group.partitions)}
    lines = [f"group {assignor} {'HOMOGENEOUS' if group.homogeneous else 'HETEROGENEOUS'}"]
    for topic_id, count in group.partitions.items():
        high, low = (int.from_bytes(half, signed=True) for half in (topic_id[:8], topic_id[8:]))
        lines.append(f"topic {high} {low} {count}")
    for member_id, member in group.members.items():
        reads = ",".join(number[topic_id] for topic_id in member.topics) or "-"
        has = ",".join(f"{number[topic_id]}:{at}" for topic_id, at in sorted(rows_of(member.assigned))) or "-"
        lines.append(f"member {member_id} {member.instance_id or '-'} {reads} {has}")
    return "\n".join([*lines, "end", ""])


def _hashes_show(group: GroupSpec) -> bool:
    return len(group.partitions) > 1 or max(group.partitions.values()) > SMALLEST_TABLE


def parsed(group: GroupSpec, line: str) -> Assignment:
    ids = list(group.partitions)
    made: dict[bytes, set[int]] = {}
    for row in line.split(",") if line != "-" else ():
        number, partition = map(int, row.split(":"))
        made.setdefault(ids[number], set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in made.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize(("same_topics", "topics"), [(True, 1), (True, 4), (False, 1), (False, 5)])
def test_random_groups(assignor: str, same_topics: bool, topics: int, oracle: Oracle) -> None:
    rng = random.Random(f"{assignor} {same_topics} {topics}")
    cases = [
        (assignor, group)
        for _ in range(histories(oracle))
        for group in random_history(rng, assignor, same_topics=same_topics, topics=topics)
    ]
    for (_, group), kafkas in zip(cases, by_kafka(oracle, cases), strict=True):
        ours = assign(assignor, group)
        check(group, ours)
        for member_id, member in group.members.items():
            got, theirs = ours.get(member_id, {}), kafkas[member_id]
            if assignor == "uniform" and group.homogeneous and _hashes_show(group):
                assert len(rows_of(got)) == len(rows_of(theirs)), group
                had = rows_of(member.assigned)
                assert len(had & rows_of(got)) == len(had & rows_of(theirs)), group
            else:
                assert got == theirs, group


@pytest.mark.parametrize(("same_topics", "topics"), [(True, 1), (True, 4), (False, 1), (False, 5)])
def test_random_share_groups(same_topics: bool, topics: int, oracle: Oracle) -> None:
    """Kafka's simple assignor goes through hash tables: how many partitions each member gets and how many members each
    partition has are compared, and that no more assignments move than in Kafka. Now and then one of the two leaves a
    partition with fewer members than balance wants, because those with room have it already.
    """
    rng = random.Random(f"simple {same_topics} {topics}")
    cases = []
    for _ in range(histories(oracle)):
        assigned: dict[str, Assignment] = {}
        for group in random_history(rng, "range", same_topics=same_topics, topics=topics):
            members = {
                key: member._replace(assigned=assigned.get(key, {}), instance_id=None)
                for key, member in group.members.items()
            }
            every = {topic_id: range(count) for topic_id, count in group.partitions.items()}
            cases.append(("simple", group._replace(members=members, owners={}, assignable=every)))
            assigned = finish(simple.assign(cases[-1][1]))
    moved, differ = Counter[str](), 0
    for (_, group), kafkas in zip(cases, by_kafka(oracle, cases), strict=True):
        ours = finish(simple.assign(group))
        # Kafka leaves a topic that nobody reads any more to its former members, who then ignore it.
        theirs = {
            key: rows_of({topic: rows for topic, rows in one.items() if topic in group.members[key].topics})
            for key, one in kafkas.items()
        }
        mine = {key: rows_of(one) for key, one in ours.items()}
        counts, kafkas_counts = (
            Counter(row for rows in made.values() for row in rows) for made in (mine, theirs)
        )
        assert counts.keys() == kafkas_counts.keys()
        if counts.total() == kafkas_counts.total():
            assert sorted(map(len, mine.values())) == sorted(map(len, theirs.values()))
            assert sorted(counts.values()) == sorted(kafkas_counts.values())
        else:
            differ += 1
        for key, member in group.members.items():
            had = rows_of(member.assigned)
            moved["ours"] += len(had - mine[key])
            moved["kafka"] += len(had - theirs[key])
    assert moved["ours"] <= moved["kafka"] * 1.02
    assert differ < len(cases) / 20
