"""A group shard without a broker: a log in memory, a manual clock, and topics that the test creates.

The log keeps encoded records, so that `GroupShardHarness.reloaded` equals a restart.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.group_config import within_limits
from oncelog.coordinator.deadlines import NEVER, Deadlines
from oncelog.coordinator.groups.context import Client, GroupContext
from oncelog.coordinator.groups.shard import GroupShard
from oncelog.wire.errors import KafkaError
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES
from tests.harness.memory_log import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from collections.abc import Set as AbstractSet

    from oncelog.wire.schema import Uuid

PARTITION = 7
KAFKA_DEFAULTS = {"log.dirs": "/data", "group.initial.rebalance.delay.ms": "3000"}
"""Kafka's defaults of keys for which oncelog has others."""
EPOCH_MS = 1_900_000_000_000
ROUNDING = 1e-6
"""Seconds: tolerance for rounding errors of floats."""

RETRY_BACKOFF_MS = 500


class FakeTopic:
    def __init__(self, name: str, topic_id: Uuid, partitions: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = list(range(partitions))


class FakeTopics:
    """The cluster's topics; every change raises ``version``."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, FakeTopic] = {}
        self.racks_of: dict[tuple[str, int], Sequence[str]] = {}

    def create(self, name: str, partitions: int) -> FakeTopic:
        """Create a topic, or change the number of its partitions; then its id stays."""
        self.version += 1
        known = self._by_name.get(name)
        topic_id = self.version.to_bytes(16, "big") if known is None else known.topic_id
        topic = self._by_name[name] = FakeTopic(name, topic_id, partitions)
        return topic

    def delete(self, name: str) -> None:
        self.version += 1
        del self._by_name[name]

    def by_name(self, name: str) -> FakeTopic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> FakeTopic | None:
        return next((topic for topic in self._by_name.values() if topic.topic_id == topic_id), None)

    def existing(self, names: frozenset[str]) -> AbstractSet[str]:
        return self._by_name.keys() & names

    def names(self) -> Sequence[str]:
        return list(self._by_name)

    def racks(self, topic: object, partition: int) -> Sequence[str]:
        assert isinstance(topic, FakeTopic)
        return self.racks_of.get((topic.name, partition), ())


class GroupLog(MemoryLog):
    """A partition of ``__consumer_offsets``."""

    def replay_into(self, shard: GroupShard) -> None:
        """Load a shard from the written records."""
        for offset, (key_bytes, value_bytes, producer_id) in enumerate(self.entries):
            key = decode_key(key_bytes, KEY_TYPES)
            assert key is not None
            value = None if value_bytes is None else decode_value(value_bytes, VALUE_TYPES[key.API_KEY])
            shard.replay(key, value, offset, producer_id)
        shard.on_loaded()


class GroupShardHarness:
    """``settings`` are Kafka's keys as text; ``overrides`` a group's own configuration, by group id."""

    def __init__(self, settings: dict[str, str] | None = None, seed: int = 0) -> None:
        self.now = 0.0
        self.settings = BrokerConfig({**KAFKA_DEFAULTS, **(settings or {})})
        self.overrides: dict[str, dict[str, str]] = {}
        self.topics = FakeTopics()
        self.rng = random.Random(seed)
        self.log = GroupLog(random.Random(seed + 1))
        self.deadlines = Deadlines(lambda: self.now)
        self.retried: set[Hashable] = set()
        self.shard = GroupShard(PARTITION, self.log, self.context(self.deadlines))
        self.shard.on_loaded()

    def context(self, deadlines: Deadlines) -> GroupContext:
        return GroupContext(
            now_ms=self.now_ms,
            rng=self.rng,
            deadlines=deadlines,
            settings=lambda: self.settings,
            overrides=lambda group_id: within_limits(self.overrides.get(group_id, {}), self.settings),
            topics=self.topics,
        )

    def now_ms(self) -> int:
        return EPOCH_MS + round(self.now * 1000)

    def advance(self, delay_ms: float) -> None:
        """Advance the clock and run timers when they are due."""
        end = self.now + delay_ms / 1000
        while self.deadlines.next_at() <= end + ROUNDING:
            self.now = max(self.now, self.deadlines.next_at())
            self._run_due()
        self.now = max(self.now, end)

    def _run_due(self) -> None:
        """Run due timers; as in the broker, those that fail are retried."""
        while (due := self.deadlines.take_due()) is not None:
            key, action = due
            self.retried.discard(key)
            try:
                action()
            except KafkaError:
                self.retried.add(key)
                if key not in self.deadlines:
                    self.deadlines.set(key, RETRY_BACKOFF_MS, action)

    def settle(self, limit_ms: float = 86_400_000) -> None:
        """Advance the clock until no timer is left."""
        end = self.now + limit_ms / 1000
        while self.deadlines.next_at() < NEVER:
            assert self.now < end, "deadlines without end"
            self.advance((self.deadlines.next_at() - self.now) * 1000)

    def client(self, api_version: int, client_id: str = "client") -> Client:
        return Client(client_id, "/127.0.0.1", api_version)

    def reloaded(self) -> GroupShard:
        """A shard that is loaded from the log, with its own timers, which never fire."""
        shard = GroupShard(PARTITION, self.log, self.context(Deadlines(lambda: self.now)))
        self.log.replay_into(shard)
        return shard

    def restart(self) -> None:
        """Restart the coordinator: volatile state is lost."""
        self.deadlines = Deadlines(lambda: self.now)
        self.shard = GroupShard(PARTITION, self.log, self.context(self.deadlines))
        self.log.replay_into(self.shard)
