"""Rules as data: what they mean, and what is said of those that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.faults.fault_rules import RuleTimeoutError, UnknownRuleError
from oncelog.broker.faults.rule import COUNTS, parse_rule
from oncelog.broker.faults.words import WORDS, RuleError
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.faults.rules import ruled
from tests.harness.requests import create_topic
from tests.harness.simulation import simulated

OK = {"on": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}

WRONG: list[tuple[Any, str | None, str]] = [
    ("on", None, "a rule is a table of words, not 'on'"),
    ({"on": "EndTx", "hold": True}, "on", "unknown API 'EndTx': did you mean EndTxn?"),
    ({"on": "end_txn", "hold": True}, "on", "unknown API 'end_txn': did you mean EndTxn?"),
    ({"on": ["Fetch", "Zzz"], "hold": True}, "on", "unknown API 'Zzz'"),
    ({"on": [], "hold": True}, "on", "on is an empty list"),
    ({"on": 26, "hold": True}, "on", "on is the name of an API, such as EndTxn, or a list of such, not 26"),
    ({"on": "*", "eror": "X"}, "eror", "unknown word 'eror': did you mean error?"),
    (
        {"on": "*", "error": "NOT_LEADER"},
        "error",
        "unknown error 'NOT_LEADER': did you mean NOT_LEADER_OR_FOLLOWER?",
    ),
    ({"on": "*", "error": "NONE"}, "error", "unknown error 'NONE'"),
    (
        {"on": "*", "error": 6},
        "error",
        "error is the name of an error, such as NOT_LEADER_OR_FOLLOWER, not 6",
    ),
    ({"hold": True}, None, 'the rule does not say "on" which API: a name, a list of names, or "*"'),
    (OK | {"hold": True}, "hold", "error and hold exclude each other: make two rules"),
    (OK | {"nth": 1, "every": 2}, "every", "nth and every exclude each other: make two rules"),
    (OK | {"nth": 0}, "nth", "nth is a number from 1 on, not 0"),
    (OK | {"first": True}, "first", "first is a number from 1 on, not True"),
    (OK | {"with_probability": 1.5}, "with_probability", "with_probability is a number from 0 to 1, not 1.5"),
    (OK | {"seed": 1}, "seed", "seed belongs to with_probability"),
    (OK | {"with_probability": 1, "seed": "x"}, "seed", "seed is a whole number, not 'x'"),
    (OK | {"always": False}, "always", "always is true, or not there; not False"),
    (OK | {"topic": ""}, "topic", "topic is a text, or a list of such, not ''"),
    (OK | {"topic_exists": False}, "topic_exists", "topic_exists belongs to topic"),
    (OK | {"partition": -1}, "partition", "partition is a number from 0 on"),
    (OK | {"partition": "0"}, "partition", "partition is a number, or a list of such, not '0'"),
    (OK | {"version": "9-"}, "version", 'version is a number, or versions as in "0-3" and "4+", not \'9-\''),
    (OK | {"version": "3-2"}, "version", "version '3-2' means no version"),
    (OK | {"version": 99}, "version", "Produce is served in versions 3 to 13"),
    (
        OK | {"group": "g"},
        "group",
        "Produce names no group: filter it by topic, partition, transactional_id, client_id, version, listener",
    ),
    (
        {"on": "ListGroups", "topic": "t", "hold": True},
        "topic",
        "ListGroups names no topic: filter it by client_id, version, listener",
    ),
    ({"on": "*", "delay_ms": "1s"}, "delay_ms", "delay_ms is a number of milliseconds, not '1s'"),
    (
        {"on": "*", "delay_ms": 0.5},
        "delay_ms",
        "delay_ms is a number of milliseconds, and 0.5 is less than one: 0.5 s are 500",
    ),
    (
        {"on": "Produce", "throttle_ms": 0.25},
        "throttle_ms",
        "throttle_ms is a number of milliseconds, and 0.25 is less than one: 0.25 s are 250",
    ),
    (
        {"on": "*", "drop_response": "silently"},
        "drop_response",
        'drop_response is "close" or "hang" (what becomes of the connection), not \'silently\'',
    ),
    ({"on": "*", "close": 1}, "close", "close is true, or not there; not 1"),
    (
        {"on": "Fetch", "duplicate": True},
        "duplicate",
        "duplicate is only for Produce, EndTxn, TxnOffsetCommit, not for Fetch",
    ),
    (
        {"on": "Produce", "truncate": True},
        "truncate",
        "truncate is only for Fetch, ShareFetch, not for Produce",
    ),
    (
        {"on": "WriteTxnMarkers", "throttle_ms": 5},
        "throttle_ms",
        "WriteTxnMarkers responses have no throttle_time_ms: use delay_ms",
    ),
    (
        {"on": "DescribeLogDirs", "version": "1-2", "error": "UNKNOWN_SERVER_ERROR"},
        "error",
        "DescribeLogDirs responses of these versions have no place for an error",
    ),
    ({"pause": True}, "pause", "pause needs client_id: whom to pause"),
    (
        {"pause": True, "client_id": "a", "nth": 2},
        "nth",
        "pause holds every request; it cannot be combined with nth",
    ),
    ({"pause": True, "client_id": "a", "on": "Fetch"}, "on", "pause cannot be combined with on"),
    (
        {"refuse_connections": True, "client_id": "a"},
        "client_id",
        "refuse_connections cannot be combined with client_id",
    ),
]


@pytest.mark.parametrize(("data", "word", "message"), WRONG, ids=[message[:50] for _, _, message in WRONG])
def test_what_is_wrong_is_named(data: Any, word: str | None, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rule(data)
    assert (str(caught.value), caught.value.word) == (message, word)


def test_a_rule_without_action_lists_them() -> None:
    with pytest.raises(RuleError, match="says nothing to do: one of error, delay_ms, drop_request"):
        parse_rule({"on": "Produce"})


@pytest.mark.parametrize("which", COUNTS)
@simulated
async def test_which_of_the_requests(which: str) -> None:
    fires = {
        "nth": [0, 1, 0, 0, 0, 0],
        "first": [1, 1, 0, 0, 0, 0],
        "every": [0, 1, 0, 1, 0, 1],
        "always": [1, 1, 1, 1, 1, 1],
    }
    async with ruled() as it:
        client = it.broker.connect()
        value = {"always": True, "with_probability": 0.5}.get(which, 2)
        rule = it.add(on="ListGroups", error="COORDINATOR_NOT_AVAILABLE", **{which: value})
        codes = []
        for _ in range(6):
            codes.append((await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code)
        refused = [int(code != 0) for code in codes]
        if which == "with_probability":
            assert 0 < sum(refused) < 6
            again = it.add(
                on="ListGroups",
                error="COORDINATOR_NOT_AVAILABLE",
                with_probability=0.5,
                seed=it.state(rule).seed,
            )
            it.rules.remove(rule)
            codes = []
            for _ in range(6):
                codes.append((await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code)
            assert [int(code != 0) for code in codes] == refused
            rule = again
        else:
            assert refused == fires[which]
        assert it.counts(rule) == (6, sum(refused))


@simulated
async def test_a_rule_counts_what_arrives_also_where_another_rule_acts_first() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        it.add(on="ListGroups", error="COORDINATOR_NOT_AVAILABLE", nth=1)
        second = it.add(on="ListGroups", error="NOT_COORDINATOR", nth=2)
        codes = [(await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code for _ in range(3)]
        assert codes == [15, 16, 0]
        assert it.counts(second) == (3, 1)


@simulated
async def test_rules_stand_in_the_way_only_while_there_are_any() -> None:
    async with ruled() as it:
        dispatcher = it.broker.node.dispatcher
        first = it.add(on="Produce", hold=True)
        second = it.add(on="Produce", hold=True)
        assert dispatcher.interception.interceptors
        it.rules.remove(first)
        assert dispatcher.interception.interceptors
        it.rules.remove(second)
        assert not dispatcher.interception.interceptors
        refusing = it.add(refuse_connections=True)
        assert not dispatcher.interception.interceptors
        assert dispatcher.interception.accepts is not None
        it.rules.clear()
        assert dispatcher.interception.accepts is None
        with pytest.raises(UnknownRuleError, match=f"there is no rule {refusing}"):
            it.rules.release(refusing)


@simulated
async def test_rules_outlive_their_node() -> None:
    async with ruled() as it:
        rule = it.add(on="ListGroups", error="COORDINATOR_NOT_AVAILABLE", nth=2)
        client = it.broker.connect()
        assert (await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code == 0
        await it.broker.stop()
        it.rules.detach()
        later = it.add(on="ListGroups", delay_ms=1)
        await it.broker.start()
        it.rules.attach(it.broker.node)
        client = it.broker.connect()
        assert (await client.call(ListGroupsRequest(), 2, ListGroupsResponse)).error_code == 15
        assert (it.counts(rule), it.counts(later)) == ((2, 1), (1, 1))


@simulated
async def test_a_wait_that_is_in_vain_says_what_was_seen() -> None:
    async with ruled() as it:
        rule = it.add(on="ListGroups", error="COORDINATOR_NOT_AVAILABLE", nth=3)
        client = it.broker.connect()
        await client.call(ListGroupsRequest(), 2, ListGroupsResponse)
        with pytest.raises(RuleTimeoutError) as caught:
            await it.rules.wait_fired(rule, timeout_s=5)
        assert str(caught.value) == (
            "after 5 s, fired less than 1 times: rule 1 (on: ListGroups, error: COORDINATOR_NOT_AVAILABLE, nth: 3): "
            "matched 1, fired 0"
        )
        for _ in range(2):
            await client.call(ListGroupsRequest(), 2, ListGroupsResponse)
        assert (await it.rules.wait_fired(rule)).fired == 1


@simulated
async def test_a_topic_that_does_not_exist_is_refused_unless_the_rule_says_so() -> None:
    async with ruled() as it:
        await create_topic(it.broker.connect(), "orders")
        rule = {"on": "Produce", "topic": "order", "hold": True}
        with pytest.raises(RuleError) as caught:
            it.rules.add(rule, topics_must_exist=True)
        assert str(caught.value) == (
            "topic 'order' does not exist: did you mean orders?; if it is created later, say \"topic_exists\": false"
        )
        assert it.rules.states == []
        it.rules.add(rule | {"topic_exists": False}, topics_must_exist=True)
        it.rules.add(rule | {"topic": "orders"}, topics_must_exist=True)
        it.rules.add({"on": "CreateTopics", "topic": "new", "hold": True}, topics_must_exist=True)


@simulated
async def test_a_partition_that_does_not_exist_is_refused_unless_the_rule_says_so() -> None:
    async with ruled() as it:
        client = it.broker.connect()
        await create_topic(client, "one")
        await create_topic(client, "three", partitions=3)
        rule = {"on": "Produce", "topic": "one", "partition": 1, "hold": True}
        with pytest.raises(RuleError) as caught:
            it.rules.add(rule, topics_must_exist=True)
        assert caught.value.word == "partition"
        assert str(caught.value) == (
            "partition 1 does not exist (partitions are counted from 0: 'one' has 1); if it is created later, say "
            '"topic_exists": false'
        )
        with pytest.raises(RuleError, match=r"partition 3 does not exist .*'one' has 1, 'three' has 3"):
            it.rules.add(rule | {"topic": ["one", "three"], "partition": [0, 3]}, topics_must_exist=True)
        assert it.rules.states == []
        it.rules.add(rule | {"topic_exists": False}, topics_must_exist=True)
        it.rules.add(rule | {"topic": ["one", "three"], "partition": 2}, topics_must_exist=True)
        it.rules.add({"on": "Produce", "partition": 7, "hold": True}, topics_must_exist=True)
        it.rules.add(
            {"on": "Metadata", "topic": "new", "error": "LEADER_NOT_AVAILABLE"}, topics_must_exist=True
        )


def test_every_word_is_described() -> None:
    assert all(word.text.endswith(".") for word in WORDS.values())
