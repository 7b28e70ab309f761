"""Checks of a classic group for offsets, deletion and expiry; restoring it from its records."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.records import group_record, new_group_record, tombstone
from oncelog.coordinator.groups.classic.states import VALID_TRANSITIONS, ClassicGroupState
from oncelog.coordinator.groups.group import allow_any_partition
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.groups import GroupMetadataValue, MemberMetadata
from tests.harness.classic_clients import DELAY_MS, SESSION_MS, ClassicClient, stable, subscription
from tests.harness.group_shard import EPOCH_MS, GroupShardHarness


def commit_code(
    group: ClassicGroup,
    member_id: str = "",
    instance: str | None = None,
    generation: int = -1,
    *,
    transactional: bool = False,
) -> ErrorCode:
    try:
        check = group.check_offset_commit(
            member_id, instance, generation, transactional=transactional, api_version=9
        )
    except KafkaError as error:
        return error.code
    assert check is allow_any_partition
    return ErrorCode.NONE


def in_state(state: ClassicGroupState) -> tuple[ClassicClient, ClassicGroup]:
    """A group in ``state`` with a static member, and that member."""
    harness = GroupShardHarness()
    client = ClassicClient(harness, instance="i")
    if state is not ClassicGroupState.COMPLETING_REBALANCE:
        stable(harness, [client])
    if state is ClassicGroupState.COMPLETING_REBALANCE:
        client.enter()
        harness.advance(DELAY_MS)
        client.join_response()
    if state is ClassicGroupState.PREPARING_REBALANCE:
        ClassicClient(harness).enter()
    if state is ClassicGroupState.EMPTY:
        client.leave()
    if state is ClassicGroupState.DEAD:
        harness.shard.on_unloaded()
    group = client.group
    assert group.state is state
    return client, group


@pytest.mark.parametrize(
    ("state", "as_member", "as_nobody", "nobody_transactional"),
    [
        (ClassicGroupState.EMPTY, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.NONE),
        (ClassicGroupState.PREPARING_REBALANCE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (
            ClassicGroupState.COMPLETING_REBALANCE,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        ),
        (ClassicGroupState.STABLE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (ClassicGroupState.DEAD, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3),
    ],
)  # fmt: skip
def test_which_members_may_commit(
    state: ClassicGroupState, as_member: ErrorCode, as_nobody: ErrorCode, nobody_transactional: ErrorCode
) -> None:
    client, group = in_state(state)
    generation = 1 if state is not ClassicGroupState.EMPTY else 2
    assert commit_code(group, client.member_id, None, generation) == as_member
    assert commit_code(group) == as_nobody
    assert commit_code(group, transactional=True) == nobody_transactional


def test_commits_with_member_and_generation() -> None:
    client, group = in_state(ClassicGroupState.STABLE)
    member = client.member_id
    assert commit_code(group, member, "i", 1) == ErrorCode.NONE
    assert commit_code(group, member, None, 1, transactional=True) == ErrorCode.NONE
    assert commit_code(group, member, "i", 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit_code(group, member, "i") == ErrorCode.ILLEGAL_GENERATION
    assert commit_code(group, "stranger", "i", 1) == ErrorCode.FENCED_INSTANCE_ID
    assert commit_code(group, "stranger", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(group, member, "nobody's", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_code(group, "", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    _, completing = in_state(ClassicGroupState.COMPLETING_REBALANCE)
    [member] = completing.members
    assert commit_code(completing, member, None, 1, transactional=True) == ErrorCode.NONE


@pytest.mark.parametrize("state", ClassicGroupState)
def test_deletion_by_state(state: ClassicGroupState) -> None:
    _, group = in_state(state)
    expected = {ClassicGroupState.EMPTY: None, ClassicGroupState.DEAD: ErrorCode.GROUP_ID_NOT_FOUND}.get(
        state, ErrorCode.NON_EMPTY_GROUP
    )
    assert code_of(group.check_delete) == expected
    of_consumers = ErrorCode.GROUP_ID_NOT_FOUND if state is ClassicGroupState.DEAD else None
    assert code_of(group.check_offset_delete) == of_consumers
    assert code_of(lambda: group.check_offset_fetch(None, -1)) == of_consumers
    group.protocol_type_or_none = "connect"
    assert code_of(group.check_offset_delete) == expected


def code_of(check: object) -> ErrorCode | None:
    assert callable(check)
    try:
        check()
    except KafkaError as error:
        return error.code
    return None


def test_when_offsets_expire() -> None:
    simple = ClassicGroup("simple")
    assert simple.offset_expires_at(1000, 10) == 1010
    _, group = in_state(ClassicGroupState.EMPTY)
    assert group.state_timestamp_ms is not None
    assert group.offset_expires_at(1000, 10) == group.state_timestamp_ms + 10
    group.state_timestamp_ms = None
    assert group.offset_expires_at(1000, 10) == 1010
    _, group = in_state(ClassicGroupState.STABLE)
    assert group.offset_expires_at(1000, 10) == 1010
    group.protocol_type_or_none = "connect"
    group.set_subscriptions()
    assert group.offset_expires_at(1000, 10) is None
    for state in (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE):
        _, group = in_state(state)
        assert group.offset_expires_at(1000, 10) is None


def test_subscribed_topics() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness, protocols={"range": subscription("a", "b")}),
        # A newer version has more fields after those of version 0.
        ClassicClient(harness, protocols={"range": b"\x00\x03" + subscription("c")[2:] + bytes(12)}),
    ]
    leader = stable(harness, clients)
    group = leader.group
    assert group.subscribed_topics() == frozenset({"a", "b", "c"})
    assert group.is_subscribed_to("a")
    assert not group.is_subscribed_to("d")
    reloaded = harness.reloaded().groups["g"]
    assert reloaded.is_subscribed_to("c")
    assert not reloaded.is_subscribed_to("d")
    harness.advance(SESSION_MS)
    assert group.subscribed_topics() == frozenset()


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00", b"\x00\x00\x00\x00\x00\x05\x00\x01a"])
def test_malformed_subscriptions(metadata: bytes) -> None:
    """A group of consumers then counts as subscribed to every topic, and none of its offsets expires."""
    harness = GroupShardHarness()
    leader = stable(harness, [ClassicClient(harness), ClassicClient(harness, protocols={"range": metadata})])
    assert leader.group.subscribed_topics() is None
    assert leader.group.is_subscribed_to("anything")
    assert leader.group.offset_expires_at(1000, 10) is None


def test_a_restart_of_a_stable_group() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness, instance="i")]
    leader = stable(harness, clients)
    harness.restart()
    group = leader.group
    assert (group.state, group.generation_id, group.leader_id) == (
        ClassicGroupState.STABLE,
        1,
        leader.member_id,
    )
    assert {client.heartbeat() for client in clients} == {ErrorCode.NONE}
    assert [response.assignment for client in clients if (response := client.sync())] == [
        client.member_id.encode() for client in clients
    ]
    harness.advance(SESSION_MS - 1)
    assert clients[0].heartbeat() == ErrorCode.NONE
    harness.advance(1)
    assert clients[1].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_in_a_rebalance_restores_the_previous_generation() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    leader = stable(harness, clients)
    new = ClassicClient(harness)
    new.enter()
    for client in clients:
        client.join()
    for client in (*clients, new):
        client.join_response()
    assert leader.generation == 2
    harness.restart()
    assert leader.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert leader.heartbeat(1) == ErrorCode.NONE
    assert new.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_records_of_other_brokers() -> None:
    """Records without timestamps or timeouts (versions 0 and 1), with and without members, and a tombstone."""
    harness = GroupShardHarness()
    member = MemberMetadata("m", None, "c", "/h", -1, 7_000, subscription("t"), b"a")
    harness.log.append(
        [
            group_record("old", GroupMetadataValue("consumer", 3, "range", "m", -1, [member]))._replace(
                version=0
            ),
            new_group_record("new", EPOCH_MS),
            group_record("gone", GroupMetadataValue("consumer", 3, None, None, 5)),
            tombstone("gone"),
            tombstone("never"),
            group_record("anew", GroupMetadataValue("consumer", 3, "range", "m", 5, [member])),
            tombstone("anew"),
            new_group_record("anew", EPOCH_MS),
        ]
    )
    groups = harness.reloaded().groups
    assert groups.keys() == {"old", "new", "anew"}
    old = groups["old"]
    assert isinstance(old, ClassicGroup)
    assert (old.state, old.generation_id, old.leader_id, old.state_timestamp_ms) == (
        ClassicGroupState.STABLE,
        3,
        "m",
        None,
    )
    assert old.members["m"].rebalance_timeout_ms == 7_000
    assert groups["new"].state_name == groups["anew"].state_name == "Empty"


def test_valid_transitions_are_kafkas() -> None:
    """Kafka's ``ClassicGroupState`` defines the valid previous states of each state."""
    sources = {
        "Empty": {"PreparingRebalance"},
        "PreparingRebalance": {"Stable", "CompletingRebalance", "Empty"},
        "CompletingRebalance": {"PreparingRebalance"},
        "Stable": {"CompletingRebalance"},
        "Dead": {"Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead"},
    }
    assert {
        now.value: {before.value for before, after in VALID_TRANSITIONS.items() if now in after}
        for now in ClassicGroupState
    } == sources
