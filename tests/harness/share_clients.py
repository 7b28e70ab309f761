"""Clients of share groups for tests of the state machine, and a share coordinator that answers when a test wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.modern.group import ModernGroup
from oncelog.coordinator.groups.share import initialization
from oncelog.coordinator.groups.share.group import ShareGroup
from oncelog.coordinator.groups.share.heartbeat import check, heartbeat
from oncelog.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.groups.share.initialization import Initialization
    from tests.harness.group_shard import GroupShardHarness

VERSION = 1
Rows = set[tuple[bytes, int]]


class ShareStates:
    """What heartbeats want to be initialized, and what is."""

    def __init__(self, harness: GroupShardHarness) -> None:
        self.harness = harness
        self.begun: list[Initialization] = []
        self.start_offsets: dict[tuple[bytes, int], int] = {}

    def finish(self, *, failed: bool = False) -> None:
        """End the oldest initialization. Raises KafkaError if the group's log fails."""
        begun = self.begun.pop(0)
        partitions = {topic_id: list(offsets) for topic_id, offsets in begun.start_offsets.items()}
        if failed:
            initialization.not_initialized(self.harness.shard, begun.group_id, partitions)
            return
        for topic_id, offsets in begun.start_offsets.items():
            self.start_offsets.update({(topic_id, number): offset for number, offset in offsets.items()})
        initialization.initialized(self.harness.shard, begun.group_id, partitions)

    def finish_all(self) -> None:
        while self.begun:
            self.finish()


class ShareConsumer:
    """``assigned``: the partitions of its last assignment."""

    def __init__(self, states: ShareStates, member_id: str, topics: Sequence[str], group: str = "g") -> None:
        self.states = states
        self.member_id = member_id
        self.topics = list(topics)
        self.group = group
        self.epoch = 0
        self.assigned: Rows = set()

    def join(self) -> Any:
        self.epoch = 0
        return self.beat(subscribed_topic_names=self.topics)

    def subscribe(self, topics: Sequence[str]) -> Any:
        self.topics = list(topics)
        return self.beat(subscribed_topic_names=self.topics)

    def leave(self) -> Any:
        self.epoch = -1
        return self.beat()

    def beat(self, **changes: Any) -> Any:
        """The response to a heartbeat. Raises KafkaError."""
        harness = self.states.harness
        request = ShareGroupHeartbeatRequest(self.group, self.member_id, self.epoch, **changes)
        check(request)
        response, begun = heartbeat(harness.shard, request, harness.client(VERSION))
        if begun is not None:
            self.states.begun.append(begun)
        # Encoding checks that the response is valid.
        told: Any = ShareGroupHeartbeatResponse.decode(response.encode(VERSION), VERSION)
        self.epoch = told.member_epoch
        if told.assignment is not None:
            self.assigned = {
                (row.topic_id, number)
                for row in told.assignment.topic_partitions
                for number in row.partitions
            }
        return told


def share_group_of(shard: GroupShard, group_id: str = "g") -> ShareGroup:
    group = shard.groups[group_id]
    assert isinstance(group, ShareGroup)
    return group


def durable(shard: GroupShard) -> dict[str, Any]:
    """A copy of the durable state of the shard's share groups, as plain values."""
    made = {}
    slots = [*ModernGroup.__slots__, *ShareGroup.__slots__]
    for group_id, group in shard.groups.items():
        fields = [name for name in slots if name not in ("volatile", "subscriptions")]
        made[group_id] = {name: _copy(getattr(group, name)) for name in fields}
        made[group_id]["topics"] = dict(share_group_of(shard, group_id).subscriptions.by_names)
    return made


def _copy(value: Any) -> Any:
    return {key: _copy(one) for key, one in value.items()} if isinstance(value, dict) else value
