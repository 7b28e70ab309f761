"""Share groups under random events: members join, leave, disappear, subscribe; states are initialized or not; topics
and offsets change; appends fail; the coordinator restarts between any two steps. Invariants hold after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.coordinator.groups.admin import delete_groups
from oncelog.coordinator.groups.group_deadline import GroupDeadline
from oncelog.coordinator.groups.modern import timers
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.coordinator.groups.share import offsets
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.timers import SESSION
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from oncelog.wire.steps import finish
from tests.harness.group_shard import GroupShardHarness
from tests.harness.share_clients import ShareConsumer, ShareStates, durable, share_group_of

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 200
EXPECTED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.NON_EMPTY_GROUP,
)
NOT_STORED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""The log's own error, and its translation for clients."""
SIZE_MAX = 6
TOPICS = ["t0", "t1", "u0", "u1"]


class Machine:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        interval = self.rng.choice(["0", "1000", "5000"])
        self.harness = GroupShardHarness(
            {"group.share.assignment.interval.ms": interval, "group.share.max.size": str(SIZE_MAX)}, seed
        )
        for name in TOPICS[:3]:
            self.harness.topics.create(name, self.rng.randint(1, 6))
        self.states = ShareStates(self.harness)
        self.consumers: list[ShareConsumer] = []
        self.made = 0
        self.seen: Any = None

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
        assert code in (None, *EXPECTED, *NOT_STORED), code
        if code in NOT_STORED and action.__name__ not in ("do_wait", "do_wait_long"):
            assert durable(self.harness.shard) == before, "a failed append changed something"
        self.harness.log.fails = 0.0
        self.look()

    # --- events

    def some(self) -> ShareConsumer | None:
        return self.rng.choice(self.consumers) if self.consumers else None

    def do_join(self) -> None:
        if len(self.consumers) > SIZE_MAX:
            return
        self.made += 1
        topics = self.rng.sample([*TOPICS, "missing"], self.rng.randint(1, 3))
        self.consumers.append(ShareConsumer(self.states, f"m{self.made}", topics))
        self.asks(self.consumers[-1], self.consumers[-1].join)

    def asks(self, consumer: ShareConsumer, request: Callable[[], Any]) -> None:
        """Send a request; its response may be lost."""
        known = (consumer.epoch, set(consumer.assigned))
        try:
            request()
        except KafkaError as error:
            if error.code in EXPECTED:
                consumer.epoch, consumer.assigned = 0, set()
                if self.rng.random() < 0.3:
                    self.consumers.remove(consumer)
            raise
        if self.rng.random() < 0.1:
            consumer.epoch, consumer.assigned = known

    def do_beat(self) -> None:
        consumer = self.some()
        if consumer is not None:
            consumer.topics = consumer.topics or ["t0"]  # who joins must name one
            self.asks(consumer, consumer.beat if consumer.epoch else consumer.join)

    do_beat_more = do_beat_still_more = do_beat

    def do_subscribe(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.epoch:
            topics = self.rng.sample(TOPICS, self.rng.randint(0, 3))
            self.asks(consumer, lambda: consumer.subscribe(topics))

    def do_leave(self) -> None:
        consumer = self.some()
        if consumer is not None and consumer.epoch:
            epoch = consumer.epoch
            try:
                self.asks(consumer, consumer.leave)
            finally:
                consumer.epoch = epoch
            self.consumers.remove(consumer)

    def do_lose(self) -> None:
        """A client disappears."""
        if self.consumers:
            self.consumers.pop(self.rng.randrange(len(self.consumers)))

    def do_initialize(self) -> None:
        if self.states.begun:
            self.states.finish(failed=self.rng.random() < 0.2)

    do_initialize_more = do_initialize

    def do_alter(self) -> None:
        rows = [AlterShareGroupOffsetsRequestPartition(self.rng.randint(0, 6), self.rng.randint(0, 99))]
        topic = AlterShareGroupOffsetsRequestTopic(self.rng.choice([*TOPICS, "missing"]), rows)
        wanted = finish(offsets.wanted(self.harness.shard.context.topics, [topic]))
        initialization = offsets.alter(self.harness.shard, "g", wanted)
        if initialization is not None:
            self.states.begun.append(initialization)

    def do_delete_offsets(self) -> None:
        found = offsets.delete(self.harness.shard, "g", self.rng.sample(TOPICS, 2))
        if found.deletion and self.rng.random() < 0.7:
            self.harness.log.fails = 0.0
            offsets.deleted(self.harness.shard, "g", list(found.deletion))

    def do_delete_group(self) -> None:
        if self.rng.random() < 0.3:
            offsets.delete_all(self.harness.shard, "g")
            self.harness.log.fails = 0.0
            assert not delete_groups(self.harness.shard, ["g"])[0].error_code

    def do_wait(self) -> None:
        self.harness.advance(self.rng.choice([10, 1_000, 11_000]))

    def do_wait_long(self) -> None:
        if self.rng.random() < 0.2:
            self.harness.advance(100_000)

    def do_change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        known = self.harness.topics.by_name(name)
        deleted = []
        if known is None:
            self.harness.topics.create(name, self.rng.randint(1, 4))
        elif self.rng.random() < 0.3:
            self.harness.topics.delete(name)
            deleted.append((name, known.topic_id))
        else:
            self.harness.topics.create(name, len(known.partitions) + 1)
        self.harness.log.fails = 0.0
        for group_id, group in self.harness.shard.groups.items():
            for _ in offsets.remove_deleted_topics(self.harness.shard, group_id, deleted):
                pass
            group.on_topics_changed(self.harness.shard, [name])

    def do_restart(self) -> None:
        self.harness.restart()
        self.states.begun.clear()
        self.seen = None

    # --- invariants

    def look(self) -> None:
        shard = self.harness.shard
        assert durable(self.harness.reloaded()) == durable(shard), "a restart would make something else"
        group = shard.groups.get("g")
        if group is None:
            assert not len(self.harness.deadlines)
            self.seen = None
            return
        assert isinstance(group, ShareGroup)
        self.look_at_targets(group)
        self.look_at_moves(group)
        self.look_at_deadlines(group)

    def look_at_targets(self, group: ShareGroup) -> None:
        counts = Counter(
            (topic_id, number)
            for target in group.targets.values()
            for topic_id, numbers in target.items()
            for number in numbers
        )
        assert counts == {
            (topic_id, number): count
            for topic_id, rows in group.target_counts.items()
            for number, count in rows.items()
        }
        assert set(group.targets) <= set(group.members)
        for member in group.members.values():
            assert member.state is MemberState.STABLE
            assert member.assigned.keys() <= {*self.ids(member.topic_names), *self.deleted_ids(group)}

    def ids(self, names: frozenset[str]) -> set[bytes]:
        found = (self.harness.topics.by_name(name) for name in names)
        return {topic.topic_id for topic in found if topic is not None}

    def deleted_ids(self, group: ShareGroup) -> set[bytes]:
        topics = {topic_id for member in group.members.values() for topic_id in member.assigned}
        return {topic_id for topic_id in topics if self.harness.topics.by_id(topic_id) is None}

    def look_at_moves(self, group: ShareGroup) -> None:
        if self.seen is not None and self.seen[0] is group:
            _, epoch, target_epoch, members = self.seen
            assert group.epoch >= epoch
            assert group.target_epoch >= target_epoch
            for member_id, member_epoch in members.items():
                if member_id in group.members:
                    assert group.members[member_id].epoch >= member_epoch
        assert group.epoch >= group.target_epoch
        for member in group.members.values():
            assert member.epoch <= group.target_epoch
        members = {member_id: member.epoch for member_id, member in group.members.items()}
        self.seen = (group, group.epoch, group.target_epoch, members)

    def look_at_deadlines(self, group: ShareGroup) -> None:
        keys = set(self.harness.deadlines._by_key)
        assert keys == {
            timers.key(self.harness.shard, SESSION, "g", member_id) for member_id in group.members
        }
        assert all(isinstance(key, GroupDeadline) for key in keys)

    def converge(self) -> None:
        """The remaining members go on until nothing changes: each partition has members, as balance wants it."""
        self.harness.advance(200_000)
        self.states.begun.clear()
        self.consumers = [ShareConsumer(self.states, f"last{n}", ["t0", "u0"]) for n in range(4)]
        for consumer in self.consumers:
            consumer.join()
        for _ in range(12):
            self.states.finish_all()
            self.harness.advance(5_000)
            for consumer in self.consumers:
                consumer.beat()
        group = share_group_of(self.harness.shard)
        assert {member.epoch for member in group.members.values()} == {group.epoch}
        topics = [topic for name in ("t0", "u0") if (topic := self.harness.topics.by_name(name)) is not None]
        every = {(topic.topic_id, number) for topic in topics for number in range(len(topic.partitions))}
        counts = Counter(row for consumer in self.consumers for row in consumer.assigned)
        assert counts.keys() == every
        loads = [len(consumer.assigned) for consumer in self.consumers]
        assert max(loads) - min(loads) <= 1
        if every:
            assert set(counts.values()) <= {-(-len(loads) // len(every))}


@pytest.mark.parametrize("seed", range(20))
def test_random_walk(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(STEPS):
        machine.step()
    machine.converge()


def test_an_initialization_is_tried_again_after_its_interval() -> None:
    harness = GroupShardHarness({"group.share.assignment.interval.ms": "0"})
    harness.topics.create("t", 2)
    states = ShareStates(harness)
    one = ShareConsumer(states, "one", ["t"])
    one.join()
    assert len(states.begun) == 1
    for _ in range(5):
        harness.advance(5_000)
        one.beat()
    assert len(states.begun) == 1
    harness.advance(5_000)
    one.beat()
    assert len(states.begun) == 2, "30 seconds have passed"
    states.finish_all()
    one.beat()
    assert len(one.assigned) == 2


def test_a_failed_initialization_is_tried_again_at_once() -> None:
    harness = GroupShardHarness()
    harness.topics.create("t", 1)
    states = ShareStates(harness)
    one = ShareConsumer(states, "one", ["t"])
    one.join()
    states.finish(failed=True)
    one.beat()
    assert len(states.begun) == 1


def test_new_partitions_are_initialized_beside_the_others() -> None:
    harness = GroupShardHarness({"group.share.assignment.interval.ms": "0"})
    topic_id = harness.topics.create("t", 1).topic_id
    states = ShareStates(harness)
    one = ShareConsumer(states, "one", ["t"])
    one.join()
    states.finish_all()
    one.beat()
    harness.topics.create("t", 3)
    share_group_of(harness.shard).on_topics_changed(harness.shard, ["t"])
    one.beat()
    assert states.begun[0].start_offsets == {topic_id: {1: 0, 2: 0}}
    assert one.assigned == {(topic_id, 0)}
    states.finish_all()
    one.beat()
    assert one.assigned == {(topic_id, 0), (topic_id, 1), (topic_id, 2)}


def test_a_quiet_heartbeat_writes_nothing() -> None:
    harness = GroupShardHarness({"group.share.assignment.interval.ms": "0"})
    harness.topics.create("t", 3)
    states = ShareStates(harness)
    one = ShareConsumer(states, "one", ["t"])
    one.join()
    states.finish_all()
    one.beat()
    written = len(harness.log.entries)
    one.beat()
    assert len(harness.log.entries) == written
