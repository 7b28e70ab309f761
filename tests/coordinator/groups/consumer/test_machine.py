"""Consumer groups under random events: members join, leave, disappear, acknowledge or do not; topics change; appends
fail; the coordinator restarts between any two steps. Invariants are checked after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.states import (
    GROUP_TRANSITIONS,
    MEMBER_TRANSITIONS,
    ConsumerGroupState,
)
from oncelog.coordinator.groups.consumer.timers import REBALANCE, SESSION
from oncelog.coordinator.groups.group_deadline import GroupDeadline
from oncelog.coordinator.groups.modern import timers
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.classic_consumers import ClassicConsumer
from tests.harness.consumer_clients import Consumer, durable, group_of, settle
from tests.harness.group_shard import GroupShardHarness

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 160
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
NOT_STORED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""The log's own error, and its translation for clients."""
PATTERNS = ("t.*", "u[0-4]", ".*", "nothing")


class Machine:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        interval = self.rng.choice(["0", "1000", "5000"])
        self.harness = GroupShardHarness({"group.consumer.assignment.interval.ms": interval}, seed)
        for name in ("t0", "t1", "u0"):
            self.harness.topics.create(name, self.rng.randint(1, 6))
        self.consumers: list[Consumer] = []
        self.made = 0
        self.seen: dict[str, Any] = {}

    def step(self) -> None:
        names = [name for name in dir(self) if name.startswith("do_")]
        action: Callable[[], None] = getattr(self, self.rng.choice(names))
        before = durable(self.harness.shard)
        self.harness.log.fails = 0.1
        code = None
        try:
            action()
        except KafkaError as error:
            code = error.code
        assert code in (None, *FENCED, *NOT_STORED), code
        if code in NOT_STORED:
            assert durable(self.harness.shard) == before, "a failed append changed something"
        self.harness.log.fails = 0.0
        self.look()

    # --- events

    def some(self) -> Consumer | None:
        return self.rng.choice(self.consumers) if self.consumers else None

    def do_join(self) -> None:
        if len(self.consumers) > 8:
            return
        self.made += 1
        topics: list[str] | None = self.rng.sample(["t0", "t1", "u0", "missing"], self.rng.randint(1, 3))
        regex = None
        if self.rng.random() < 0.3:
            topics, regex = None, self.rng.choice(PATTERNS)
        instance = f"i{self.rng.randint(0, 2)}" if self.rng.random() < 0.3 else None
        consumer = Consumer(self.harness, f"m{self.made}", topics, regex=regex, instance=instance)
        consumer.assignor = self.rng.choice([None, "range", "uniform"])
        self.consumers.append(consumer)
        self.asks(consumer, consumer.join)

    def asks(self, consumer: Consumer, request: Callable[[], Any]) -> None:
        """Send a request; its response may be lost."""
        known = (consumer.epoch, set(consumer.owned), consumer.wanted)
        try:
            request()
        except KafkaError as error:
            if error.code in FENCED:
                # A fenced client abandons all partitions, and rejoins later.
                consumer.epoch, consumer.owned, consumer.wanted = 0, set(), None
                if error.code is ErrorCode.UNRELEASED_INSTANCE_ID or self.rng.random() < 0.3:
                    self.consumers.remove(consumer)
            raise
        if self.rng.random() < 0.1:
            consumer.epoch, consumer.owned, consumer.wanted = known

    def do_beat(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.asks(consumer, consumer.beat if consumer.epoch else consumer.join)

    def do_acknowledge(self) -> None:
        consumer = self.some()
        if consumer is not None:
            self.asks(consumer, consumer.acknowledge if consumer.epoch else consumer.join)
            if consumer.wanted is not None and consumer.epoch:
                consumer.settle_down()

    do_acknowledge_more = do_acknowledge_still_more = do_acknowledge

    def do_subscribe(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.epoch and consumer.topics is not None:
            topics = self.rng.sample(["t0", "t1", "u0", "u1"], self.rng.randint(0, 3))
            self.asks(consumer, lambda: consumer.subscribe(topics))

    def do_change_expression(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.epoch and consumer.regex is not None:
            consumer.regex = self.rng.choice(["", *PATTERNS])
            self.asks(consumer, lambda: consumer.beat(subscribed_topic_regex=consumer.regex))

    def do_leave(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.epoch:
            epoch = -2 if consumer.instance and self.rng.random() < 0.5 else -1
            self.asks(consumer, lambda: consumer.leave(epoch))
            self.consumers.remove(consumer)

    def do_lose(self) -> None:
        """A client disappears."""
        consumer = self.some()
        if consumer is not None:
            self.consumers.remove(consumer)

    def do_return(self) -> None:
        """A static member restarts with another member id."""
        consumer = self.some()
        if consumer is not None and consumer.instance:
            self.made += 1
            consumer.member_id = f"m{self.made}"
            self.asks(consumer, consumer.join)

    def do_wait(self) -> None:
        self.harness.advance(self.rng.choice([10, 1_000, 11_000]))

    def do_wait_long(self) -> None:
        if self.rng.random() < 0.2:
            self.harness.advance(100_000)

    def do_change_topics(self) -> None:
        name = self.rng.choice(["t0", "t1", "u0", "u1", "t9"])
        known = self.harness.topics.by_name(name)
        if known is None:
            self.harness.topics.create(name, self.rng.randint(1, 4))
        elif self.rng.random() < 0.3:
            self.harness.topics.delete(name)
        else:
            self.harness.topics.create(name, len(known.partitions) + 1)
        for group in self.harness.shard.groups.values():
            group.on_topics_changed(self.harness.shard, [name])

    def do_restart(self) -> None:
        self.harness.restart()
        self.seen.clear()

    # --- invariants

    def look(self) -> None:
        shard = self.harness.shard
        assert durable(self.harness.reloaded()) == durable(shard), "a restart would make something else"
        group = shard.groups.get("g")
        if group is None:
            assert not len(self.harness.deadlines)
            return
        assert isinstance(group, ConsumerGroup)
        self.look_at_owners(group)
        self.look_at_moves(group)
        self.look_at_deadlines(group)

    def look_at_owners(self, group: ConsumerGroup) -> None:
        owners: Counter[tuple[bytes, int]] = Counter()
        for member in group.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                owners.update(
                    (topic_id, number) for topic_id, numbers in partitions.items() for number in numbers
                )
        assert all(count == 1 for count in owners.values()), "a partition has two owners"
        held = {(topic_id, number) for topic_id, rows in group.holders.items() for number in rows}
        assert held == set(owners)
        for topic_id, rows in group.holders.items():
            for number, member_id in rows.items():
                member = group.members[member_id]
                assert member.assignment_epoch(topic_id, number) is not None
        assert all(count == 1 for count in self.reading(group).values()), "two clients read one partition"
        targets = Counter(
            (topic_id, number)
            for target in group.targets.values()
            for topic_id, numbers in target.items()
            for number in numbers
        )
        assert all(count == 1 for count in targets.values())
        assert set(group.targets) <= set(group.members)

    def reading(self, group: ConsumerGroup) -> Counter[tuple[bytes, int]]:
        """Partitions that clients own, of clients whose epoch is still valid."""
        found: Counter[tuple[bytes, int]] = Counter()
        for consumer in self.consumers:
            known = group.members.get(consumer.member_id)
            if known is not None and consumer.epoch and consumer.epoch in (known.epoch, known.previous_epoch):
                found.update(consumer.owned)
        return found

    def look_at_moves(self, group: ConsumerGroup) -> None:
        before = self.seen.get("group")
        # An empty group may be replaced by one of another type, which begins anew.
        if before is not None and before[0] is group:
            _, epoch, target_epoch, state, members = before
            assert group.epoch >= epoch
            assert group.target_epoch >= target_epoch
            assert group.state is state or group.state in GROUP_TRANSITIONS[state]
            for member_id, (member_epoch, member_state) in members.items():
                member = group.members.get(member_id)
                if member is not None and member.epoch > 0:
                    assert member.epoch >= member_epoch
                    assert member.state in MEMBER_TRANSITIONS[member_state]
        assert group.epoch >= group.target_epoch
        for member in group.members.values():
            assert member.epoch <= group.target_epoch
        self.seen["group"] = (
            group,
            group.epoch,
            group.target_epoch,
            group.state,
            {id_: (member.epoch, member.state) for id_, member in group.members.items()},
        )

    def look_at_deadlines(self, group: ConsumerGroup) -> None:
        keys = set(self.harness.deadlines._by_key)
        for member_id, member in group.members.items():
            assert timers.key(self.harness.shard, SESSION, "g", member_id) in keys
            if member.is_classic:
                continue
            revokes = timers.key(self.harness.shard, REBALANCE, "g", member_id) in keys
            if member.epoch > 0:
                assert revokes == (member.state.name == "UNREVOKED_PARTITIONS"), member
        for key in keys:
            assert isinstance(key, GroupDeadline)
            assert not key.member_id or key.member_id in group.members, "a deadline of what is gone"

    def converge(self) -> None:
        """All remaining members acknowledge until they are reconciled to the target assignment."""
        self.harness.advance(200_000)
        self.consumers = [Consumer(self.harness, f"last{n}", ["t0", "u0"]) for n in range(3)]
        for consumer in self.consumers:
            consumer.join()
        settle(self.harness, self.consumers)
        group = group_of(self.harness.shard)
        assert group.state is ConsumerGroupState.STABLE
        assert set(group.members) == {"last0", "last1", "last2"}
        found = sorted(row for consumer in self.consumers for row in consumer.owned)
        topics = [topic for name in ("t0", "u0") if (topic := self.harness.topics.by_name(name)) is not None]
        assert found == sorted((topic.topic_id, n) for topic in topics for n in range(len(topic.partitions)))
        counts = [len(consumer.owned) for consumer in self.consumers]
        assert max(counts) - min(counts) <= 1


class MixedMachine(Machine):
    """The same with members of the classic protocol: the group is upgraded and downgraded now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        policy = self.rng.choice(["bidirectional", "bidirectional", "upgrade", "downgrade", "disabled"])
        self.harness.settings = self.harness.settings.with_changes(
            {"group.consumer.migration.policy": policy}
        )
        self.classics: list[ClassicConsumer] = []
        self.kinds: Counter[str] = Counter()

    def do_join_as_classic(self) -> None:
        if len(self.classics) < 5:
            topics = self.rng.sample(["t0", "t1", "u0", "missing"], self.rng.randint(1, 3))
            instance = f"i{self.rng.randint(0, 2)}" if self.rng.random() < 0.3 else None
            self.classics.append(ClassicConsumer(self.harness, topics, instance))
            self.classics[-1].act()

    def do_act_as_classic(self) -> None:
        for consumer in self.classics:
            if self.rng.random() < 0.7:
                consumer.act()

    do_act_more = do_act_still_more = do_act_as_classic

    def do_lose_a_classic(self) -> None:
        if self.classics:
            self.classics.pop(self.rng.randrange(len(self.classics)))

    def do_leave_as_classic(self) -> None:
        if self.classics:
            self.rng.choice(self.classics).leave()

    def do_restart(self) -> None:
        super().do_restart()
        for consumer in self.classics:
            consumer.forget()

    def look(self) -> None:
        group = self.harness.shard.groups.get("g")
        self.kinds[getattr(group, "group_type", "none")] += 1
        if isinstance(group, ClassicGroup):
            assert durable(self.harness.reloaded()) == durable(self.harness.shard)
            self.seen.clear()
            keys = [key for key in self.harness.deadlines._by_key if isinstance(key, tuple)]
            assert not any(str(key[2]).startswith("consumer-") for key in keys), "a deadline of what is gone"
            return
        super().look()

    def reading(self, group: ConsumerGroup) -> Counter[tuple[bytes, int]]:
        found = super().reading(group)
        for classic in self.classics:
            known = group.members.get(classic.member_id)
            if known is not None and known.epoch == classic.generation:
                found.update(classic.owned)
        return found

    def converge(self) -> None:
        self.classics.clear()
        self.harness.advance(800_000)
        super().converge()


@pytest.mark.parametrize("seed", range(12))
def test_random_events(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(STEPS):
        machine.step()
    machine.converge()
    machine.look()


@pytest.mark.parametrize("kind", [Machine, MixedMachine])
def test_a_compacted_log_is_the_same_group(kind: type[Machine]) -> None:
    """Compact the log below some offset: keep the last record of each key, sometimes without tombstones."""
    for seed in range(4):
        machine = kind(seed)
        for _ in range(STEPS):
            machine.step()
        harness = machine.harness
        expected = durable(harness.reloaded())
        whole = harness.log.entries
        for _ in range(20):
            end = machine.rng.randint(0, len(whole))
            last = {key: at for at, (key, _, _) in enumerate(whole[:end])}
            forgets = machine.rng.random() < 0.5
            harness.log.entries = [
                entry
                for at, entry in enumerate(whole[:end])
                if last[entry[0]] == at and not (forgets and entry[1] is None)
            ] + whole[end:]
            assert durable(harness.reloaded()) == expected, (seed, end, forgets)
        harness.log.entries = whole


@pytest.mark.slow
def test_random_events_with_both_protocols() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(12):
        machine = MixedMachine(seed)
        for _ in range(STEPS):
            machine.step()
        machine.converge()
        machine.look()
        kinds.update(machine.kinds)
    assert min(kinds["classic"], kinds["consumer"]) > STEPS, kinds
