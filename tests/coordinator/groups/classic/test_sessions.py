"""Heartbeats, session timeouts, removal of members, LeaveGroup."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.classic.timers import on_offset_commit
from oncelog.wire.errors import ErrorCode
from tests.harness.classic_clients import (
    DELAY_MS,
    SESSION_MS,
    ClassicClient,
    given,
    leave_all,
    settle,
    stable,
)
from tests.harness.group_shard import GroupShardHarness


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "nobody's"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0, "member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat(change: dict[str, object], code: ErrorCode) -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    for name, value in change.items():
        setattr(client, name, value)
    assert client.heartbeat() == code


def test_a_session_expires_without_heartbeats() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness, session_ms=2 * SESSION_MS)]
    stable(harness, clients)
    harness.advance(SESSION_MS - 1)
    assert clients[0].heartbeat() == ErrorCode.NONE
    harness.advance(SESSION_MS - 1)
    assert clients[0].heartbeat() == ErrorCode.NONE
    harness.advance(2)
    assert clients[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_whose_sessions_all_expire_is_empty() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    leader = stable(harness, clients)
    harness.advance(SESSION_MS)
    group = leader.group
    assert group.is_empty()
    assert (group.generation_id, group.leader_id, group.protocol_name) == (2, None, None)
    assert group.protocol_type == "consumer"
    assert group.stored is not None
    assert (group.stored.generation, group.stored.leader, group.stored.protocol) == (2, None, None)
    assert group.stored.protocol_type == "consumer"
    assert not len(harness.deadlines)


def test_an_empty_group_goes_on_with_the_next_generation() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    client.leave()
    again = ClassicClient(harness, protocol_type="connect", protocols={"x": b""})
    again.enter()
    harness.advance(DELAY_MS)
    assert given(again.joined).generation_id == 3


def test_a_waiting_member_does_not_expire() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, session_ms=600_000), ClassicClient(harness)]
    stable(harness, clients)
    clients[1].protocols = {"range": b"news"}
    assert clients[1].join() is None
    harness.advance(SESSION_MS * 2)
    assert clients[1].joined is not None
    assert clients[1].join_response() is None
    clients[0].join()
    response = clients[1].join_response()
    assert response is not None
    assert response.error_code == 0
    harness.advance(SESSION_MS - 1)
    assert clients[1].heartbeat() == ErrorCode.NONE
    harness.advance(SESSION_MS)
    assert clients[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_is_waited_for_five_minutes() -> None:
    """Its session timeout does not apply while its first JoinGroup waits: its client may have died without notice."""
    harness = GroupShardHarness()
    old = ClassicClient(harness, session_ms=1_000_000, rebalance_ms=1_000_000)
    stable(harness, [old])
    new = ClassicClient(harness)
    new.enter()
    harness.advance(299_999)
    assert new.join_response() is None
    harness.advance(1)
    assert given(new.joined).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert given(new.joined).member_id == ""
    assert old.join() is not None, "it is alone again"


def test_a_commit_renews_the_session() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    harness.advance(SESSION_MS - 1)
    on_offset_commit(harness.shard, client.group, client.member_id)
    on_offset_commit(harness.shard, client.group, "stranger")
    harness.advance(SESSION_MS - 1)
    assert client.heartbeat() == ErrorCode.NONE


def test_leave_one() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    stable(harness, clients)
    assert clients[0].leave() == ErrorCode.NONE
    assert clients[0].leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert clients[1].join() is not None
    assert clients[1].leads


def test_leave_several() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness),
        ClassicClient(harness, instance="i"),
        ClassicClient(harness, instance="j"),
        ClassicClient(harness, instance="k"),
    ]
    stable(harness, clients)
    pending = ClassicClient(harness)
    pending.join()
    asked = [
        (clients[0].member_id, None),
        ("stranger", None),
        ("", None),
        ("", "i"),
        ("", "nobody's"),
        (clients[0].member_id, "j"),
        (clients[2].member_id, "j"),
        (pending.member_id, None),
        (clients[0].member_id, None),
    ]
    assert leave_all(harness, asked) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert clients[3].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert clients[3].group.members.keys() == {clients[3].member_id}
    assert not clients[3].group.pending_joins


def test_leaving_without_members_changes_nothing() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    assert leave_all(harness, [("stranger", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert leave_all(harness, []) == [ErrorCode.NONE]
    assert client.heartbeat() == ErrorCode.NONE
    assert leave_all(harness, [("m", None)], "other") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_waiting_member_that_leaves_gets_a_response() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    stable(harness, clients)
    clients[1].protocols = {"range": b"news"}
    clients[1].join()
    assert clients[1].leave() == ErrorCode.NONE
    assert given(clients[1].joined).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    clients[0].join()
    assert given(clients[0].joined).error_code == 0
    new = ClassicClient(harness)
    new.enter()
    clients[0].join()
    new.join_response()
    new.sync()
    assert new.leave() == ErrorCode.NONE
    assert given(new.synced).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_wait_for_members_that_left() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness) for _ in range(3)]
    stable(harness, clients)
    clients[0].join()
    clients[1].join()
    assert clients[0].join_response() is None
    assert clients[2].leave() == ErrorCode.NONE
    settle(clients[:2])


def test_a_pending_member_that_leaves_is_no_longer_waited_for() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    pending = ClassicClient(harness)
    pending.join()
    client.join()
    assert client.join_response() is None
    assert pending.leave() == ErrorCode.NONE
    assert client.join_response() is not None


def test_an_empty_group_that_cannot_be_stored() -> None:
    """The last member is removed, but the log still has it: a restart restores it until its session expires."""
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.group.is_empty()
    harness.restart()
    assert client.heartbeat() == ErrorCode.NONE
    harness.advance(SESSION_MS)
    assert client.group.is_empty()
    assert harness.reloaded().groups["g"].is_empty()


def test_a_timeout_that_cannot_be_stored() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.advance(SESSION_MS)
    assert client.group.is_empty()
    assert not harness.reloaded().groups["g"].is_empty()
    harness.settle()
    assert client.group.generation_id == 2


def test_a_shard_that_is_given_up_completes_all_requests() -> None:
    harness = GroupShardHarness()
    waiting = [ClassicClient(harness), ClassicClient(harness)]
    for client in waiting:
        client.enter()
    others = [ClassicClient(harness, group="h"), ClassicClient(harness, group="h")]
    for client in others:
        client.enter()
    harness.advance(2 * DELAY_MS)
    for client in (*waiting, *others):
        client.join_response()
    waiting[0].join()
    others[1].sync()
    new = ClassicClient(harness, group="i")
    new.enter()
    harness.shard.on_unloaded()
    assert given(new.joined).error_code == ErrorCode.NOT_COORDINATOR
    assert given(new.joined).member_id == next(iter(new.group.members))
    assert others[1].synced is not None
    assert given(others[1].synced).error_code == ErrorCode.NOT_COORDINATOR
    assert new.group.state_name == "Dead"
    assert not len(harness.deadlines)
    assert waiting[0].heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = waiting[0].join()
    assert response is not None
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
