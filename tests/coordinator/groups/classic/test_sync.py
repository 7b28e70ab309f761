"""SyncGroup: the leader's assignments go to all members and into the log."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.stored.coordinator import decode_value
from oncelog.wire.stored.groups import GroupMetadataValue
from tests.harness.classic_clients import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicClient,
    given,
    settle,
    stable,
    subscription,
)
from tests.harness.group_shard import GroupShardHarness


def joined(harness: GroupShardHarness, count: int) -> list[ClassicClient]:
    """Members of one generation that have not sent SyncGroup yet."""
    clients = [ClassicClient(harness) for _ in range(count)]
    for client in clients:
        client.enter()
    harness.advance(2 * DELAY_MS)
    assert [given(client.joined).error_code for client in clients] == [0] * count
    for client in clients:
        client.join_response()
    return clients


def test_syncs_wait_for_the_leader() -> None:
    harness = GroupShardHarness()
    leader, *others = joined(harness, 3)
    assert [client.sync() for client in others] == [None, None]
    response = leader.sync({leader.member_id: b"l", others[0].member_id: b"o", "stranger": b"s"})
    assert response is not None
    assert (response.assignment, response.protocol_type, response.protocol_name) == (
        b"l",
        "consumer",
        "range",
    )
    assert [given(client.synced).assignment for client in others] == [b"o", b""], (
        "who is left out gets nothing"
    )
    assert leader.group.state_name == "Stable"
    late = others[1].sync()
    assert late is not None
    assert (late.error_code, late.assignment) == (0, b"")


def test_the_stored_record() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness, client_id="c1"),
        ClassicClient(harness, instance="i2", session_ms=20_000, rebalance_ms=60_000),
    ]
    leader = stable(harness, clients)
    group = leader.group
    _, value_bytes, _ = harness.log.entries[-1]
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
    assert value.current_state_timestamp == harness.now_ms()
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
            client.member_id,
            client.instance,
            client.client_id,
            "/127.0.0.1",
            client.rebalance_ms,
            client.session_ms,
            subscription("t"),
            client.member_id.encode(),
        )
        for client in clients
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
def test_refused_requests(change: dict[str, object], code: ErrorCode) -> None:
    harness = GroupShardHarness()
    clients = joined(harness, 2)
    for name, value in change.items():
        setattr(clients[1], name, value)
    response = clients[1].sync()
    assert response is not None
    assert (response.error_code, response.assignment, response.protocol_name) == (code, b"", None)
    assert clients[0].group.state_name == "CompletingRebalance"


def test_the_protocol_must_be_the_groups() -> None:
    harness = GroupShardHarness()
    leader, other = joined(harness, 2)
    for words in (("connect", "range"), ("consumer", "sticky"), ("connect", None), (None, "sticky")):
        response = other.sync(None, None, *words)
        assert response is not None
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert other.sync(None, None, "consumer", "range") is None
    assert leader.sync({}) is not None


def test_a_rebalance_meanwhile_fails_waiting_syncs() -> None:
    harness = GroupShardHarness()
    leader, other = joined(harness, 2)
    assert other.sync() is None
    new = ClassicClient(harness)
    new.enter()
    assert given(other.synced).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    response = leader.sync({})
    assert response is not None
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for client in (leader, other):
        client.join()
    assert {client.group.generation_id for client in (leader, other, new)} == {2}
    settle([leader, other, new])


def test_an_empty_group_has_no_assignments() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    stable(harness, [client])
    client.leave()
    response = client.sync()
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
    harness = GroupShardHarness()
    leader, other = joined(harness, 2)
    other.sync()
    stored = len(harness.log.entries)
    harness.log.failure = failure
    response = leader.sync({leader.member_id: b"l", other.member_id: b"o"})
    assert response is not None
    assert (response.error_code, response.assignment, response.protocol_name) == (code, b"", None)
    assert given(other.synced).error_code == code
    assert len(harness.log.entries) == stored
    assert leader.group.stored is not None
    assert leader.group.stored.generation == 0
    assert [client.heartbeat() for client in (leader, other)] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    for client in (leader, other):
        client.join()
    settle([leader, other])
    assert leader.group.stored.generation == 2


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    harness = GroupShardHarness()
    leader, other, silent = joined(harness, 3)
    other.sync()
    leader.sync({})
    for _ in range(REBALANCE_MS // 5_000 - 1):
        harness.advance(5_000)
        assert {client.heartbeat() for client in (leader, other, silent)} == {ErrorCode.NONE}
    harness.advance(5_000)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert {client.heartbeat() for client in (leader, other)} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert leader.group.members.keys() == {leader.member_id, other.member_id}


def test_no_timer_remains_when_all_have_synced() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness) for _ in range(2)]
    stable(harness, clients)
    assert len(harness.deadlines) == 2, "two sessions"
    for _ in range(20):
        harness.advance(5_000)
        assert {client.heartbeat() for client in clients} == {ErrorCode.NONE}


def test_a_member_that_waits_for_its_assignment_does_not_expire() -> None:
    harness = GroupShardHarness()
    leader, other = joined(harness, 2)
    other.sync()
    harness.advance(SESSION_MS - 1)
    assert leader.heartbeat() == ErrorCode.NONE
    harness.advance(SESSION_MS - 1)
    leader.sync({other.member_id: b"o"})
    assert given(other.synced).assignment == b"o"
    harness.advance(SESSION_MS - 1)
    assert other.heartbeat() == ErrorCode.NONE


def test_a_second_sync_ends_the_first() -> None:
    harness = GroupShardHarness()
    leader, other = joined(harness, 2)
    other.sync()
    first = other.synced
    other.sync()
    assert first is not None
    assert given(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader.sync({other.member_id: b"o"})
    assert given(other.synced).assignment == b"o"
