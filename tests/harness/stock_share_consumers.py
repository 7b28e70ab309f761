"""confluent-kafka's share consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ShareConsumer

import oncelog

PATIENCE_S = 60


def share_consumer(
    kafka: oncelog.Broker | oncelog.Proxy, *, group_id: str, topic: str, client_id: str = "one", **more: Any
) -> Any:
    """Return a share consumer of the topic that acknowledges each record itself, and soon connects again; ``more``:
    further settings.
    """
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group_id,
        "client.id": client_id,
        "share.acknowledgement.mode": "explicit",
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        **more,
    }
    consumer = ShareConsumer(settings)
    consumer.subscribe([topic])
    return consumer


@contextmanager
def consuming_share_group(
    kafka: oncelog.Broker | oncelog.Proxy, *, group_id: str, topic: str, client_id: str = "one"
) -> Iterator[Any]:
    """Have a `share_consumer`, which is closed in the end, once it fetches."""
    consumer = share_consumer(kafka, group_id=group_id, topic=topic, client_id=client_id)
    try:
        yield consumer
        settle(kafka, consumer, client_id)
    finally:
        consumer.close()


def settle(kafka: oncelog.Broker | oncelog.Proxy, consumer: Any, client_id: str) -> None:
    """Poll a share consumer until it fetches.

    Before that it must not be closed: in about one of thirty cases `close` never returns if it falls between the
    first assignment and the Metadata that tells the topic's name (librdkafka 2.16, "Preview").
    """
    while not kafka.requests("ShareFetch", client_id=client_id):
        consumer.poll(0.1)


def poll_within(consumer: Any, seconds: float) -> list[Any]:
    """Return the next records; none if none come within so many seconds."""
    for _ in range(int(seconds * 10)):
        found = [message for message in consumer.poll(0.1) if message.error() is None]
        if found:
            return found
    return []


def poll(consumer: Any) -> list[Any]:
    """Return the next records."""
    found = poll_within(consumer, PATIENCE_S)
    assert found, "no records"
    return found
