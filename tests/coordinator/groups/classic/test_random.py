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
from tests.harness.classic_clients import ClassicClient, leave_all
from tests.harness.group_shard import PARTITION, GroupShardHarness

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
        self.harness = GroupShardHarness({"group.max.size": "6"} if seed % 4 == 0 else None, seed)
        self.harness.log.fails = 0.1 if seed % 2 else 0.0
        self.clients: list[ClassicClient] = []
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
        if len(self.clients) >= 10:
            self.clients.pop(self.rng.randrange(len(self.clients)))
        client = ClassicClient(
            self.harness,
            group=self.rng.choice(GROUPS),
            instance=self.rng.choice(INSTANCES),
            protocols=self.rng.choice(PROTOCOLS),
            version=self.rng.choice((0, 3, 5, 7, 9)),
            session_ms=self.rng.choice((6_000, 10_000, 40_000)),
            rebalance_ms=self.rng.choice((1_000, 20_000, 60_000)),
        )
        if client.version < 5:
            client.instance = None
        self.clients.append(client)

    def any(self) -> ClassicClient:
        if not self.clients:
            self.arrive()
        return self.rng.choice(self.clients)

    def join(self) -> None:
        client = self.any()
        if self.rng.random() < 0.2:
            client.protocols = self.rng.choice(PROTOCOLS)
        self.join_with(client)

    def join_with(self, client: ClassicClient) -> None:
        if self.is_owed(client.joined):
            return
        response = client.join()
        self.note(client.joined)
        if response is not None and response.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ):
            client.member_id = ""

    def replaced(self) -> None:
        """A static member restarts."""
        client = self.any()
        if client.instance is not None:
            client.member_id, client.generation = "", -1
            client.join()
            self.note(client.joined)

    def sync(self) -> None:
        self.sync_with(self.any())

    def sync_with(self, client: ClassicClient) -> None:
        if client.joined is not None:
            client.join_response()
        assignments = {}
        if client.joined is not None and client.leads:
            assignments = self.assign(client)
        client.sync(assignments)
        self.note(client.synced)

    def assign(self, leader: ClassicClient) -> dict[str, bytes]:
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
        for client in self.clients:
            code = client.heartbeat()
            if code == ErrorCode.REBALANCE_IN_PROGRESS and not self.is_owed(client.joined):
                self.join_with(client)
            elif code and not self.is_owed(client.joined):
                client.member_id = ""
                self.join_with(client)
                self.join_with(client)
        if self.rng.random() < 0.3:
            return
        for client in sorted(self.clients, key=lambda client: client.joined is not None and client.leads):
            self.sync_with(client)

    def leave(self) -> None:
        waiting = [client for client in self.clients if self.is_owed(client.synced)]
        if waiting and self.rng.random() < 0.3:
            self.rng.choice(waiting).leave()
        elif self.rng.random() < 0.7:
            self.any().leave()
        else:
            leave_all(
                self.harness, [("", "i"), ("x", None), (self.any().member_id, None)], self.rng.choice(GROUPS)
            )

    def wait(self) -> None:
        self.harness.advance(self.rng.choice((1, 500, 3_000, 3_000, 9_000)))

    def nonsense(self) -> None:
        client = self.any()
        stranger = ClassicClient(self.harness, group=client.group_id, protocol_type="connect")
        stranger.join()
        self.note(stranger.joined)
        stranger.join("made up")
        stranger.sync({})
        stranger.heartbeat()
        stranger.leave()
        member_id, client.member_id = client.member_id, "made up"
        client.sync({}, generation=client.generation)
        client.member_id = member_id

    def delete(self) -> None:
        try:
            rows = delete_groups(self.harness.shard, GROUPS)
        except KafkaError:
            return
        for row in rows:
            if not row.error_code:
                self.generations.pop(row.group_id, None)

    def restart(self) -> None:
        """Stop the process: pending requests are completed, and volatile state is lost."""
        self.harness.shard.on_unloaded()
        assert all(promise.done for promise in self.pending)
        self.harness.restart()
        self.generations = {
            group_id: group.generation_id
            for group_id, group in self.harness.shard.groups.items()
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
            name: group
            for name, group in self.harness.shard.groups.items()
            if isinstance(group, ClassicGroup)
        }
        reloaded = self.harness.reloaded().groups
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
        keys = {key for key in self.harness.deadlines._by_key if isinstance(key, tuple)}
        assert {key[0] for key in keys} <= {PARTITION}
        for _, name, kind, *rest in keys - self.harness.retried:
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
                assert (PARTITION, name, "classic-join", "") in keys
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                assert (PARTITION, name, "classic-sync", "") in keys or not group.pending_syncs

    def check_owners(self) -> None:
        """No two clients with an assignment of the same generation own the same partition."""
        owners: dict[tuple[str, int, int], str] = {}
        for client in self.clients:
            response = None if client.synced is None else client.sync_response()
            group = self.harness.shard.groups.get(client.group_id)
            if not isinstance(group, ClassicGroup) or response is None or response.error_code:
                continue
            if group.state is not ClassicGroupState.STABLE or client.synced_generation != group.generation_id:
                continue
            if not group.has_member(client.member_id):
                continue
            for partition in response.assignment:
                owner = owners.setdefault((client.group_id, group.generation_id, partition), client.member_id)
                assert owner == client.member_id

    def finish(self) -> None:
        """All clients stop: sessions expire, all promises are resolved, groups become empty, no timers remain."""
        self.harness.log.fails = 0.0
        self.harness.settle()
        assert all(promise.done for promise in self.pending)
        for group in self.harness.shard.groups.values():
            assert group.is_empty()
        assert not len(self.harness.deadlines)


@pytest.mark.parametrize("seed", SEEDS)
def test_many_members(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(STEPS):
        crowd.step()
    crowd.finish()
    crowd.check()
