"""Subscriptions by regular expression: when they are resolved, the effect on the group, invalid expressions."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.consumer import records, regex
from oncelog.coordinator.groups.consumer.expressions import check
from oncelog.coordinator.regular_expressions import RegularExpression
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.consumer_clients import Consumer, durable, group_of, settle
from tests.harness.group_shard import GroupShardHarness

NO_INTERVAL = {"group.consumer.assignment.interval.ms": "0"}
MIN_REFRESH_MS = 10_000


@pytest.fixture
def harness() -> GroupShardHarness:
    harness = GroupShardHarness(NO_INTERVAL)
    for name in ("t-a", "t-b", "xt-a"):
        harness.topics.create(name, 2)
    return harness


def made(harness: GroupShardHarness, name: str) -> None:
    harness.topics.create(name, 2)
    group_of(harness.shard).on_topics_changed(harness.shard, [name])


def names(harness: GroupShardHarness, member_id: str = "one") -> set[str]:
    found = set()
    for topic_id in group_of(harness.shard).targets.get(member_id, {}):
        topic = harness.topics.by_id(topic_id)
        assert topic is not None
        found.add(topic.name)
    return found


def test_an_expression_is_resolved_after_the_first_response(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    assert (one.join().member_epoch, one.owned) == (1, set())
    harness.advance(0)
    assert group_of(harness.shard).epoch == 2
    one.beat()
    assert names(harness) == {"t-a", "t-b"}
    assert durable(harness.reloaded()) == durable(harness.shard)


def test_new_topics_are_found_after_ten_seconds(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    harness.advance(0)
    one.beat()
    made(harness, "t-c")
    one.beat()
    harness.advance(MIN_REFRESH_MS)
    one.beat()
    harness.advance(0)
    one.beat()
    assert names(harness) == {"t-a", "t-b"}, "not yet"
    harness.advance(1)
    one.beat()
    harness.advance(0)
    one.beat()
    assert names(harness) == {"t-a", "t-b", "t-c"}


def test_topics_without_a_match_cause_no_rebalance(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    settle(harness, [one], rounds=3)
    epoch = group_of(harness.shard).epoch
    made(harness, "other")
    settle(harness, [one], rounds=5)
    assert group_of(harness.shard).epoch == epoch


def test_all_expressions_are_resolved_again_after_the_refresh_interval(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    settle(harness, [one], rounds=3)
    harness.topics.create("t-c", 1)  # the client does not report it
    settle(harness, [one], rounds=100)
    assert names(harness) == {"t-a", "t-b"}
    settle(harness, [one], rounds=30)
    assert names(harness) == {"t-a", "t-b", "t-c"}


def test_after_a_restart_expressions_are_resolved_again(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    settle(harness, [one], rounds=3)
    harness.topics.create("t-c", 1)
    harness.restart()
    settle(harness, [one], rounds=3)
    assert names(harness) == {"t-a", "t-b", "t-c"}


def test_a_lost_resolution_is_repeated(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    harness.restart()
    one.beat()
    harness.advance(0)
    one.beat()
    assert names(harness) == {"t-a", "t-b"}


def test_an_expression_goes_with_its_last_member(harness: GroupShardHarness) -> None:
    one, two = (Consumer(harness, name, None, regex="t-.*") for name in ("one", "two"))
    one.join()
    harness.advance(0)
    two.join()
    one.leave()
    assert set(group_of(harness.shard).subscriptions.resolved) == {"t-.*"}
    two.leave()
    assert not group_of(harness.shard).subscriptions.resolved
    assert not group_of(harness.shard).subscriptions.names()


def test_a_member_may_use_both(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", ["xt-a"], regex="t-a")
    one.join()
    harness.advance(0)
    one.beat()
    assert names(harness) == {"xt-a", "t-a"}


def test_a_group_that_is_gone_resolves_nothing(harness: GroupShardHarness) -> None:
    one = Consumer(harness, "one", None, regex="t-.*")
    one.join()
    one.leave()
    harness.advance(0)
    harness.shard.commit(group_of(harness.shard).tombstones())
    assert not harness.shard.groups
    assert not len(harness.deadlines)


def test_many_expressions_are_resolved_in_several_steps(harness: GroupShardHarness) -> None:
    """A topic created in between is matched the next time; the expression of a member that leaves in between is
    dropped.
    """
    for number in range(2 * regex.NAMES_PER_STEP_MAX):
        harness.topics.create(f"x{number}", 1)
    members = [Consumer(harness, f"m{number}", None, regex=f"t-.*|{number}") for number in range(5)]
    for member in members:
        member.join()
    seen = []
    while (due := harness.deadlines.take_due()) is not None:
        due[1]()
        seen.append(len(group_of(harness.shard).subscriptions.resolved))
        if len(seen) == 2:
            made(harness, "t-new")
            members[0].leave()
    assert seen == [0] * 19 + [4], "each of five expressions is compiled, then matched in three steps"
    settle(harness, members[1:], rounds=4)
    found = {name for number in range(1, 5) for name in names(harness, f"m{number}")}
    assert found == {"t-a", "t-b", "t-new"}
    assert durable(harness.reloaded()) == durable(harness.shard)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a(", "missing closing )"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("\\1", "invalid escape sequence"),
        ("\\C", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("a{1001}", "invalid repeat count"),
    ],
)
def test_invalid_expressions(expression: str, reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check(expression)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert caught.value.message == (
        f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}."
    )


def test_an_expression_that_was_stored_elsewhere_and_is_none_here_matches_nothing() -> None:
    harness = GroupShardHarness(NO_INTERVAL)
    harness.topics.create("t-a", 2)
    one, two = Consumer(harness, "one", None, regex="t-.*"), Consumer(harness, "two", None, regex="t-a")
    one.join()
    two.join()
    group = group_of(harness.shard)
    member = group.members["one"]
    stored = records.member_metadata("g", member._replace(topic_regex="(?<=a)b"))
    harness.shard.commit([stored])
    harness.restart()
    settle(harness, [two], rounds=4)
    found = group_of(harness.shard).subscriptions.resolved
    topics = {expression: set(row.topics) for expression, row in found.items()}
    assert topics == {"(?<=a)b": set(), "t-a": {"t-a"}}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("\\pL" * 10_000, "it has 30000 bytes, the limit is 8192"),
        ("\\pL" * 51, "it has 51 Unicode classes and counted repetitions, the limit is 50"),
        ("(a{0,30})" * 51, "it has 51 Unicode classes and counted repetitions, the limit is 50"),
        ("(a{1000}){1}" * 25, "pattern too large - compile failed"),
    ],
)
def test_an_expression_that_would_hold_everybody_up_is_refused(
    harness: GroupShardHarness, expression: str, reason: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        Consumer(harness, "one", None, regex=expression).join()
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert str(caught.value.message).endswith(f"is not a valid regular expression: {reason}.")


def test_a_long_list_of_topics_is_none(harness: GroupShardHarness) -> None:
    names_ = [f"{number:03}-a-topic-of-a-team" for number in range(300)]
    harness.topics.create(names_[-1], 2)
    one = Consumer(harness, "one", None, regex="|".join(names_))
    one.join()
    harness.advance(0)
    one.beat()
    assert names(harness) == {names_[-1]}


@pytest.mark.slow
def test_many_large_expressions_are_compiled_and_matched_a_step_at_a_time(
    harness: GroupShardHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 150 members, more than RE2's cache holds: no step compiles two, or does more work than a step may."""
    compiled: list[RegularExpression] = []
    work = 0

    class Counted(RegularExpression):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            compiled.append(self)

        def matches(self, text: str) -> bool:
            nonlocal work
            work += self.work(text)
            return super().matches(text)

    monkeypatch.setattr(regex, "RegularExpression", Counted)
    for number in range(1_000):
        harness.topics.create(f"{number:04}-{'x' * 200}", 1)
    members = [
        Consumer(harness, f"m{number}", None, regex=f"{number}" + "[^\\pL]" * 10) for number in range(150)
    ]
    for member in members:
        member.join()
    assert not compiled
    steps = []
    while (due := harness.deadlines.take_due()) is not None:
        work, before = 0, len(compiled)
        due[1]()
        steps.append((len(compiled) - before, work))
    assert {count for count, _ in steps} == {0, 1}
    largest = max(one.work("x" * 205) for one in compiled)
    assert max(work for _, work in steps) < regex.WORK_PER_STEP_MAX + largest
    assert all(work == 0 for count, work in steps if count)
    assert len(compiled) == 150
    assert len(group_of(harness.shard).subscriptions.resolved) == 150
