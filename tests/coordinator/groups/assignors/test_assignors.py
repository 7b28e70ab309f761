"""What assignors guarantee: every partition is assigned once, evenly, and moves only if it must."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.groups.assignors import ASSIGNORS, GroupSpec
from tests.coordinator.groups.assignors.groups import assign, check, random_history, rows_of, spec

A, B, C = b"A" * 16, b"B" * 16, b"C" * 16


def histories(assignor: str, same_topics: bool) -> st.SearchStrategy[list[GroupSpec]]:
    return st.builds(
        lambda seed, topics: random_history(
            random.Random(seed), assignor, same_topics=same_topics, topics=topics
        ),
        st.integers(0, 2**32),
        st.integers(1, 5),
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("same_topics", [True, False])
def test_every_partition_is_assigned_once_to_a_subscriber(assignor: str, same_topics: bool) -> None:
    @settings(max_examples=50, deadline=None)
    @given(histories(assignor, same_topics))
    def through(history: list[GroupSpec]) -> None:
        for group in history:
            check(group, assign(assignor, group))

    through()


@settings(max_examples=60, deadline=None)
@given(histories("uniform", True))
def test_uniform_is_even_and_moves_nothing_needlessly(history: list[GroupSpec]) -> None:
    for group in history:
        made = assign("uniform", group)
        loads = [len(rows_of(made.get(member_id, {}))) for member_id in group.members]
        assert max(loads) - min(loads) <= 1
        total = sum(loads)
        quota = -(-total // len(loads))
        topics = next(iter(group.members.values())).topics
        for member_id, member in group.members.items():
            had = {row for row in rows_of(member.assigned) if row[0] in topics}
            lost = had - rows_of(made.get(member_id, {}))
            # Only a member with more than its share loses partitions, and it keeps its share.
            assert not lost or len(rows_of(made[member_id])) >= total // len(loads)
            assert len(lost) <= max(0, len(had) - (total // len(loads))), quota


@settings(max_examples=60, deadline=None)
@given(histories("uniform", False))
def test_uniform_balances_every_topic_among_its_subscribers(history: list[GroupSpec]) -> None:
    """No subscriber of a topic may have two partitions less than another member that owns a partition of it."""
    for group in history:
        made = assign("uniform", group)
        loads = {member_id: len(rows_of(made.get(member_id, {}))) for member_id in group.members}
        for topic_id in group.partitions:
            readers = [member_id for member_id, member in group.members.items() if topic_id in member.topics]
            owners = [member_id for member_id in readers if made.get(member_id, {}).get(topic_id)]
            if owners:
                assert max(loads[id_] for id_ in owners) - min(loads[id_] for id_ in readers) <= 1


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(ASSIGNORS)), st.booleans(), st.integers(0, 2**32))
def test_nothing_moves_where_nothing_changed(assignor: str, same_topics: bool, seed: int) -> None:
    group = random_history(random.Random(seed), assignor, same_topics=same_topics, topics=4)[-1]
    made = assign(assignor, group)
    again = spec(
        group.partitions,
        {member_id: list(member.topics) for member_id, member in group.members.items()},
        made,
        {id_: member.instance_id for id_, member in group.members.items() if member.instance_id is not None},
    )
    assert {k: v for k, v in assign(assignor, again).items() if v} == {k: v for k, v in made.items() if v}


def test_range_assigns_equal_partition_numbers_to_one_member() -> None:
    made = assign("range", spec({A: 5, B: 4}, {"y": [A, B], "x": [A, B]}))
    assert made == {
        "x": {A: frozenset({0, 1, 2}), B: frozenset({0, 1})},
        "y": {A: frozenset({3, 4}), B: frozenset({2, 3})},
    }


def test_range_puts_static_members_first() -> None:
    reads = {"a": [A], "b": [A], "z": [A]}
    made = assign("range", spec({A: 2}, reads, instances={"z": "i2", "b": "i1"}))
    assert made == {"b": {A: frozenset({0})}, "z": {A: frozenset({1})}, "a": {}}


def test_range_with_different_topics() -> None:
    made = assign("range", spec({A: 3, B: 1, C: 2}, {"a": [A], "b": [A, C], "c": []}))
    assert made == {"a": {A: frozenset({0, 1})}, "b": {A: frozenset({2}), C: frozenset({0, 1})}, "c": {}}


def test_uniform_revokes_from_members_with_too_many_partitions() -> None:
    made = assign("uniform", spec({A: 4}, {"a": [A], "b": [A]}, {"a": {A: frozenset({0, 1, 2, 3})}}))
    assert made == {"a": {A: frozenset({0, 1})}, "b": {A: frozenset({2, 3})}}


def test_uniform_assigns_a_topic_of_one_subscriber_to_it() -> None:
    made = assign("uniform", spec({A: 2, B: 4}, {"a": [A], "b": [A, B]}))
    assert made == {"a": {A: frozenset({0, 1})}, "b": {B: frozenset({0, 1, 2, 3})}}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_no_members_or_no_topics(assignor: str) -> None:
    assert assign(assignor, spec({}, {})) == {}
    assert not assign(assignor, spec({}, {"a": [], "b": []})).get("a")
