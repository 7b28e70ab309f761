"""JoinGroup: which members may join, when the generation begins, its protocol and its leader."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.coordinator.groups.classic import join
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.wire.errors import ErrorCode
from tests.coordinator.groups.classic.players import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    settle,
    stable,
    subscription,
)
from tests.coordinator.groups.lab import Lab


def test_a_new_member_comes_twice() -> None:
    lab = Lab()
    player = Player(lab, client_id="reader")
    response = player.join()
    assert response is not None
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("reader-")
    assert (response.generation_id, response.protocol_name, response.leader) == (-1, None, "")
    assert len(response.member_id) == len("reader-") + 36
    assert not player.group.members
    assert player.join() is None, "it waits for others"
    lab.advance(DELAY_MS)
    response = player.join_response()
    assert response is not None
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, player.member_id)
    assert (response.protocol_type, response.protocol_name, response.skip_assignment) == (
        "consumer",
        "range",
        False,
    )
    assert [(row.member_id, row.metadata) for row in response.members] == [
        (player.member_id, subscription("t"))
    ]


@pytest.mark.parametrize("version", range(10))
def test_every_version(version: int) -> None:
    """Before version 4 a member joins at once. A missing protocol name is null from version 7 on."""
    lab = Lab()
    player = Player(lab, version=version)
    response = player.join()
    if version < 4:
        assert response is None
    else:
        assert response is not None
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == ("" if version < 7 else None)
        assert player.join() is None
    lab.advance(DELAY_MS)
    response = player.join_response()
    assert response is not None
    assert (response.error_code, response.generation_id) == (0, 1)
    [member] = player.group.members.values()
    assert member.rebalance_timeout_ms == (player.session_ms if version == 0 else player.rebalance_ms)


def test_static_members_come_once() -> None:
    lab = Lab()
    player = Player(lab, instance="one")
    assert player.join() is None
    lab.advance(DELAY_MS)
    assert player.join_response() is not None
    assert player.member_id.startswith("one-")


@pytest.mark.parametrize(
    ("group", "session_ms", "code"),
    [
        ("", 10_000, ErrorCode.INVALID_GROUP_ID),
        ("g", 5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_what_no_group_takes(group: str, session_ms: int, code: ErrorCode) -> None:
    lab = Lab()
    player = Player(lab, group=group, session_ms=session_ms)
    response = player.join("said")
    assert response is not None
    assert (response.error_code, response.member_id) == (code, "said")
    assert not lab.shard.groups


def test_an_unknown_group_has_no_members() -> None:
    lab = Lab()
    response = Player(lab).join("said")
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "said")
    assert not lab.shard.groups
    assert not lab.log.entries


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})], ids=["type", "protocols"]
)
def test_a_first_member_without_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    """The member is refused, but the group is created."""
    lab = Lab()
    response = Player(lab, protocol_type=protocol_type, protocols=protocols).join()
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert lab.shard.groups["g"].is_empty()
    assert lab.reloaded().groups["g"].is_empty()


def test_members_agree_on_type_and_a_protocol() -> None:
    lab = Lab()
    first = Player(lab, protocols={"a": b"", "b": b""})
    first.enter()
    for stranger in (
        Player(lab, protocols={"c": b""}),
        Player(lab, protocol_type="connect", protocols={"a": b""}),
    ):
        response = stranger.join()
        assert response is not None
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    second = Player(lab, protocols={"b": b"", "c": b""})
    second.enter()
    # From now on all members must support b.
    response = Player(lab, protocols={"a": b""}).join()
    assert response is not None
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    lab.advance(2 * DELAY_MS)
    assert {player.group.protocol_name for player in (first, second)} == {"b"}


def test_the_protocol_that_most_prefer() -> None:
    lab = Lab()
    players = [
        Player(lab, protocols={"a": b"", "b": b"", "x": b""}),
        Player(lab, protocols={"b": b"", "a": b""}),
        Player(lab, protocols={"y": b"", "b": b"", "a": b""}),
    ]
    stable(lab, players)
    assert players[0].group.protocol_name == "b"


def test_any_protocol_type() -> None:
    lab = Lab()
    players = [Player(lab, protocol_type="connect", protocols={"sessioned": b"\x00"}) for _ in range(2)]
    stable(lab, players)
    assert players[0].group.protocol_type == "connect"
    assert players[0].group.subscribed_topics() is None
    assert not players[0].group.is_subscribed_to("t")


def test_the_first_rebalance_waits_while_members_come() -> None:
    """Each delay in which a member joined is followed by another one, until the rebalance timeout."""
    lab = Lab()
    players = [Player(lab, rebalance_ms=8_000)]
    players[0].enter()
    for _ in range(2):
        lab.advance(DELAY_MS - 1)
        players.append(Player(lab, rebalance_ms=8_000))
        players[-1].enter()
        lab.advance(1)
        assert players[0].join_response() is None
    lab.advance(1_999)
    assert players[0].join_response() is None
    lab.advance(1)
    assert lab.now == 8.0
    assert all(player.join_response() is not None for player in players)
    assert {player.generation for player in players} == {1}


def test_the_first_rebalance_does_not_wait_longer_than_needed() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    players[0].enter()
    lab.advance(1_000)
    players[1].enter()
    lab.advance(2_000)
    assert players[0].join_response() is None, "somebody came during the first delay"
    lab.advance(DELAY_MS)
    assert all(player.join_response() is not None for player in players)


def test_without_a_delay_the_first_member_goes_ahead() -> None:
    lab = Lab({"group.initial.rebalance.delay.ms": "0"})
    player = Player(lab)
    player.enter()
    lab.advance(0)
    assert player.join_response() is not None


def test_only_the_leader_learns_of_the_others() -> None:
    lab = Lab()
    players = [Player(lab) for _ in range(3)]
    leader = stable(lab, players)
    assert leader is players[0], "who came first"
    for player in players:
        response = player.join_response()
        assert response is not None
        assert response.leader == leader.member_id
        known = {row.member_id for row in response.members}
        assert known == ({other.member_id for other in players} if player is leader else set())


def test_a_member_that_comes_makes_the_others_join_again() -> None:
    lab = Lab()
    old = [Player(lab), Player(lab)]
    stable(lab, old)
    new = Player(lab)
    assert new.enter() is None
    assert {player.heartbeat() for player in old} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert old[0].join() is None
    assert old[1].join() is not None, "the last of them ends the join phase"
    players = [*old, new]
    assert all(player.join_response() is not None for player in players)
    assert {player.generation for player in players} == {2}
    settle(players)
    assert {player.heartbeat() for player in players} == {ErrorCode.NONE}


def test_who_does_not_join_in_time_is_dropped() -> None:
    lab = Lab()
    players = [Player(lab, session_ms=600_000) for _ in range(3)]
    stable(lab, players)
    players[1].protocols = {"range": subscription("t", "u")}
    assert players[1].join() is None
    lab.advance(REBALANCE_MS - 1)
    assert players[1].join_response() is None
    assert players[2].join() is None
    lab.advance(1)
    assert {player.generation for player in players[1:] if player.join_response()} == {2}
    assert players[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert players[1].group.leader_id == players[1].member_id, "the leader is gone: another one leads"


def test_a_member_without_news_causes_no_rebalance() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    stable(lab, players)
    response = players[1].join()
    assert response is not None
    assert (response.error_code, response.generation_id, response.members) == (0, 1, [])
    assert players[0].heartbeat() == ErrorCode.NONE
    players[1].protocols = {"range": subscription("u")}
    assert players[1].join() is None
    assert players[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_may_always_ask_for_a_rebalance() -> None:
    lab = Lab()
    players = [Player(lab), Player(lab)]
    stable(lab, players)
    assert players[0].join() is None
    assert players[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lost_answer_is_given_again() -> None:
    """Before the leader has assigned, a member that rejoins with the same metadata gets the same generation."""
    lab = Lab()
    players = [Player(lab), Player(lab)]
    for player in players:
        player.enter()
    lab.advance(2 * DELAY_MS)
    for player in players:
        first = player.join_response()
        again = player.join()
        assert again == first
    assert players[0].heartbeat() == ErrorCode.NONE
    players[1].protocols = {"range": b"news"}
    assert players[1].join() is None
    assert players[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_request_of_the_same_member_ends_the_first() -> None:
    lab = Lab()
    player = Player(lab)
    player.enter()
    first = player.joined
    assert player.join() is None
    assert first is not player.joined
    player.joined, second = first, player.joined
    response = player.join_response()
    assert response is not None
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    player.joined = second
    assert player.group.awaited_joins == 1
    lab.advance(DELAY_MS)
    assert player.join_response() is not None


def test_a_group_takes_no_more_than_it_may() -> None:
    lab = Lab({"group.max.size": "2"})
    players = [Player(lab), Player(lab)]
    for player in players:
        player.enter()
    late = Player(lab)
    refused = late.enter()
    assert refused is not None
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    lab.advance(2 * DELAY_MS)
    settle(players)
    refused = Player(lab).join()
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert players[0].leave() == ErrorCode.NONE
    players[1].join()
    assert late.enter() is None, "now there is room"


def test_a_group_that_is_too_large_drops_who_comes_last() -> None:
    lab = Lab()
    players = [Player(lab) for _ in range(3)]
    stable(lab, players)
    lab.settings = Lab({"group.max.size": "2"}).settings
    lab.restart()
    assert players[0].group.state is ClassicGroupState.PREPARING_REBALANCE
    assert players[2].join() is None
    assert players[0].join() is None
    refused = players[1].join()
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    lab.advance(REBALANCE_MS)
    assert players[0].join_response() is not None
    assert players[0].group.members.keys() == {players[0].member_id, players[2].member_id}


def test_a_pending_member_is_waited_for() -> None:
    """A member id that was given out delays a rebalance until it joins or its session expires."""
    lab = Lab()
    old = Player(lab)
    stable(lab, [old])
    pending = Player(lab)
    pending.join()
    assert old.join() is None, "as the leader it may rebalance"
    assert old.group.pending_joins == {pending.member_id}
    lab.advance(pending.session_ms)
    assert old.join_response() is not None
    refused = pending.join()
    assert refused is not None
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_ids_are_not_given_out_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PENDING_MEMBERS_MAX", 2)
    lab = Lab()
    codes = [response.error_code for _ in range(3) if (response := Player(lab).join())]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    lab.advance(SESSION_MS)
    response = Player(lab).join()
    assert response is not None
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [3, 9])
def test_a_client_whose_name_leaves_no_room_for_a_member_id(version: int) -> None:
    """A leader's response contains all member ids."""
    lab = Lab()
    longest = join.MEMBER_ID_BYTES_MAX - 37
    for client_id in ("x" * (longest + 1), "\u20ac" * (longest // 3 + 1)):
        response = Player(lab, client_id=client_id, version=version).join()
        assert response is not None
        assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert not Player(lab).group.members
    response = Player(lab, client_id="x" * longest, version=version).join()
    assert response is None or response.error_code == ErrorCode.MEMBER_ID_REQUIRED


class Twice(dict[str, bytes]):
    """Protocols, each named twice in the request."""

    def items(self) -> Any:
        return [*super().items(), *super().items()]


def test_a_protocol_that_is_named_twice_is_one() -> None:
    """The other members must not wait for ever for a common protocol."""
    lab = Lab()
    good, odd = Player(lab), Player(lab, protocols=Twice(range=b"odd"))
    stable(lab, [good, odd])
    assert good.group.supporters == {"range": 2}
    assert good.heartbeat() == odd.leave() == ErrorCode.NONE
    good.join()
    settle([good])
    assert good.group.supporters == {"range": 1}


def test_the_owner_is_told_why() -> None:
    lab = Lab()
    told: list[tuple[str, object]] = []
    lab.shard.context.log_info = lambda text, **fields: told.append((text, fields.get("reason")))
    player = Player(lab)
    stable(lab, [player])
    lab.advance(SESSION_MS)
    assert told == [
        ("a group rebalances", f"{player.member_id} is new: a reason"),
        ("a generation begins", None),
        ("a member is dropped", "its session expired"),
        ("a group rebalances", f"the session of {player.member_id} expired"),
        ("a group is empty", None),
    ]


def test_a_failed_write_makes_no_group() -> None:
    lab = Lab()
    lab.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    response = Player(lab).join()
    assert response is not None
    assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert not lab.shard.groups
    assert not len(lab.deadlines)
