"""JoinGroup: which members may join, when the generation begins, its protocol and its leader."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.coordinator.groups.classic import join
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode
from tests.harness.classic_clients import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    ClassicClient,
    settle,
    stable,
    subscription,
)
from tests.harness.group_shard import GroupShardHarness


def test_a_new_member_joins_twice() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness, client_id="reader")
    response = client.join()
    assert response is not None
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("reader-")
    assert (response.generation_id, response.protocol_name, response.leader) == (-1, None, "")
    assert len(response.member_id) == len("reader-") + 36
    assert not client.group.members
    assert client.join() is None, "it waits for others"
    harness.advance(DELAY_MS)
    response = client.join_response()
    assert response is not None
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, client.member_id)
    assert (response.protocol_type, response.protocol_name, response.skip_assignment) == (
        "consumer",
        "range",
        False,
    )
    assert [(row.member_id, row.metadata) for row in response.members] == [
        (client.member_id, subscription("t"))
    ]


@pytest.mark.parametrize("version", range(10))
def test_every_version(version: int) -> None:
    """Before version 4 a member joins at once. A missing protocol name is null from version 7 on."""
    harness = GroupShardHarness()
    client = ClassicClient(harness, version=version)
    response = client.join()
    if version < 4:
        assert response is None
    else:
        assert response is not None
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == ("" if version < 7 else None)
        assert client.join() is None
    harness.advance(DELAY_MS)
    response = client.join_response()
    assert response is not None
    assert (response.error_code, response.generation_id) == (0, 1)
    [member] = client.group.members.values()
    assert member.rebalance_timeout_ms == (client.session_ms if version == 0 else client.rebalance_ms)


def test_a_static_member_joins_once() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness, instance="one")
    assert client.join() is None
    harness.advance(DELAY_MS)
    assert client.join_response() is not None
    assert client.member_id.startswith("one-")


@pytest.mark.parametrize(
    ("group", "session_ms", "code"),
    [
        ("", 10_000, ErrorCode.INVALID_GROUP_ID),
        ("g", 5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_invalid_requests(group: str, session_ms: int, code: ErrorCode) -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness, group=group, session_ms=session_ms)
    response = client.join("said")
    assert response is not None
    assert (response.error_code, response.member_id) == (code, "said")
    assert not harness.shard.groups


def test_an_unknown_group_has_no_members() -> None:
    harness = GroupShardHarness()
    response = ClassicClient(harness).join("said")
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "said")
    assert not harness.shard.groups
    assert not harness.log.entries


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})], ids=["type", "protocols"]
)
def test_a_first_member_without_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    """The member is refused, but the group is created."""
    harness = GroupShardHarness()
    response = ClassicClient(harness, protocol_type=protocol_type, protocols=protocols).join()
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert harness.shard.groups["g"].is_empty()
    assert harness.reloaded().groups["g"].is_empty()


def test_members_agree_on_type_and_a_protocol() -> None:
    harness = GroupShardHarness()
    first = ClassicClient(harness, protocols={"a": b"", "b": b""})
    first.enter()
    for stranger in (
        ClassicClient(harness, protocols={"c": b""}),
        ClassicClient(harness, protocol_type="connect", protocols={"a": b""}),
    ):
        response = stranger.join()
        assert response is not None
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    second = ClassicClient(harness, protocols={"b": b"", "c": b""})
    second.enter()
    # From now on all members must support b.
    response = ClassicClient(harness, protocols={"a": b""}).join()
    assert response is not None
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.advance(2 * DELAY_MS)
    assert {client.group.protocol_name for client in (first, second)} == {"b"}


def test_the_protocol_that_most_prefer() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness, protocols={"a": b"", "b": b"", "x": b""}),
        ClassicClient(harness, protocols={"b": b"", "a": b""}),
        ClassicClient(harness, protocols={"y": b"", "b": b"", "a": b""}),
    ]
    stable(harness, clients)
    assert clients[0].group.protocol_name == "b"


def test_any_protocol_type() -> None:
    harness = GroupShardHarness()
    clients = [
        ClassicClient(harness, protocol_type="connect", protocols={"sessioned": b"\x00"}) for _ in range(2)
    ]
    stable(harness, clients)
    assert clients[0].group.protocol_type == "connect"
    assert clients[0].group.subscribed_topics() is None
    assert not clients[0].group.is_subscribed_to("t")


def test_the_first_rebalance_waits_while_members_join() -> None:
    """Each delay in which a member joined is followed by another one, until the rebalance timeout."""
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, rebalance_ms=8_000)]
    clients[0].enter()
    for _ in range(2):
        harness.advance(DELAY_MS - 1)
        clients.append(ClassicClient(harness, rebalance_ms=8_000))
        clients[-1].enter()
        harness.advance(1)
        assert clients[0].join_response() is None
    harness.advance(1_999)
    assert clients[0].join_response() is None
    harness.advance(1)
    assert harness.now == 8.0
    assert all(client.join_response() is not None for client in clients)
    assert {client.generation for client in clients} == {1}


def test_the_first_rebalance_does_not_wait_longer_than_needed() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    clients[0].enter()
    harness.advance(1_000)
    clients[1].enter()
    harness.advance(2_000)
    assert clients[0].join_response() is None, "somebody came during the first delay"
    harness.advance(DELAY_MS)
    assert all(client.join_response() is not None for client in clients)


def test_without_a_delay_the_generation_begins_at_once() -> None:
    harness = GroupShardHarness({"group.initial.rebalance.delay.ms": "0"})
    client = ClassicClient(harness)
    client.enter()
    harness.advance(0)
    assert client.join_response() is not None


def test_only_the_leader_learns_of_the_others() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness) for _ in range(3)]
    leader = stable(harness, clients)
    assert leader is clients[0], "who came first"
    for client in clients:
        response = client.join_response()
        assert response is not None
        assert response.leader == leader.member_id
        known = {row.member_id for row in response.members}
        assert known == ({other.member_id for other in clients} if client is leader else set())


def test_a_new_member_makes_the_others_rejoin() -> None:
    harness = GroupShardHarness()
    old = [ClassicClient(harness), ClassicClient(harness)]
    stable(harness, old)
    new = ClassicClient(harness)
    assert new.enter() is None
    assert {client.heartbeat() for client in old} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert old[0].join() is None
    assert old[1].join() is not None, "the last of them ends the join phase"
    clients = [*old, new]
    assert all(client.join_response() is not None for client in clients)
    assert {client.generation for client in clients} == {2}
    settle(clients)
    assert {client.heartbeat() for client in clients} == {ErrorCode.NONE}


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness, session_ms=600_000) for _ in range(3)]
    stable(harness, clients)
    clients[1].protocols = {"range": subscription("t", "u")}
    assert clients[1].join() is None
    harness.advance(REBALANCE_MS - 1)
    assert clients[1].join_response() is None
    assert clients[2].join() is None
    harness.advance(1)
    assert {client.generation for client in clients[1:] if client.join_response()} == {2}
    assert clients[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients[1].group.leader_id == clients[1].member_id, "the leader is gone: another one leads"


def test_a_rejoin_without_changes_causes_no_rebalance() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    stable(harness, clients)
    response = clients[1].join()
    assert response is not None
    assert (response.error_code, response.generation_id, response.members) == (0, 1, [])
    assert clients[0].heartbeat() == ErrorCode.NONE
    clients[1].protocols = {"range": subscription("u")}
    assert clients[1].join() is None
    assert clients[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_may_always_trigger_a_rebalance() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    stable(harness, clients)
    assert clients[0].join() is None
    assert clients[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lost_response_is_repeated() -> None:
    """Before the leader has assigned, a member that rejoins with the same metadata gets the same generation."""
    harness = GroupShardHarness()
    clients = [ClassicClient(harness), ClassicClient(harness)]
    for client in clients:
        client.enter()
    harness.advance(2 * DELAY_MS)
    for client in clients:
        first = client.join_response()
        again = client.join()
        assert again == first
    assert clients[0].heartbeat() == ErrorCode.NONE
    clients[1].protocols = {"range": b"news"}
    assert clients[1].join() is None
    assert clients[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_request_of_the_same_member_ends_the_first() -> None:
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    client.enter()
    first = client.joined
    assert client.join() is None
    assert first is not client.joined
    client.joined, second = first, client.joined
    response = client.join_response()
    assert response is not None
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    client.joined = second
    assert client.group.awaited_joins == 1
    harness.advance(DELAY_MS)
    assert client.join_response() is not None


def test_group_max_size() -> None:
    harness = GroupShardHarness({"group.max.size": "2"})
    clients = [ClassicClient(harness), ClassicClient(harness)]
    for client in clients:
        client.enter()
    late = ClassicClient(harness)
    refused = late.enter()
    assert refused is not None
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    harness.advance(2 * DELAY_MS)
    settle(clients)
    refused = ClassicClient(harness).join()
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert clients[0].leave() == ErrorCode.NONE
    clients[1].join()
    assert late.enter() is None, "now there is room"


def test_a_group_that_is_too_large_refuses_the_last_to_join() -> None:
    harness = GroupShardHarness()
    clients = [ClassicClient(harness) for _ in range(3)]
    stable(harness, clients)
    harness.settings = GroupShardHarness({"group.max.size": "2"}).settings
    harness.restart()
    assert clients[0].group.state is ClassicGroupState.PREPARING_REBALANCE
    assert clients[2].join() is None
    assert clients[0].join() is None
    refused = clients[1].join()
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.advance(REBALANCE_MS)
    assert clients[0].join_response() is not None
    assert clients[0].group.members.keys() == {clients[0].member_id, clients[2].member_id}


def test_a_pending_member_is_waited_for() -> None:
    """A member id that was given out delays a rebalance until it joins or its session expires."""
    harness = GroupShardHarness()
    old = ClassicClient(harness)
    stable(harness, [old])
    pending = ClassicClient(harness)
    pending.join()
    assert old.join() is None, "as the leader it may rebalance"
    assert old.group.pending_joins == {pending.member_id}
    harness.advance(pending.session_ms)
    assert old.join_response() is not None
    refused = pending.join()
    assert refused is not None
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_number_of_pending_member_ids_is_limited() -> None:
    harness = GroupShardHarness()
    at_once = join.PENDING_MEMBERS_MAX
    codes = [response.error_code for _ in range(at_once + 1) if (response := ClassicClient(harness).join())]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * at_once + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    harness.advance(SESSION_MS)
    response = ClassicClient(harness).join()
    assert response is not None
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_id_too_long_for_a_member_id(version: int) -> None:
    """A leader's response contains all member ids."""
    harness = GroupShardHarness()
    longest = join.MEMBER_ID_BYTES_MAX - 37
    for client_id in ("x" * (longest + 1), "\u20ac" * (longest // 3 + 1)):
        response = ClassicClient(harness, client_id=client_id, version=version).join()
        assert response is not None
        assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert not ClassicClient(harness).group.members
    response = ClassicClient(harness, client_id="x" * longest, version=version).join()
    assert response is None or response.error_code == ErrorCode.MEMBER_ID_REQUIRED


class Twice(dict[str, bytes]):
    """Protocols, each named twice in the request."""

    def items(self) -> Any:
        return [*super().items(), *super().items()]


def test_a_protocol_named_twice_counts_once() -> None:
    """The other members must not wait for ever for a common protocol."""
    harness = GroupShardHarness()
    good, odd = ClassicClient(harness), ClassicClient(harness, protocols=Twice(range=b"odd"))
    stable(harness, [good, odd])
    assert good.group.supporters == {"range": 2}
    assert good.heartbeat() == odd.leave() == ErrorCode.NONE
    good.join()
    settle([good])
    assert good.group.supporters == {"range": 1}


def test_reasons_are_logged() -> None:
    harness = GroupShardHarness()
    told: list[tuple[str, object]] = []
    harness.shard.context.log_info = lambda text, **fields: told.append((text, fields.get("reason")))
    client = ClassicClient(harness)
    stable(harness, [client])
    harness.advance(SESSION_MS)
    assert told == [
        ("a group rebalances", f"{client.member_id} is new: a reason"),
        ("a generation begins", None),
        ("a member is dropped", "session expired"),
        ("a group rebalances", f"the session of {client.member_id} expired"),
        ("a group is empty", None),
    ]


def test_a_failed_append_creates_no_group() -> None:
    harness = GroupShardHarness()
    harness.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    response = ClassicClient(harness).join()
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert not harness.shard.groups
    assert not len(harness.deadlines)
