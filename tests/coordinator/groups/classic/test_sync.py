"""SyncGroup: the leader's assignments go to all members and into the log."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.stored.coordinator import decode_value
from oncelog.wire.stored.groups import GroupMetadataValue
from tests.coordinator.groups.classic.players import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    given,
    settle,
    stable,
    subscription,
)
from tests.coordinator.groups.lab import Lab


def joined(lab: Lab, count: int) -> list[Player]:
    """Members of one generation that have not sent SyncGroup yet."""
    players = [Player(lab) for _ in range(count)]
    for player in players:
        player.enter()
    lab.advance(2 * DELAY_MS)
    assert [given(player.joined).error_code for player in players] == [0] * count
    for player in players:
        player.join_response()
    return players


def test_everybody_waits_for_the_leader() -> None:
    lab = Lab()
    leader, *others = joined(lab, 3)
    assert [player.sync() for player in others] == [None, None]
    response = leader.sync({leader.member_id: b"l", others[0].member_id: b"o", "stranger": b"s"})
    assert response is not None
    assert (response.assignment, response.protocol_type, response.protocol_name) == (
        b"l",
        "consumer",
        "range",
    )
    assert [given(player.synced).assignment for player in others] == [b"o", b""], (
        "who is left out gets nothing"
    )
    assert leader.group.state_name == "Stable"
    late = others[1].sync()
    assert late is not None
    assert (late.error_code, late.assignment) == (0, b"")


def test_what_is_stored() -> None:
    lab = Lab()
    players = [
        Player(lab, client_id="c1"),
        Player(lab, instance="i2", session_ms=20_000, rebalance_ms=60_000),
    ]
    leader = stable(lab, players)
    group = leader.group
    _, value_bytes, _ = lab.log.entries[-1]
    assert value_bytes is not None
    assert value_bytes[:2] == b"\x00\x03"
    value = decode_value(value_bytes, GroupMetadataValue)
    assert isinstance(value, GroupMetadataValue)
    assert value == group.stored
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
        "consumer",
        1,
        "range",
        leader.member_id,
    )
    assert value.current_state_timestamp == lab.now_ms()
    assert [
        (
            row.member_id,
            row.group_instance_id,
            row.client_id,
            row.client_host,
            row.rebalance_timeout,
            row.session_timeout,
            row.subscription,
            row.assignment,
        )
        for row in value.members
    ] == [
        (
            player.member_id,
            player.instance,
            player.client_id,
            "/127.0.0.1",
            player.rebalance_ms,
            player.session_ms,
            subscription("t"),
            player.member_id.encode(),
        )
        for player in players
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "nobody's"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_is_refused(change: dict[str, object], code: ErrorCode) -> None:
    lab = Lab()
    players = joined(lab, 2)
    for name, value in change.items():
        setattr(players[1], name, value)
    response = players[1].sync()
    assert response is not None
    assert (response.error_code, response.assignment, response.protocol_name) == (code, b"", None)
    assert players[0].group.state_name == "CompletingRebalance"


def test_the_protocol_must_be_the_groups() -> None:
    lab = Lab()
    leader, other = joined(lab, 2)
    for words in (("connect", "range"), ("consumer", "sticky"), ("connect", None), (None, "sticky")):
        response = other.sync(None, None, *words)
        assert response is not None
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.sync(None, None, "consumer", "range") is None
    assert leader.sync({}) is not None


def test_a_rebalance_meanwhile_sends_everybody_back() -> None:
    lab = Lab()
    leader, other = joined(lab, 2)
    assert other.sync() is None
    new = Player(lab)
    new.enter()
    assert given(other.synced).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    response = leader.sync({})
    assert response is not None
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for player in (leader, other):
        player.join()
    assert {player.group.generation_id for player in (leader, other, new)} == {2}
    settle([leader, other, new])


def test_an_empty_group_has_no_assignments() -> None:
    lab = Lab()
    player = Player(lab)
    stable(lab, [player])
    player.leave()
    response = player.sync()
    assert response is not None
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored(failure: ErrorCode, code: ErrorCode) -> None:
    """All waiting SyncGroups fail, nothing is stored, and the members rejoin."""
    lab = Lab()
    leader, other = joined(lab, 2)
    other.sync()
    stored = len(lab.log.entries)
    lab.log.failure = failure
    response = leader.sync({leader.member_id: b"l", other.member_id: b"o"})
    assert response is not None
    assert (response.error_code, response.assignment, response.protocol_name) == (code, b"", None)
    assert given(other.synced).error_code == code
    assert len(lab.log.entries) == stored
    assert leader.group.stored is not None
    assert leader.group.stored.generation == 0
    assert [player.heartbeat() for player in (leader, other)] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    for player in (leader, other):
        player.join()
    settle([leader, other])
    assert leader.group.stored.generation == 2


def test_who_never_asks_for_its_assignment_is_dropped() -> None:
    lab = Lab()
    leader, other, silent = joined(lab, 3)
    other.sync()
    leader.sync({})
    for _ in range(REBALANCE_MS // 5_000 - 1):
        lab.advance(5_000)
        assert {player.heartbeat() for player in (leader, other, silent)} == {ErrorCode.NONE}
    lab.advance(5_000)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert {player.heartbeat() for player in (leader, other)} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert leader.group.members.keys() == {leader.member_id, other.member_id}


def test_when_all_have_asked_nothing_is_awaited() -> None:
    lab = Lab()
    players = [Player(lab) for _ in range(2)]
    stable(lab, players)
    assert len(lab.deadlines) == 2, "two sessions"
    for _ in range(20):
        lab.advance(5_000)
        assert {player.heartbeat() for player in players} == {ErrorCode.NONE}


def test_who_waits_for_its_assignment_does_not_expire() -> None:
    lab = Lab()
    leader, other = joined(lab, 2)
    other.sync()
    lab.advance(SESSION_MS - 1)
    assert leader.heartbeat() == ErrorCode.NONE
    lab.advance(SESSION_MS - 1)
    leader.sync({other.member_id: b"o"})
    assert given(other.synced).assignment == b"o"
    lab.advance(SESSION_MS - 1)
    assert other.heartbeat() == ErrorCode.NONE


def test_a_second_sync_ends_the_first() -> None:
    lab = Lab()
    leader, other = joined(lab, 2)
    other.sync()
    first = other.synced
    other.sync()
    assert first is not None
    assert given(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.sync({other.member_id: b"o"})
    assert given(other.synced).assignment == b"o"
