"""Subscriptions by regular expression: when they are resolved, the effect on the group, invalid expressions."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.consumer import regex
from oncelog.coordinator.groups.consumer.expressions import check, matching
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.coordinator.groups.consumer.consumers import Consumer, durable, group_of, settle
from tests.coordinator.groups.lab import Lab

NO_INTERVAL = {"group.consumer.assignment.interval.ms": "0"}
MIN_REFRESH_MS = 10_000


@pytest.fixture
def lab() -> Lab:
    lab = Lab(NO_INTERVAL)
    for name in ("t-a", "t-b", "xt-a"):
        lab.topics.create(name, 2)
    return lab


def made(lab: Lab, name: str) -> None:
    lab.topics.create(name, 2)
    group_of(lab.shard).on_topics_changed(lab.shard, [name])


def names(lab: Lab, member_id: str = "one") -> set[str]:
    found = set()
    for topic_id in group_of(lab.shard).targets.get(member_id, {}):
        topic = lab.topics.by_id(topic_id)
        assert topic is not None
        found.add(topic.name)
    return found


def test_the_first_answer_has_nothing_and_the_next_has_what_matches(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    assert (one.join().member_epoch, one.owned) == (1, set())
    lab.advance(0)
    assert group_of(lab.shard).epoch == 2
    one.beat()
    assert names(lab) == {"t-a", "t-b"}
    assert durable(lab.reloaded()) == durable(lab.shard)


def test_new_topics_are_found_after_ten_seconds(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    lab.advance(0)
    one.beat()
    made(lab, "t-c")
    one.beat()
    lab.advance(MIN_REFRESH_MS)
    one.beat()
    lab.advance(0)
    one.beat()
    assert names(lab) == {"t-a", "t-b"}, "not yet"
    lab.advance(1)
    one.beat()
    lab.advance(0)
    one.beat()
    assert names(lab) == {"t-a", "t-b", "t-c"}


def test_topics_that_match_nothing_cost_no_rebalance(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    settle(lab, [one], rounds=3)
    epoch = group_of(lab.shard).epoch
    made(lab, "other")
    settle(lab, [one], rounds=5)
    assert group_of(lab.shard).epoch == epoch


def test_all_expressions_are_looked_at_again_after_the_refresh_interval(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    settle(lab, [one], rounds=3)
    lab.topics.create("t-c", 1)  # the client does not report it
    settle(lab, [one], rounds=100)
    assert names(lab) == {"t-a", "t-b"}
    settle(lab, [one], rounds=30)
    assert names(lab) == {"t-a", "t-b", "t-c"}


def test_after_a_restart_expressions_are_resolved_again(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    settle(lab, [one], rounds=3)
    lab.topics.create("t-c", 1)
    lab.restart()
    settle(lab, [one], rounds=3)
    assert names(lab) == {"t-a", "t-b", "t-c"}


def test_a_resolution_that_was_lost_is_made_up_for(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    lab.restart()
    one.beat()
    lab.advance(0)
    one.beat()
    assert names(lab) == {"t-a", "t-b"}


def test_an_expression_goes_with_its_last_member(lab: Lab) -> None:
    one, two = (Consumer(lab, name, None, regex="t-.*") for name in ("one", "two"))
    one.join()
    lab.advance(0)
    two.join()
    one.leave()
    assert set(group_of(lab.shard).subscriptions.resolved) == {"t-.*"}
    two.leave()
    assert not group_of(lab.shard).subscriptions.resolved
    assert not group_of(lab.shard).subscriptions.topics


def test_a_member_may_use_both(lab: Lab) -> None:
    one = Consumer(lab, "one", ["xt-a"], regex="t-a")
    one.join()
    lab.advance(0)
    one.beat()
    assert names(lab) == {"xt-a", "t-a"}


def test_a_group_that_is_gone_resolves_nothing(lab: Lab) -> None:
    one = Consumer(lab, "one", None, regex="t-.*")
    one.join()
    one.leave()
    lab.advance(0)
    lab.shard.commit(group_of(lab.shard).tombstones())
    assert not lab.shard.groups
    assert not len(lab.deadlines)


def test_many_expressions_are_resolved_bit_by_bit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic created in between is matched the next time; the expression of a member that leaves in between is
    dropped.
    """
    monkeypatch.setattr(regex, "NAMES_PER_STEP_MAX", 1)
    members = [Consumer(lab, f"m{number}", None, regex=f"t-.*|{number}") for number in range(5)]
    for member in members:
        member.join()
    seen = []
    while (due := lab.deadlines.take_due()) is not None:
        due[1]()
        seen.append(len(group_of(lab.shard).subscriptions.resolved))
        if len(seen) == 2:
            made(lab, "t-new")
            members[0].leave()
    assert seen == [0] * 14 + [4], "a name at a time: three names for each of five expressions"
    settle(lab, members[1:], rounds=4)
    found = {name for number in range(1, 5) for name in names(lab, f"m{number}")}
    assert found == {"t-a", "t-b", "t-new"}
    assert durable(lab.reloaded()) == durable(lab.shard)


def test_whole_names_match() -> None:
    names = ["t", "ta", "at", "\u00e9"]
    for expression, found in (("t", {"t"}), ("t.*", {"t", "ta"}), ("", set()), ("(?i)T", {"t"})):
        assert matching(expression, names) == found
    for expression in (".", "\\pL", "\u00e9", "[\u00e8-\u00ea]"):
        assert "\u00e9" in matching(expression, names)


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
def test_what_is_no_expression(expression: str, reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check(expression)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert caught.value.message == (
        f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}."
    )


def test_a_slow_expression_is_not_slow() -> None:
    """An expression for which a backtracking matcher takes exponential time."""
    check("(a*)*(a*)*b")
    assert matching("(a*)*(a*)*b", ["a" * 200]) == set()
