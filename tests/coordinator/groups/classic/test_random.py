"""Many members, each sending valid and invalid requests at random times, over a log that sometimes fails.

After every step: a restart would restore the same durable state; generations never decrease; every pending promise will
be resolved; no two clients of one generation own the same partition. `transition_to` asserts that transitions are
valid.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from oncelog.coordinator.groups.admin import delete_groups
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.states import ClassicGroupState
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.coordinator.groups.classic.players import Player, leave_all
from tests.coordinator.groups.lab import PARTITION, Lab

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = range(40)
STEPS = 150
PARTITIONS = 12
GROUPS = ("g", "h")
INSTANCES = (None, None, None, "i", "j")
PROTOCOLS: tuple[dict[str, bytes], ...] = (
    {"range": b"r"},
    {"range": b"r", "sticky": b"s"},
    {"sticky": b"s", "range": b"r"},
    {"sticky": b"other", "range": b"r"},
)


class Crowd:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lab = Lab({"group.max.size": "6"} if seed % 4 == 0 else None, seed)
        self.lab.log.fails = 0.1 if seed % 2 else 0.0
        self.players: list[Player] = []
        self.pending: list[Promise[object]] = []
        self.generations: dict[str, int] = {}
        self.log: list[str] = []

    def step(self) -> None:
        actions: list[Callable[[], None]] = [
            self.arrive, self.join, self.join, self.sync, self.sync, self.heartbeat, self.leave, self.wait, self.wait,
            self.nonsense, self.delete, self.restart, self.replaced, self.obey,
        ]  # fmt: skip
        weights = [3, 8, 8, 8, 8, 6, 2, 6, 6, 3, 0.5, 0.2, 2, 10]
        [action] = self.rng.choices(actions, weights)
        self.log.append(action.__name__)
        action()
        self.check()

    def arrive(self) -> None:
        if len(self.players) >= 10:
            self.players.pop(self.rng.randrange(len(self.players)))
        player = Player(
            self.lab,
            group=self.rng.choice(GROUPS),
            instance=self.rng.choice(INSTANCES),
            protocols=self.rng.choice(PROTOCOLS),
            version=self.rng.choice((0, 3, 5, 7, 9)),
            session_ms=self.rng.choice((6_000, 10_000, 40_000)),
            rebalance_ms=self.rng.choice((1_000, 20_000, 60_000)),
        )
        if player.version < 5:
            player.instance = None
        self.players.append(player)

    def any(self) -> Player:
        if not self.players:
            self.arrive()
        return self.rng.choice(self.players)

    def join(self) -> None:
        player = self.any()
        if self.rng.random() < 0.2:
            player.protocols = self.rng.choice(PROTOCOLS)
        self.join_with(player)

    def join_with(self, player: Player) -> None:
        if self.is_owed(player.joined):
            return
        response = player.join()
        self.note(player.joined)
        if response is not None and response.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ):
            player.member_id = ""

    def replaced(self) -> None:
        """A static member restarts."""
        player = self.any()
        if player.instance is not None:
            player.member_id, player.generation = "", -1
            player.join()
            self.note(player.joined)

    def sync(self) -> None:
        self.sync_with(self.any())

    def sync_with(self, player: Player) -> None:
        if player.joined is not None:
            player.join_response()
        assignments = {}
        if player.joined is not None and player.leads:
            assignments = self.assign(player)
        player.sync(assignments)
        self.note(player.synced)

    def assign(self, leader: Player) -> dict[str, bytes]:
        """Assign every partition to a random member, as a client's assignor."""
        response = leader.join_response()
        assert response is not None
        members = [row.member_id for row in response.members]
        shares: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(PARTITIONS if members else 0):
            shares[self.rng.choice(members)].append(partition)
        return {member: bytes(share) for member, share in shares.items()}

    def heartbeat(self) -> None:
        self.any().heartbeat(self.rng.choice((None, None, None, 0, 5)))

    def obey(self) -> None:
        """Every client takes its next step."""
        for player in self.players:
            code = player.heartbeat()
            if code == ErrorCode.REBALANCE_IN_PROGRESS and not self.is_owed(player.joined):
                self.join_with(player)
            elif code and not self.is_owed(player.joined):
                player.member_id = ""
                self.join_with(player)
                self.join_with(player)
        if self.rng.random() < 0.3:
            return
        for player in sorted(self.players, key=lambda player: player.joined is not None and player.leads):
            self.sync_with(player)

    def leave(self) -> None:
        waiting = [player for player in self.players if self.is_owed(player.synced)]
        if waiting and self.rng.random() < 0.3:
            self.rng.choice(waiting).leave()
        elif self.rng.random() < 0.7:
            self.any().leave()
        else:
            leave_all(
                self.lab, [("", "i"), ("x", None), (self.any().member_id, None)], self.rng.choice(GROUPS)
            )

    def wait(self) -> None:
        self.lab.advance(self.rng.choice((1, 500, 3_000, 3_000, 9_000)))

    def nonsense(self) -> None:
        player = self.any()
        stranger = Player(self.lab, group=player.group_id, protocol_type="connect")
        stranger.join()
        self.note(stranger.joined)
        stranger.join("made up")
        stranger.sync({})
        stranger.heartbeat()
        stranger.leave()
        member_id, player.member_id = player.member_id, "made up"
        player.sync({}, generation=player.generation)
        player.member_id = member_id

    def delete(self) -> None:
        try:
            rows = delete_groups(self.lab.shard, GROUPS)
        except KafkaError:
            return
        for row in rows:
            if not row.error_code:
                self.generations.pop(row.group_id, None)

    def restart(self) -> None:
        """Stop the process: pending requests are completed, and volatile state is lost."""
        self.lab.shard.on_unloaded()
        assert all(promise.done for promise in self.pending)
        self.lab.restart()
        self.generations = {
            group_id: group.generation_id
            for group_id, group in self.lab.shard.groups.items()
            if isinstance(group, ClassicGroup)
        }

    @staticmethod
    def is_owed(result: object) -> bool:
        return isinstance(result, Promise) and not result.done

    def note(self, result: object) -> None:
        if isinstance(result, Promise):
            self.pending.append(result)

    def check(self) -> None:
        self.pending = [promise for promise in self.pending if not promise.done]
        groups = {
            name: group for name, group in self.lab.shard.groups.items() if isinstance(group, ClassicGroup)
        }
        reloaded = self.lab.reloaded().groups
        assert reloaded.keys() == groups.keys()
        waiting: set[int] = set()
        for name, group in groups.items():
            assert group.generation_id >= self.generations.get(name, 0)
            self.generations[name] = group.generation_id
            self.check_counts(group)
            other = reloaded[name]
            assert isinstance(other, ClassicGroup)
            assert group.stored == other.stored
            self.check_settled(group, other)
            for member in group.members.values():
                waiting |= {
                    id(promise)
                    for promise in (member.join_promise, member.sync_promise)
                    if promise is not None
                }
        assert {id(promise) for promise in self.pending} <= waiting, "a promise that nobody will resolve"
        self.check_deadlines(groups)
        self.check_owners()

    @staticmethod
    def check_counts(group: ClassicGroup) -> None:
        members = group.members.values()
        assert group.awaited_joins == sum(member.join_promise is not None for member in members)
        assert group.static_members == {
            member.group_instance_id: member.member_id for member in members if member.group_instance_id
        }
        assert (group.leader_id is None) == (not members)
        assert group.leader_id is None or group.leader_id in group.members
        assert not group.pending_joins & group.members.keys()
        counted: dict[str, int] = {}
        for member in members:
            for protocol in member.protocols:
                counted[protocol.name] = counted.get(protocol.name, 0) + 1
        assert {name: count for name, count in group.supporters.items() if count} == counted
        assert not members or len(members) in counted.values(), "no protocol that all of them know"
        if group.state is not ClassicGroupState.COMPLETING_REBALANCE:
            assert all(member.sync_promise is None for member in members)
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            assert not group.awaited_joins

    @staticmethod
    def check_settled(group: ClassicGroup, reloaded: ClassicGroup) -> None:
        """A stable group equals the one that a restart restores, whose members support only the selected protocol."""
        if group.state is not ClassicGroupState.STABLE:
            return
        for name in (
            "state",
            "generation_id",
            "protocol_type",
            "protocol_name",
            "leader_id",
            "static_members",
        ):
            assert getattr(group, name) == getattr(reloaded, name), name
        assert group.assignments() == reloaded.assignments()
        for member in group.members.values():
            other = reloaded.members[member.member_id]
            assert member.metadata(group.protocol_name) == other.metadata(group.protocol_name)
            assert member.session_timeout_ms == other.session_timeout_ms
            assert member.rebalance_timeout_ms == other.rebalance_timeout_ms

    def check_deadlines(self, groups: dict[str, ClassicGroup]) -> None:
        """Every member has a session timer or waits; removed members have no timers; every rebalance ends by itself."""
        keys = {key for key in self.lab.deadlines._by_key if isinstance(key, tuple)}
        assert {key[0] for key in keys} <= {PARTITION}
        for _, name, kind, *rest in keys - self.lab.retried:
            assert name in groups
            if kind == "classic-session":
                assert rest[0] in groups[name].members or rest[0] in groups[name].pending_joins
            elif kind == "classic-join":
                assert groups[name].state is ClassicGroupState.PREPARING_REBALANCE
            elif kind == "classic-sync":
                assert groups[name].state in (
                    ClassicGroupState.COMPLETING_REBALANCE,
                    ClassicGroupState.STABLE,
                )
        for name, group in groups.items():
            for member in group.members.values():
                assert member.is_kept_alive or (PARTITION, name, "classic-session", member.member_id) in keys
            for member_id in group.pending_joins:
                assert (PARTITION, name, "classic-session", member_id) in keys
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                assert (PARTITION, name, "classic-join") in keys
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                assert (PARTITION, name, "classic-sync") in keys or not group.pending_syncs

    def check_owners(self) -> None:
        """No two clients with an assignment of the same generation own the same partition."""
        owners: dict[tuple[str, int, int], str] = {}
        for player in self.players:
            response = None if player.synced is None else player.sync_response()
            group = self.lab.shard.groups.get(player.group_id)
            if not isinstance(group, ClassicGroup) or response is None or response.error_code:
                continue
            if group.state is not ClassicGroupState.STABLE or player.synced_generation != group.generation_id:
                continue
            if not group.has_member(player.member_id):
                continue
            for partition in response.assignment:
                owner = owners.setdefault((player.group_id, group.generation_id, partition), player.member_id)
                assert owner == player.member_id

    def finish(self) -> None:
        """All clients stop: sessions expire, all promises are resolved, groups become empty, no timers remain."""
        self.lab.log.fails = 0.0
        self.lab.settle()
        assert all(promise.done for promise in self.pending)
        for group in self.lab.shard.groups.values():
            assert group.is_empty()
        assert not len(self.lab.deadlines)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crowd(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()
    crowd.finish()
    crowd.check()
