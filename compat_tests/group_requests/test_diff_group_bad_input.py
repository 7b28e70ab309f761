"""Invalid, repeated and overlong input from members and administrators of groups, on both targets."""

from collections.abc import Callable, Iterator

import pytest

from compat_tests.brokers import SharedBrokers
from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_members import LEAVE, Member
from compat_tests.group_requests.committed_offsets import commit, commit_body, fetch, wait_for_coordinator
from tests.common.definitions import Fields

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow

STRING_MAX = 32_767
"""The largest size of a string in a request."""
LONG_MAX = 2**63 - 1


@pytest.fixture
def oncelog(brokers: SharedBrokers) -> Iterator[Session]:
    session = Session(brokers["oncelog"].bootstrap)
    yield session
    session.end()


def compare(pair: Pair, group: str, scenario: Callable[[Session], None], *known: str) -> None:
    """`pair.compare` with a topic named like the group, once the group's coordinator is loaded."""

    def with_topic(session: Session) -> None:
        session.topic(group, 3)
        wait_for_coordinator(session, group)
        scenario(session)

    pair.compare(with_topic, known=known)


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize("length", [STRING_MAX - 37, STRING_MAX])
def test_a_client_id_too_long_for_a_member_id(pair: Pair, name: str, version: int, length: int) -> None:
    """A member id is the client id and 37 characters more. (Before version 4 Kafka never responds.)"""

    def scenario(session: Session) -> None:
        member = Member(session, name, "x" * length, version=version)
        member.send_join()
        response = member.connection.receive("JoinGroup", version, 1)
        assert isinstance(response, dict), response
        response["member_id"] = len(response["member_id"])
        session.observe("joined", response)

    compare(pair, name, scenario)


def test_the_longest_names(pair: Pair, name: str) -> None:
    group = name.ljust(STRING_MAX, "g")

    def scenario(session: Session) -> None:
        wait_for_coordinator(session, group)
        session.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        commit(session, 8, group, {name: {0: 7}})
        fetch(session, 9, (group, None))
        member = Member(session, group, "one")
        member.found_group()
        member.heartbeat()
        member.leave()
        session.call("DescribeGroups", 5, {"groups": [group]})
        session.call("DeleteGroups", 2, {"groups_names": [group]})
        body: Fields = {
            "group_id": name, "member_id": "m" * STRING_MAX, "member_epoch": 0, "instance_id": "i" * STRING_MAX,
            "rack_id": "r" * STRING_MAX, "rebalance_timeout_ms": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t" * STRING_MAX, name],
        }  # fmt: skip
        session.call("ConsumerGroupHeartbeat", 1, body)
        session.call("ConsumerGroupDescribe", 1, {"group_ids": [name]})

    compare(pair, name, scenario)


def test_a_commit_larger_than_a_batch(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        commit(session, 9, name, {name: {0: 5}})
        body = commit_body(9, name, {name: {0: 6}})
        body["topics"][0]["partitions"] *= 25_000
        response = session.call_unobserved("OffsetCommit", 9, body)
        rows = response["topics"][0]["partitions"]
        session.observe("refused", (len(rows), {row["error_code"] for row in rows}))
        fetch(session, 9, (name, {name: [0]}), note="nothing is stored")

    compare(pair, name, scenario)


def test_repeated_rows(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        body = commit_body(9, name, {name: {0: 5, 1: 6}})
        body["topics"] *= 2
        body["topics"].append(commit_body(9, name, {name: {0: 9, -1: 1, 3: 1}})["topics"][0])
        session.call("OffsetCommit", 9, body)
        fetch(session, 9, (name, None), note="the last one counts")
        for version in (7, 8, 9):
            partitions: tuple[str, dict[str | bytes, list[int]] | None] = (name, {name: [0, 0, -1, 7, 1]})
            fetch(session, version, *([partitions] if version < 8 else [partitions, partitions, (name, {})]))
        rows = [{"partition_index": index} for index in (1, 1, -1, 8)]
        topics = [{"name": name, "partitions": rows}] * 2
        session.call("OffsetDelete", 0, {"group_id": name, "topics": topics})
        fetch(session, 9, (name, None))
        # Kafka's order of the groups is that of a hash table of the coordinator's partitions.
        response = session.call_unobserved(
            "DescribeGroups", 6, {"groups": [name, name, "nobody-here", "nobody-here"]}
        )
        response["groups"].sort(key=lambda group: group["group_id"] == name)
        session.observe("DescribeGroups v6", response)
        session.call("ConsumerGroupDescribe", 1, {"group_ids": [name, name]})
        session.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [name, name]})
        session.call("DeleteGroups", 2, {"groups_names": ["nobody-here", "nobody-here"]})

    compare(pair, name, scenario)


def test_members_removed_twice(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        one = Member(session, name, "one")
        one.found_group()
        rows = [{"member_id": one.member_id, "group_instance_id": None}] * 2
        session.call("LeaveGroup", LEAVE, {"group_id": name, "members": rows})
        session.call("LeaveGroup", LEAVE, {"group_id": name, "members": []})
        session.call("LeaveGroup", LEAVE, {"group_id": f"{name}-nobody", "members": []})
        session.call("LeaveGroup", LEAVE, {"group_id": f"{name}-nobody", "members": rows})

    compare(pair, name, scenario)


@pytest.mark.parametrize("retention_ms", [-2, 0, 1, LONG_MAX, -LONG_MAX - 1])
def test_retention_times_of_old_commits(pair: Pair, name: str, retention_ms: int) -> None:
    def scenario(session: Session) -> None:
        for version in (2, 4):
            commit(session, version, name, {name: {0: 5}}, retention_time_ms=retention_ms)
            fetch(session, 8, (name, None))

    compare(pair, name, scenario)


def test_extreme_offsets(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        offsets = {0: (-1, -1, ""), 1: (-5, -7, "odd"), 2: (LONG_MAX, 2**31 - 1, "most")}
        commit(session, 9, name, {name: offsets})
        fetch(session, 9, (name, None))
        fetch(session, 9, (name, {name: [0, 1, 2]}))

    compare(pair, name, scenario)


def test_the_longest_rebalance_timeout(pair: Pair, name: str) -> None:
    compare(pair, name, lambda session: Member(session, name, "one", rebalance_ms=2**31 - 1).found_group())


def test_repeated_and_invalid_consumer_heartbeats(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        first: Fields = {
            "group_id": name, "member_id": "one", "member_epoch": 0, "rebalance_timeout_ms": 30_000,
            "topic_partitions": [], "subscribed_topic_names": [name, name, "no-such-topic", ""],
        }  # fmt: skip
        response = session.call("ConsumerGroupHeartbeat", 1, first)
        topic_id = (
            response["assignment"]["topic_partitions"][0]["topic_id"] if response["assignment"] else bytes(16)
        )
        heartbeat: Fields = {"group_id": name, "member_id": "one", "member_epoch": response["member_epoch"]}
        for owned in (
            [{"topic_id": topic_id, "partitions": [0, 0, 1, 2]}] * 2,
            [{"topic_id": topic_id, "partitions": [-1, 99]}],
            [{"topic_id": bytes(range(16)), "partitions": [0]}],
            [{"topic_id": bytes(16), "partitions": []}],
        ):
            session.call("ConsumerGroupHeartbeat", 1, heartbeat | {"topic_partitions": owned})
        for timeout_ms in (0, -5, 2**31 - 1):
            session.call("ConsumerGroupHeartbeat", 1, heartbeat | {"rebalance_timeout_ms": timeout_ms})
        session.call("ConsumerGroupHeartbeat", 1, heartbeat | {"subscribed_topic_names": []})
        session.call("ConsumerGroupHeartbeat", 1, heartbeat | {"member_epoch": 2**31 - 1})
        session.call("ConsumerGroupHeartbeat", 1, heartbeat | {"member_epoch": -3})

    compare(pair, name, scenario)


def test_a_subscription_larger_than_a_batch(pair: Pair, name: str) -> None:
    """Nothing of the member is stored, and the group does not change."""

    def scenario(session: Session) -> None:
        body: Fields = {
            "group_id": name, "member_id": "one", "member_epoch": 0, "rebalance_timeout_ms": 30_000,
            "topic_partitions": [], "subscribed_topic_names": [f"{index:0120}" for index in range(9_000)],
        }  # fmt: skip
        session.call("ConsumerGroupHeartbeat", 1, body)
        session.call("ConsumerGroupDescribe", 1, {"group_ids": [name]})
        session.call("ConsumerGroupHeartbeat", 1, body | {"subscribed_topic_names": [name]})

    compare(pair, name, scenario)


@pytest.mark.parametrize("instance", ["", ".", "..", "a b", "\u00fc", "x" * 249, "x" * 250])
def test_instance_ids(pair: Pair, name: str, instance: str) -> None:
    def scenario(session: Session) -> None:
        member = Member(session, name, "one", instance=instance)
        member.join_new()
        member.sync({member.member_id: b"all"})
        member.heartbeat()
        member.commit("as a member")
        member.leave()
        body: Fields = {
            "group_id": f"{name}-consumers", "member_id": "one", "member_epoch": 0, "instance_id": instance,
            "rebalance_timeout_ms": 30_000, "topic_partitions": [], "subscribed_topic_names": [name],
        }  # fmt: skip
        session.call("ConsumerGroupHeartbeat", 1, body)
        session.call("ConsumerGroupHeartbeat", 1, body | {"member_epoch": -2})

    compare(pair, name, scenario)


def test_unknown_members_generations_and_instances(pair: Pair, name: str) -> None:

    def scenario(session: Session) -> None:
        one = Member(session, name, "one", instance="i1")
        one.found_group()
        for changes in (
            {"member_id": ""},
            {"member_id": "nobody"},
            {"member_id": "", "generation_id_or_member_epoch": -1},
            {"member_id": "", "generation_id_or_member_epoch": -1, "group_instance_id": None},
            {"group_instance_id": "i2"},
            {"group_instance_id": None},
            {"generation_id_or_member_epoch": 7},
            {"generation_id_or_member_epoch": -7},
        ):
            one.commit(str(changes), **changes)
        for kind in (one.heartbeat, lambda note, **fields: one.sync(None, note, **fields)):
            for changes in (
                {"member_id": ""}, {"generation_id": -1}, {"group_instance_id": "i2"}, {"group_instance_id": None},
                {"group_id": ""}, {"group_id": "nobody"},
            ):  # fmt: skip
                kind(str(changes), **changes)
        one.heartbeat("still there")
        one.leave()

    compare(pair, name, scenario)


def test_a_protocol_named_twice_does_not_block_the_group(oncelog: Session, name: str) -> None:
    """In Kafka such a group never gets a generation."""
    wait_for_coordinator(oncelog, name)
    member = Member(oncelog, name, "one", protocols={"range": b"1"})
    twice = [{"name": "range", "metadata": b"1"}] * 2
    member.join("new", protocols=twice)
    response = member.join("again", protocols=twice)
    assert (response["error_code"], response["protocol_name"]) == (0, "range")


@pytest.mark.parametrize("length", [STRING_MAX - 36, STRING_MAX])
def test_an_overlong_client_id_before_version_4(oncelog: Session, name: str, length: int) -> None:
    """oncelog refuses it; Kafka never responds."""
    wait_for_coordinator(oncelog, name)
    member = Member(oncelog, name, "x" * length, version=3)
    assert member.join("new")["error_code"] == -1
