"""Metrics of clients: subscriptions to them, and waits that say why they do not come."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from confluent_kafka import Producer

import oncelog
from oncelog.broker.metadata.image import CLIENT_METRICS
from tests.control_http.asking import ask, controlled

PATIENCE_S = 60
ENABLED = {"oncelog.client.metrics.enable": True}
PRODUCERS = "org.apache.kafka.producer."


def test_a_subscription_is_made_and_a_client_follows_it() -> None:
    with oncelog.Broker(topics=["orders"], config=ENABLED) as kafka:
        kafka.configure_client_metrics(
            "shops", {"metrics": [PRODUCERS], "interval.ms": 100, "match": ["client_id=shop.*"]}
        )
        settings = {"bootstrap.servers": kafka.bootstrap_servers}
        producers = [Producer({**settings, "client.id": name}) for name in ("other", "shop-1")]
        for producer in producers:
            producer.produce("orders", b"coffee")
            assert producer.flush(PATIENCE_S) == 0
        push = kafka.wait_for_client_metrics(name=PRODUCERS, timeout=PATIENCE_S)
        assert push.client_id == "shop-1"
        assert all(one.name.startswith(PRODUCERS) for one in push.metrics)
        assert kafka.client_metrics(client_id="other") == []


def test_wrong_subscriptions() -> None:
    with oncelog.Broker(config=ENABLED) as kafka:
        for name, config, said in (
            ("", {"metrics": "*"}, "the name of the subscription is empty"),
            ("all", {"interval.ms": 99}, "subscription all: Invalid value 99 for interval.ms"),
            ("all", {"match": "client=shop"}, "Illegal client matching pattern"),
            ("all", {"interval": 100}, "; did you mean interval.ms"),
        ):
            with pytest.raises(oncelog.InvalidArgumentError, match=said):
                kafka.configure_client_metrics(name, config)
        with pytest.raises(oncelog.WaitTimeoutError, match="there is no subscription"):
            kafka.wait_for_client_metrics(timeout=0)
    with (
        oncelog.Broker() as kafka,
        pytest.raises(oncelog.InvalidArgumentError, match=r"set oncelog.client.metrics.enable=true"),
    ):
        kafka.configure_client_metrics("all", {"metrics": "*"})


def test_a_subscription_over_http() -> None:
    async def main() -> None:
        async with controlled(config=ENABLED) as (broker, app):
            path = "/client-metrics/subscriptions/all"
            refused: Any = await ask(app, "POST", path, {"interval.ms": 99})
            assert refused.status == 400
            done = await ask(app, "POST", path, {"metrics": PRODUCERS, "interval.ms": 100})
            assert done.status == 204, done.body
            texts = broker.node.metadata.image.configs[CLIENT_METRICS, "all"]
            assert texts == {"metrics": PRODUCERS, "interval.ms": "100"}

    trio.run(main)


def test_a_wait_says_why_there_are_no_metrics() -> None:
    with (
        oncelog.Broker(config=ENABLED) as kafka,
        pytest.raises(oncelog.WaitTimeoutError, match=r"pushed 0 times; there is no subscription"),
    ):
        kafka.wait_for_client_metrics(timeout=0)
