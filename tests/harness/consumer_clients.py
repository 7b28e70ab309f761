"""Clients of consumer groups for tests: each sends heartbeats and reacts to the responses as a consumer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.consumer.heartbeat import check, heartbeat
from oncelog.coordinator.groups.modern.group import ModernGroup
from oncelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncelog.coordinator.groups.shard import GroupShard
    from tests.harness.group_shard import GroupShardHarness

REBALANCE_MS = 60_000
VERSION = 1
Rows = set[tuple[bytes, int]]


def send(harness: GroupShardHarness, request: ConsumerGroupHeartbeatRequest, version: int = VERSION) -> Any:
    """The step's response. Raises KafkaError."""
    client = harness.client(version)
    check(harness.shard.context, request, version)
    response = heartbeat(harness.shard, request, client)
    # Encoding checks that the response is valid.
    return ConsumerGroupHeartbeatResponse.decode(response.encode(version), version)


def group_of(shard: GroupShard, group_id: str = "g") -> ConsumerGroup:
    group = shard.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


def as_rows(partitions: Iterable[tuple[bytes, int]]) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic.items()]


class Consumer:
    """``owned``: the partitions that the client reads now. ``wanted``: its last assignment, None before the first."""

    def __init__(
        self,
        harness: GroupShardHarness,
        member_id: str,
        topics: Sequence[str] | None = ("t",),
        *,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        group: str = "g",
    ) -> None:
        self.harness = harness
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.group = group
        self.epoch = 0
        self.owned: Rows = set()
        self.wanted: Rows | None = None

    def request(self, **changes: Any) -> ConsumerGroupHeartbeatRequest:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        return ConsumerGroupHeartbeatRequest(**(fields | changes))

    def join(self, **changes: Any) -> Any:
        self.epoch, self.owned, self.wanted = 0, set(), None
        return self.take(
            send(
                self.harness,
                self.request(
                    rebalance_timeout_ms=REBALANCE_MS,
                    subscribed_topic_names=self.topics,
                    subscribed_topic_regex=self.regex,
                    server_assignor=self.assignor,
                    topic_partitions=[],
                    **changes,
                ),
            )
        )

    def beat(self, **changes: Any) -> Any:
        """A heartbeat without changed fields."""
        return self.take(send(self.harness, self.request(**changes)))

    def acknowledge(self) -> Any:
        """Revoke partitions that are not assigned, and report the owned ones."""
        if self.wanted is not None:
            self.owned &= self.wanted
        return self.beat(topic_partitions=as_rows(self.owned))

    def subscribe(self, topics: Sequence[str]) -> Any:
        self.topics = list(topics)
        return self.beat(subscribed_topic_names=self.topics)

    def leave(self, epoch: int = -1) -> Any:
        response = send(self.harness, self.request(member_epoch=epoch))
        self.owned, self.wanted = set(), None
        return response

    def take(self, response: Any) -> Any:
        """Process a response: own new partitions at once; `acknowledge` revokes others."""
        self.member_id, self.epoch = response.member_id, response.member_epoch
        if response.assignment is not None:
            self.wanted = {
                (row.topic_id, number)
                for row in response.assignment.topic_partitions
                for number in row.partitions
            }
            # A client revokes first, and takes new partitions after it has acknowledged that.
            if self.owned <= self.wanted:
                self.owned = set(self.wanted)
        return response

    def settle_down(self) -> None:
        """Own the assigned partitions, after others have been revoked."""
        if self.wanted is not None:
            self.owned = set(self.wanted)


def settle(harness: GroupShardHarness, consumers: Iterable[Consumer], rounds: int = 12) -> None:
    """All consumers acknowledge their assignments, for some rounds, one heartbeat interval apart."""
    members = list(consumers)
    for _ in range(rounds):
        harness.advance(5_000)
        for consumer in members:
            consumer.acknowledge()
            consumer.settle_down()


def target_of(shard: GroupShard, member_id: str, group_id: str = "g") -> Rows:
    targets = group_of(shard, group_id).targets.get(member_id, {})
    return {(topic_id, number) for topic_id, numbers in targets.items() for number in numbers}


def durable(shard: GroupShard) -> dict[str, Any]:
    """A copy of the durable state of the shard's groups, as plain values."""
    made: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if not isinstance(group, ConsumerGroup):
            made[group_id] = getattr(group, "stored", None)
            continue
        slots = [*ModernGroup.__slots__, *ConsumerGroup.__slots__]
        fields = [name for name in slots if name not in ("volatile", "subscriptions")]
        made[group_id] = {name: _copy(getattr(group, name)) for name in fields}
        for name in ("by_names", "regexes", "resolved"):
            made[group_id][name] = _copy(getattr(group.subscriptions, name))
    return made


def _copy(value: Any) -> Any:
    """Members, records and sets are immutable, so need no copy."""
    return {key: _copy(one) for key, one in value.items()} if isinstance(value, dict) else value
