"""confluent-kafka's share consumers."""

from __future__ import annotations

from typing import Any

import oncelog


def settle(kafka: oncelog.Broker | oncelog.Proxy, consumer: Any, client_id: str) -> None:
    """Poll a share consumer until it fetches.

    Before that it must not be closed: in about one of thirty cases `close` never returns if it falls between the
    first assignment and the Metadata that tells the topic's name (librdkafka 2.16, "Preview").
    """
    while not kafka.requests("ShareFetch", client_id=client_id):
        consumer.poll(0.1)
