"""Settings for confluent-kafka that make a trial short: nothing here makes a program right or wrong."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Message, Producer
from service import SERVERS

COMMON: dict[str, Any] = {
    "bootstrap.servers": SERVERS,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    # With its only broker dead, librdkafka forgets it otherwise (docs/testing.md).
    "metadata.recovery.strategy": "none",
}
PRODUCER: dict[str, Any] = {**COMMON, "linger.ms": 0, "retry.backoff.max.ms": 50}
SHARE_CONSUMER: dict[str, Any] = {**COMMON, "group.id": "billing", "fetch.wait.max.ms": 100}
CONSUMER: dict[str, Any] = {
    **SHARE_CONSUMER,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 100,
    "fetch.error.backoff.ms": 20,
}


def connected(producer: Producer) -> Producer:
    """Wait for the broker. Asked for a transaction's coordinator before that, librdkafka waits for half a second."""
    producer.list_topics(timeout=10)
    return producer


def good(messages: Iterable[Message | None]) -> list[Message]:
    """Leave out the events that librdkafka reports among the messages."""
    return [one for one in messages if one is not None and one.error() is None]
