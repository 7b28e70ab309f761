"""The classic group protocol on both targets, field by field: members that join, wait, assign, leave and restart, and
requests that are refused."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_members import (
    DELETE,
    DESCRIBE,
    HEARTBEAT,
    LEAVE,
    LIST,
    NO_RESPONSE_S,
    SYNC,
    Member,
    compare,
    observe_group,
)
from tests.common.definitions import versions_of

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", versions_of("JoinGroup"))
def test_the_only_member_in_every_version(pair: Pair, name: str, version: int) -> None:
    sync, heartbeat, leave = min(version, SYNC), min(version, HEARTBEAT), min(version, LEAVE)
    describe, list_, delete = min(version, DESCRIBE), min(version, LIST), min(version, DELETE)

    def scenario(session: Session) -> None:
        member = Member(session, name, "one", version=version)
        member.join_new()
        observe_group(session, name, "completing", describe)
        member.sync({member.member_id: b"all", "stranger": b"x"}, version=sync)
        member.heartbeat(version=heartbeat)
        observe_group(session, name, "stable", describe)
        rows = session.call_unobserved("ListGroups", list_)
        session.observe("listed", [row for row in rows["groups"] if row["group_id"] == name])
        session.call("DeleteGroups", delete, {"groups_names": [name]}, "not empty")
        member.leave(version=leave)
        member.leave("again", version=leave)
        member.heartbeat("gone", version=heartbeat)
        member.sync({}, "gone", version=sync)
        member.join("gone")
        observe_group(session, name, "empty", describe)
        response = session.call_unobserved("DeleteGroups", delete, {"groups_names": [name, "nobody", name]})
        response["results"].sort(key=lambda row: row["error_code"])
        session.observe("deleted", response)
        observe_group(session, name, "deleted", describe)
        member.heartbeat("deleted", version=heartbeat)
        member.leave("deleted", version=leave)

    compare(pair, name, scenario)


@pytest.mark.parametrize("version", [0, 3, 6, 7, 9])
def test_refused_joins(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        member = Member(session, name, "one", version=version)
        member.join("no group", group_id="")
        member.join("no group, known", group_id="", member_id="said")
        for timeout in (0, -1, 5_999, 1_800_001):
            member.join(f"session of {timeout}", session_timeout_ms=timeout, member_id="said")
        member.join("unknown", member_id="said")
        observe_group(session, name, "not there")
        # After a refused join the group is not described: whether Kafka has an empty group then depends on whether the
        # last write to that partition of __consumer_offsets is committed by then.
        member.join("no protocols", protocols=[])
        member.join("no type", protocol_type="")
        member.join("unknown member", member_id="said")
        member.join_new()
        stranger = Member(session, name, "stranger", version=version)
        stranger.join("another type", protocol_type="connect")
        stranger.join("another protocol", protocols=[{"name": "sticky", "metadata": b""}])
        stranger.join("no protocols", protocols=[])
        stranger.join("unknown member", member_id="said")
        if version >= 5:
            stranger.join("unknown member, static", member_id="said", group_instance_id="i")

    compare(pair, name, scenario)


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id(pair: Pair, name: str, client_id: str | None) -> None:
    def scenario(session: Session) -> None:
        member = Member(session, name, "one")
        member.connection = session.connect(client_id)
        member.join_new()
        observe_group(session, name, "completing")
        member.sync({member.member_id: b"all"})
        observe_group(session, name, "stable")
        member.heartbeat()
        member.leave()

    compare(pair, name, scenario)


def test_two_members(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        one, two = Member(session, name, "one"), Member(session, name, "two")
        one.found_group()
        one.commit("alone")
        two.join("new")
        two.send_join()
        one.heartbeat_while(0, "while two comes")
        observe_group(session, name, "preparing")
        one.commit("preparing")
        one.sync({}, "preparing")
        one.join("both are there")
        two.receive("both are there")
        one.commit("completing")
        two.heartbeat("completing")
        two.sync({}, "wrong generation", generation_id=0)
        two.sync({}, "wrong protocol", protocol_name="sticky")
        two.sync({}, "wrong type", protocol_type="connect")
        two.sync({}, "no protocol", protocol_name=None)
        two.sync({}, "no type", protocol_type=None)
        two.sync({}, "stranger", member_id="stranger")
        two.sync({}, "nobody", member_id="")
        two.sync({}, "static", group_instance_id="i")
        two.sync({}, "no group", group_id="")
        two.sync({}, "other group", group_id="nobody")
        two.join("once more, the same protocols")
        one.join("once more, the leader")
        two.send_sync()
        one.sync({one.member_id: b"1", two.member_id: b"2"}, "leader")
        two.receive("follower")
        two.sync({two.member_id: b"ignored"}, "once more")
        two.sync({}, "without a protocol", protocol_type=None, version=4)
        for member in (one, two):
            member.heartbeat("stable")
            member.commit("stable")
        two.heartbeat("wrong generation", generation_id=0)
        two.heartbeat("later generation", generation_id=9)
        two.heartbeat("stranger", member_id="stranger")
        two.heartbeat("static", group_instance_id="i")
        two.heartbeat("no group", group_id="")
        two.heartbeat("other group", group_id="nobody")
        two.commit("wrong generation", generation_id_or_member_epoch=0)
        two.commit("stranger", member_id="stranger")
        two.commit("nobody", member_id="", generation_id_or_member_epoch=-1)
        two.commit("static", group_instance_id="i")
        two.join("follower, nothing new")
        observe_group(session, name, "stable")
        one.send_join()
        two.heartbeat_while(0, "while the leader comes")
        two.join("the leader asked for it")
        one.receive("the leader asked for it")
        one.leave()
        two.heartbeat("one has left")
        two.join("alone")
        two.sync({two.member_id: b"2"})

    compare(pair, name, scenario)


def test_members_vote_for_a_protocol(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        votes = [
            {"range": b"1", "sticky": b"1", "only": b""},
            {"sticky": b"2", "range": b"2"},
            {"own": b"", "sticky": b"3", "range": b"3"},
        ]
        members = [
            Member(session, name, f"m{at}", protocols=protocols, protocol_type="connect")
            for at, protocols in enumerate(votes)
        ]
        members[0].found_group()
        for member in members[1:]:
            member.join("new")
            member.send_join()
        members[0].heartbeat_while(0, "while they come")
        members[0].join()
        for member in members[1:]:
            member.receive()
        observe_group(session, name)

    compare(pair, name, scenario)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("leads", [False, True])
def test_a_static_member_restarts(pair: Pair, name: str, version: int, leads: bool) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        one = Member(session, name, "one", version=version, instance="i1")
        two = Member(session, name, "two", version=version, instance="i2")
        one.found_group()
        two.send_join()
        one.heartbeat_while(0)
        one.join()
        two.receive()
        two.send_sync()
        one.sync({one.member_id: b"1", two.member_id: b"2"})
        two.receive()
        old, other = (one, two) if leads else (two, one)
        new = Member(session, name, "new", version=version, instance=old.instance, protocols=old.protocols)
        new.join("a restart")
        new.sync({}, "a restart")
        new.heartbeat("a restart")
        other.heartbeat("a restart of the other")
        observe_group(session, name, "after a restart")
        old.heartbeat("fenced")
        old.sync({}, "fenced")
        old.join("fenced")
        old.leave("fenced")
        old.commit("fenced")
        changed = Member(session, name, "changed", version=version, instance=old.instance)
        changed.join("new metadata, same protocol")
        other.heartbeat("new metadata, same protocol")
        changed.sync({}, "new metadata, same protocol")
        changed.protocols = {"sticky": b"s"}
        changed.member_id = ""
        changed.join("a protocol that the other does not have")
        observe_group(session, name, "in the end")

    compare(pair, name, scenario)


def test_a_static_member_is_fenced_while_it_waits(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        one = Member(session, name, "one", instance="i1")
        one.found_group()
        two = Member(session, name, "two", instance="i2")
        two.send_join()
        one.heartbeat_while(0)
        three = Member(session, name, "three", instance="i2")
        three.send_join()
        two.receive("fenced")
        one.join()
        three.receive()
        three.send_sync()
        one.heartbeat_while(27, "while three waits")
        four = Member(session, name, "four", instance="i2")
        four.send_join()
        three.receive("fenced while it waits for its assignment, or sent back")
        one.heartbeat_while(0, "while four comes")
        one.join()
        four.receive()

    compare(pair, name, scenario)


def test_responses_that_kafka_never_sends(pair: Pair, name: str) -> None:
    """A member repeats a delayed request, or leaves: Kafka never responds to the earlier request."""

    def earlier_response(member: Member, note: str) -> None:
        trace = len(member.session.observations)
        member.connection.socket.settimeout(NO_RESPONSE_S)
        try:
            code = member.receive(note)["error_code"]
        except TimeoutError:
            code = "no response"
        del member.session.observations[trace:]
        member.session.observe(note, code)

    def scenario(session: Session) -> None:
        one, two = Member(session, name, "one"), Member(session, name, "two")
        one.found_group()
        two.join("new")
        two.send_join()
        one.heartbeat_while(0)
        again = Member(session, name, "two")
        again.member_id = two.member_id
        again.send_join()
        earlier_response(two, "a JoinGroup before the last")
        one.join()
        again.receive("the last JoinGroup")
        again.send_sync()
        leaver = Member(session, name, "leaver")
        leaver.member_id = again.member_id
        leaver.heartbeat()  # Kafka handles a group's requests in order: the SyncGroup is delayed by now
        leaver.leave()
        earlier_response(again, "the SyncGroup of the leaver")
        one.heartbeat("after it has left")

    compare(
        pair,
        name,
        scenario,
        "^a JoinGroup before the last: .: 'no response' != 27$",
        "^the SyncGroup of the leaver: .: 'no response' != 25$",
    )


def test_late_members_are_removed(pair: Pair, name: str) -> None:
    """The rebalance timeout removes a member that does not join, and one that does not sync."""

    def scenario(session: Session) -> None:
        one = Member(session, name, "one", rebalance_ms=1_000)
        one.found_group()
        two = Member(session, name, "two", rebalance_ms=1_000)
        two.join("new")
        two.join("one does not come")
        one.heartbeat("dropped")
        one.join("dropped")
        one.member_id = ""
        one.join("new")
        one.send_join()
        two.heartbeat_while(0)
        two.join()
        one.receive()
        two.sync({two.member_id: b"2"}, "one does not sync")
        two.heartbeat_while(0, "until one is dropped")
        one.heartbeat("dropped")
        observe_group(session, name)

    compare(pair, name, scenario)


def test_an_assignment_too_large_for_the_log(pair: Pair, name: str) -> None:
    """It exceeds the largest batch of the offsets topic: every member gets an error, and joins again."""

    def scenario(session: Session) -> None:
        one, two = Member(session, name, "one"), Member(session, name, "two")
        one.found_group()
        two.join("new")
        two.send_join()
        one.heartbeat_while(0)
        one.join()
        two.receive()
        two.send_sync()
        one.sync({one.member_id: bytes(1_048_588), two.member_id: b"2"}, "too large")
        two.receive("the leader's were too large")
        observe_group(session, name, "no assignments")
        one.heartbeat("join again")
        one.send_join()
        two.join("again")
        one.receive("again")
        two.send_sync()
        one.sync({one.member_id: b"1", two.member_id: bytes(1_048_000)}, "just small enough")
        two.receive("just small enough")

    compare(pair, name, scenario)
