"""Heartbeats, session timeouts, removal of members, LeaveGroup."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.classic.timers import on_offset_commit
from oncelog.wire.errors import ErrorCode
from tests.coordinator.groups.classic.players import (
    DELAY_MS,
    SESSION_MS,
    Player,
    given,
    leave_all,
    settle,
    stable,
)
from tests.coordinator.groups.lab import Lab


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
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    for name, value in change.items():
        setattr(player, name, value)
    assert player.heartbeat() == code


def test_silence_ends_a_session() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab, session_ms=2 * SESSION_MS)]
    stable(lab, players)
    lab.advance(SESSION_MS - 1)
    assert players[0].heartbeat() == ErrorCode.NONE
    lab.advance(SESSION_MS - 1)
    assert players[0].heartbeat() == ErrorCode.NONE
    lab.advance(2)
    assert players[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert players[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_when_all_are_silent_the_group_is_empty() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    leader = stable(lab, players)
    lab.advance(SESSION_MS)
    group = leader.group
    assert group.is_empty()
    assert (group.generation_id, group.leader_id, group.protocol_name) == (2, None, None)
    assert group.protocol_type == "consumer"
    assert group.stored is not None
    assert (group.stored.generation, group.stored.leader, group.stored.protocol) == (2, None, None)
    assert group.stored.protocol_type == "consumer"
    assert not len(lab.deadlines)


def test_a_group_begins_again_where_it_ended() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    player.leave()
    again = Player(lab, protocol_type="connect", protocols={"x": b""})
    again.enter()
    lab.advance(DELAY_MS)
    assert given(again.joined).generation_id == 3


def test_a_member_that_waits_for_others_is_not_silent() -> None:
    lab = Lab()
    players = [Player(lab, session_ms=600_000), Player(lab)]
    stable(lab, players)
    players[1].protocols = {"range": b"news"}
    assert players[1].join() is None
    lab.advance(SESSION_MS * 2)
    assert players[1].joined is not None
    assert players[1].join_response() is None
    players[0].join()
    response = players[1].join_response()
    assert response is not None
    assert response.error_code == 0
    lab.advance(SESSION_MS - 1)
    assert players[1].heartbeat() == ErrorCode.NONE
    lab.advance(SESSION_MS)
    assert players[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_is_waited_for_five_minutes() -> None:
    """Its session timeout does not apply while its first JoinGroup waits: its client may have died without notice."""
    lab = Lab()
    old = Player(lab, session_ms=1_000_000, rebalance_ms=1_000_000)
    stable(lab, [old])
    new = Player(lab)
    new.enter()
    lab.advance(299_999)
    assert new.join_response() is None
    lab.advance(1)
    assert given(new.joined).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert given(new.joined).member_id == ""
    assert old.join() is not None, "it is alone again"


def test_a_commit_is_a_sign_of_life() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    lab.advance(SESSION_MS - 1)
    on_offset_commit(lab.shard, player.group, player.member_id)
    on_offset_commit(lab.shard, player.group, "stranger")
    lab.advance(SESSION_MS - 1)
    assert player.heartbeat() == ErrorCode.NONE


def test_leave_one() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    stable(lab, players)
    assert players[0].leave() == ErrorCode.NONE
    assert players[0].leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert players[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert players[1].join() is not None
    assert players[1].leads


def test_leave_several() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab, instance="i"), Player(lab, instance="j"), Player(lab, instance="k")]
    stable(lab, players)
    pending = Player(lab)
    pending.join()
    asked = [
        (players[0].member_id, None),
        ("stranger", None),
        ("", None),
        ("", "i"),
        ("", "nobody's"),
        (players[0].member_id, "j"),
        (players[2].member_id, "j"),
        (pending.member_id, None),
        (players[0].member_id, None),
    ]
    assert leave_all(lab, asked) == [
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
    assert players[3].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert players[3].group.members.keys() == {players[3].member_id}
    assert not players[3].group.pending_joins


def test_leaving_nobody_changes_nothing() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    assert leave_all(lab, [("stranger", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert leave_all(lab, []) == [ErrorCode.NONE]
    assert player.heartbeat() == ErrorCode.NONE
    assert leave_all(lab, [("m", None)], "other") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_who_leaves_while_it_waits_is_answered() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    stable(lab, players)
    players[1].protocols = {"range": b"news"}
    players[1].join()
    assert players[1].leave() == ErrorCode.NONE
    assert given(players[1].joined).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    players[0].join()
    assert given(players[0].joined).error_code == 0
    new = Player(lab)
    new.enter()
    players[0].join()
    new.join_response()
    new.sync()
    assert new.leave() == ErrorCode.NONE
    assert given(new.synced).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_leaves_ends_the_wait_for_it() -> None:
    lab = Lab()
    players = [Player(lab) for _ in range(3)]
    stable(lab, players)
    players[0].join()
    players[1].join()
    assert players[0].join_response() is None
    assert players[2].leave() == ErrorCode.NONE
    settle(players[:2])


def test_a_pending_member_that_leaves_is_no_longer_waited_for() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    pending = Player(lab)
    pending.join()
    player.join()
    assert player.join_response() is None
    assert pending.leave() == ErrorCode.NONE
    assert player.join_response() is not None


def test_an_empty_group_that_cannot_be_stored() -> None:
    """The last member is removed, but the log still has it: a restart restores it until its session expires."""
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    lab.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert player.leave() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert player.group.is_empty()
    lab.restart()
    assert player.heartbeat() == ErrorCode.NONE
    lab.advance(SESSION_MS)
    assert player.group.is_empty()
    assert lab.reloaded().groups["g"].is_empty()


def test_a_timeout_that_cannot_be_stored() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    lab.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.advance(SESSION_MS)
    assert player.group.is_empty()
    assert not lab.reloaded().groups["g"].is_empty()
    lab.settle()
    assert player.group.generation_id == 2


def test_a_shard_that_is_given_up_answers_everybody() -> None:
    lab = Lab()
    waiting = [Player(lab), Player(lab)]
    for player in waiting:
        player.enter()
    others = [Player(lab, group="h"), Player(lab, group="h")]
    for player in others:
        player.enter()
    lab.advance(2 * DELAY_MS)
    for player in (*waiting, *others):
        player.join_response()
    waiting[0].join()
    others[1].sync()
    new = Player(lab, group="i")
    new.enter()
    lab.shard.on_unloaded()
    assert given(new.joined).error_code == ErrorCode.NOT_COORDINATOR
    assert given(new.joined).member_id == next(iter(new.group.members))
    assert others[1].synced is not None
    assert given(others[1].synced).error_code == ErrorCode.NOT_COORDINATOR
    assert new.group.state_name == "Dead"
    assert not len(lab.deadlines)
    assert waiting[0].heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response = waiting[0].join()
    assert response is not None
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
