"""Requests for 10,000 partitions of 10,000 topics stay far below the limit of a request's elements.

The bytes are encoded by tests.common from Kafka's definitions, not by our encoder.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from oncelog.wire.schema import Message
from tests.common.definitions import encode

TOPICS = 10_000
NAMES = [f"topic-{number}" for number in range(TOPICS)]
IDS = [number.to_bytes(16, "big") for number in range(TOPICS)]


def topics(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{name: topic, **fields} for topic in NAMES]


def by_id(**fields: Any) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, **fields} for topic_id in IDS]


CONFIGS = [{"name": f"key.{number}", "value": "1"} for number in range(3)]
# Two partitions with three brokers each, and three configs: 14 elements for each topic.
ASSIGNED = [{"partition_index": at, "broker_ids": [1, 2, 3]} for at in range(2)]
REQUESTS: list[tuple[str, int, dict[str, Any]]] = [
    ("Metadata", 13, {"topics": topics("name")}),
    ("Fetch", 18, {"topics": by_id(partitions=[{}]), "forgotten_topics_data": by_id(partitions=[0])}),
    ("ListOffsets", 11, {"topics": topics("name", partitions=[{}])}),
    ("OffsetCommit", 10, {"topics": by_id(partitions=[{}])}),
    ("OffsetFetch", 10, {"groups": [{"topics": by_id(partition_indexes=[0])}]}),
    ("OffsetFetch", 9, {"groups": [{"group_id": str(n), "topics": None} for n in range(TOPICS)]}),
    ("DescribeConfigs", 4, {"resources": topics("resource_name", resource_type=2, configuration_keys=NAMES[:3])}),
    ("IncrementalAlterConfigs", 1, {"resources": topics("resource_name", resource_type=2, configs=CONFIGS)}),
    ("CreateTopics", 7, {"topics": topics("name", assignments=ASSIGNED, configs=CONFIGS)[:5000]}),
    ("DeleteTopics", 6, {"topics": topics("name")}),
    ("AddPartitionsToTxn", 3, {"v3_and_below_topics": topics("name", partitions=[0])}),
    ("TxnOffsetCommit", 6, {"topics": by_id(partitions=[{}])}),
    ("ConsumerGroupHeartbeat", 1, {"topic_partitions": by_id(partitions=[0]), "subscribed_topic_names": NAMES}),
    ("Produce", 13, {"topic_data": by_id(partition_data=[{"records": b"batch"}])}),
]  # fmt: skip


@pytest.mark.parametrize(("api", "version", "values"), REQUESTS, ids=lambda value: str(value)[:24])
def test_ten_thousand_partitions(api: str, version: int, values: dict[str, Any]) -> None:
    snake = "".join("_" + one.lower() if one.isupper() else one for one in api).lstrip("_")
    cls: type[Message] = getattr(import_module(f"oncelog.wire.messages.{snake}"), f"{api}Request")
    message = cls.decode(encode(f"{api}Request", version, values), version)
    rows = sum(len(getattr(message, name) or ()) for name in values)
    assert rows == sum(len(value) for value in values.values())
