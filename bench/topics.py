"""Creation and deletion of topics, by confluent-kafka's admin client."""

import os
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from bench.librdkafka import QUIET
from bench.servers import Server

ADMIN_TIMEOUT_S = 120
PARTITIONS_AT_ONCE = 5000
REMOVAL_TIMEOUT_S = 10
POLL_S = 0.02


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, **QUIET})


def create(server: Server, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Create a topic in steps, because a controller's batch has at most 10,000 records."""
    first = min(partitions, PARTITIONS_AT_ONCE)
    new = NewTopic(topic, first, 1, config=dict(config or {}))
    admin = _admin(server)  # must outlive its futures
    timeouts = {"operation_timeout": ADMIN_TIMEOUT_S, "request_timeout": ADMIN_TIMEOUT_S}
    for future in admin.create_topics([new], **timeouts).values():
        future.result()
    for created in range(first, partitions, PARTITIONS_AT_ONCE):
        more = NewPartitions(topic, min(created + PARTITIONS_AT_ONCE, partitions))
        for future in admin.create_partitions([more], **timeouts).values():
            future.result()


def delete(server: Server, topic: str) -> None:
    """Delete a topic, wait until its files are removed, and flush dirty pages before the next measurement."""
    admin = _admin(server)
    for future in admin.delete_topics([topic], operation_timeout=ADMIN_TIMEOUT_S).values():
        future.result()
    deadline = time.monotonic() + REMOVAL_TIMEOUT_S
    while any(server.data_dir.glob(f"{topic}[-.]*")) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    os.sync()


def alter(server: Server, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = _admin(server)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def end_offset(server: Server, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench", **QUIET})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
    finally:
        consumer.close()
