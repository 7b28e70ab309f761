"""The heartbeats of consumer groups and share groups refuse the same requests."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.consumer import heartbeat as consumer
from oncelog.coordinator.groups.modern.requests import TOPIC_NAMES_MAX
from oncelog.coordinator.groups.share import heartbeat as share
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.harness.group_shard import GroupShardHarness


def check(kind: str, names: list[str]) -> None:
    if kind == "share":
        share.check(ShareGroupHeartbeatRequest("g", "m", 0, None, names))
    else:
        request = ConsumerGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=names)
        request.rebalance_timeout_ms, request.topic_partitions = 1000, []
        consumer.check(GroupShardHarness().shard.context, request, 1)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_member_names_a_bounded_number_of_topics(kind: str) -> None:
    names = [f"t{number}" for number in range(TOPIC_NAMES_MAX)]
    check(kind, names)
    with pytest.raises(KafkaError, match="A member may name at most 10000 topics, not 10001") as caught:
        check(kind, [*names, "one more"])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
