"""Static members (KIP-345, KIP-814): a restart within the session causes no rebalance, and an instance id has
only one member."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from tests.harness.classic_clients import (
    DELAY_MS,
    SESSION_MS,
    ClassicClient,
    given,
    settle,
    stable,
    subscription,
)
from tests.harness.group_shard import GroupShardHarness


def again(old: ClassicClient, **changes: object) -> ClassicClient:
    """The same instance after a restart, without a member id."""
    words = {"instance": old.instance, "version": old.version, "protocols": dict(old.protocols), **changes}
    return ClassicClient(old.harness, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_follower_that_restarts(version: int) -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance=name, version=version) for name in ("a", "b")]
    stable(harness, clients)
    old = clients[1]
    new = again(old)
    response = new.join()
    assert response is not None
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, clients[0].member_id)
    assert (response.members, response.skip_assignment) == ([], False)
    assert response.member_id != old.member_id
    assert response.member_id.startswith("b-")
    assert clients[0].heartbeat() == ErrorCode.NONE
    synced = new.sync()
    assert synced is not None
    assert synced.assignment == old.member_id.encode()
    stored = harness.reloaded().groups["g"]
    assert stored.has_member(new.member_id)
    assert not stored.has_member(old.member_id)
    assert [old.heartbeat(), old.leave()] == [ErrorCode.FENCED_INSTANCE_ID] * 2
    fenced = old.join()
    assert fenced is not None
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    refused = old.sync()
    assert refused is not None
    assert refused.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_leader_that_restarts(version: int) -> None:
    """From version 9 on the response says that it leads but must not assign; before, that another member leads."""
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance=name, version=version) for name in ("a", "b")]
    old = stable(harness, clients)
    new = again(old)
    response = new.join()
    assert response is not None
    if version == 9:
        assert (response.leader, response.skip_assignment) == (new.member_id, True)
        assert {row.member_id: row.group_instance_id for row in response.members} == {
            new.member_id: "a",
            clients[1].member_id: "b",
        }
    else:
        assert (response.leader, response.skip_assignment, response.members) == (old.member_id, False, [])
    assert new.group.leader_id == new.member_id
    assert harness.reloaded().groups["g"].leader_id == new.member_id  # type: ignore[attr-defined]
    # A leader may trigger a rebalance when it has found new partitions.
    new.join()
    assert clients[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_replacement_brings_its_own_metadata() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance=name) for name in ("a", "b")]
    stable(harness, clients)
    new = again(clients[1], protocols={"range": subscription("other")}, session_ms=60_000)
    response = new.join()
    assert response is not None
    assert response.error_code == 0
    assert new.group.subscribed_topics() == frozenset({"t", "other"})
    assert harness.reloaded().groups["g"].is_subscribed_to("other")
    member = new.group.members[new.member_id]
    assert member.protocols == [("range", subscription("other"))]
    assert member.session_timeout_ms == 60_000


def test_a_replacement_that_changes_the_protocol_causes_a_rebalance() -> None:
    harness = GroupShardHarness()
    both = {"range": b"r", "sticky": b"s"}
    clients = [ClassicClient(harness, instance=name, protocols=both) for name in ("a", "b")]
    stable(harness, clients)
    assert clients[0].group.protocol_name == "range"
    new = again(clients[1], protocols={"sticky": b"s"})
    assert new.join() is None
    assert clients[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    clients[0].join()
    settle([clients[0], new])
    assert clients[0].group.protocol_name == "sticky"


def test_a_replacement_has_the_old_session_timeout_first() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance="a"), ClassicClient(harness, instance="b")]
    stable(harness, clients)
    harness.advance(SESSION_MS - 1)
    assert clients[0].heartbeat() == ErrorCode.NONE
    new = again(clients[1], session_ms=60_000)
    new.join()
    harness.advance(SESSION_MS - 1)
    assert clients[0].heartbeat() == ErrorCode.NONE
    harness.advance(1)
    assert new.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_beyond_the_session_causes_a_rebalance() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance="a", session_ms=60_000), ClassicClient(harness, instance="b")]
    stable(harness, clients)
    harness.advance(SESSION_MS)
    assert clients[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    new = again(clients[1])
    assert new.join() is None
    clients[0].join()
    settle([clients[0], new])


def test_a_waiting_old_member_is_fenced() -> None:
    harness = GroupShardHarness()
    first, old = ClassicClient(harness, instance="a"), ClassicClient(harness, instance="b")
    first.enter()
    old.enter()
    new = again(old)
    assert new.join() is None
    assert given(old.joined).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert given(old.joined).member_id.startswith("b-")
    harness.advance(2 * DELAY_MS)
    first.join_response()
    new.join_response()
    new.sync()
    # The leader may already have assigned to the old member id: all members rejoin.
    newest = again(new)
    assert newest.join() is None
    assert given(new.synced or given(None)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    settle([first, newest])


def test_static_members_that_do_not_join_stay_until_their_session_is_over() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness, instance="a", session_ms=100_000),
        ClassicClient(harness),
        ClassicClient(harness, instance="c"),
    ]
    stable(harness, clients)
    clients[2].protocols = {"range": b"news"}
    clients[2].join()
    harness.advance(30_000)
    assert given(clients[2].joined).generation_id == 2
    assert clients[2].join_response() is not None
    assert clients[2].leads, "the leader did not join"
    assert clients[2].group.members.keys() == {clients[0].member_id, clients[2].member_id}
    clients[2].sync({})
    assert clients[0].heartbeat(generation=2) == ErrorCode.NONE


def test_a_group_of_absent_static_members_waits() -> None:
    """No member joins: no generation begins until a session expires or a member joins."""
    harness = GroupShardHarness()
    dynamic, static = ClassicClient(harness), ClassicClient(harness, instance="s", session_ms=200_000)
    stable(harness, [dynamic, static])
    dynamic.leave()
    harness.advance(100_000)
    assert static.group.state_name == "PreparingRebalance"
    assert static.group.generation_id == 1
    harness.advance(100_000)
    assert static.group.is_empty()
    assert static.group.generation_id == 2


def test_a_replacement_that_cannot_be_stored() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, instance=name) for name in ("a", "b")]
    stable(harness, clients)
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    new = again(clients[1], protocols={"range": b"news"})
    response = new.join()
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert (response.generation_id, response.leader, response.protocol_name) == (
        1,
        clients[0].member_id,
        "range",
    )
    assert clients[1].heartbeat() == ErrorCode.NONE
    member = new.group.members[clients[1].member_id]
    assert member.protocols == [("range", subscription("t"))]
    assert new.group.supporters == {"range": 2}


def test_a_pending_member_is_never_static() -> None:
    harness = GroupShardHarness()
    pending = ClassicClient(harness)
    pending.join()
    pending.instance = "i"
    with pytest.raises(Exception, match="static"):
        pending.join()
