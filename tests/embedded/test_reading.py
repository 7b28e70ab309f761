"""What a test writes, reads and waits for, by `oncelog.Broker` and `oncelog.AsyncBroker`, in both carriers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing
from confluent_kafka import Consumer, Producer

import oncelog

PATIENCE_S = 60


@pytest.fixture(params=["thread", "process"])
def kafka(request: pytest.FixtureRequest) -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"orders": 2}, process=request.param == "process") as broker:
        yield broker


def test_all_that_is_written_and_read(kafka: oncelog.Broker) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    one = kafka.produce(
        "orders", "välue", b"key", headers=[("a", "1"), ("a", None)], timestamp=at, partition=1
    )
    assert one == kafka.topic("orders").records()[0]
    assert (one.value, one.headers, one.time) == ("välue".encode(), (("a", b"1"), ("a", None)), at)
    kafka.produce_many("orders", ({"value": str(number), "partition": 0} for number in range(3)))
    orders = kafka.topic("orders")
    assert [row.value for row in orders.records(partition=0, from_offset=1, limit=1)] == [b"1"]
    assert orders.end_offsets == orders.last_stable_offsets == {0: 3, 1: 1}
    assert orders.delete_records({0: 2}) == {0: 2}
    assert orders.start_offsets == {0: 2, 1: 0}
    assert orders.config["cleanup.policy"] == "delete"
    assert orders.producers == kafka.producers == []
    billing = kafka.group("billing")
    billing.commit({"orders": {0: 2}})
    assert (billing.state, billing.members, billing.committed) == ("Empty", (), {"orders": {0: 2}})
    assert billing.lag == {"orders": {0: 1}}
    assert kafka.groups == ["billing"]
    assert kafka.transactions.all() == kafka.transactions.open() == []
    assert not kafka.transactions["app"].exists
    with pytest.raises(TypeError):
        iter(kafka.transactions)  # type: ignore[call-overload]
    made = kafka.create_topic("audit", config={"retention.ms": 7})
    assert made.info.overrides == {"retention.ms": "7"}
    made.delete()
    assert kafka.topics == ["orders"]
    assert kafka.requests() == []


def test_what_a_client_sent(kafka: oncelog.Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "app"})
    producer.produce("orders", b"value", b"key")
    request = kafka.wait_for("Produce", topic="orders", client_id="app", timeout=PATIENCE_S)
    assert [record.value for record in request.records] == [b"value"]
    assert request.body.topic_data[0].name == "orders"
    assert [one.outcome for one in kafka.requests("Produce")] == ["responded"]
    assert {one.api for one in kafka.requests(client_id="app")} >= {"ApiVersions", "Metadata", "Produce"}
    kafka.stop()
    assert kafka.requests("Produce") == [request]
    kafka.start()
    kafka.reset()
    assert kafka.requests("Produce") == []


def test_errors_arrive_as_they_are(kafka: oncelog.Broker) -> None:
    with pytest.raises(oncelog.NotFoundError, match="there is no topic 'order'; did you mean orders"):
        kafka.topic("order").records()
    with pytest.raises(oncelog.NotFoundError, match="there is no group 'billing'"):
        _ = kafka.group("billing").state
    with pytest.raises(oncelog.InvalidArgumentError, match="api='Prodcue'; did you mean Produce"):
        kafka.wait_for("Prodcue")
    with pytest.raises(oncelog.WaitTimeoutError, match="no Produce in 0 s"):
        kafka.wait_for("Produce", timeout=0)
    with pytest.raises(oncelog.KafkaError) as caught:
        kafka.produce("orders", bytes(2_000_000))
    assert caught.value.code is oncelog.ErrorCode.MESSAGE_TOO_LARGE
    kafka.stop()
    with pytest.raises(oncelog.NotRunningError, match="start"):
        kafka.topic("orders").records()


@pytest.mark.slow
def test_waits_of_several_threads(kafka: oncelog.Broker) -> None:
    found: list[Any] = []
    waits = [
        lambda: kafka.topic("orders").wait_for_records(2, timeout=PATIENCE_S),
        lambda: kafka.wait_for("Produce", timeout=PATIENCE_S),
        lambda: kafka.group("billing").wait_for(lag=0, timeout=PATIENCE_S),
        lambda: kafka.group("billing").wait_for(committed={"orders": {0: 2}}, timeout=PATIENCE_S),
    ]
    threads = [threading.Thread(target=lambda wait=wait: found.append(wait())) for wait in waits]
    for thread in threads:
        thread.start()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(2):
        producer.produce("orders", b"value", partition=0)
    settings = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    consumer.subscribe(["orders"])
    for _ in range(2):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        consumer.commit(message=message, asynchronous=False)
    for thread in threads:
        thread.join()
    assert len(found) == len(waits)
    consumer.close()


async def use() -> None:
    async with oncelog.AsyncBroker(topics={"orders": 2}) as kafka:
        await kafka.produce("orders", b"value")
        assert [one.value for one in await kafka.topic("orders").wait_for_records(1)] == [b"value"]
        assert await kafka.topic("orders").end_offsets == {0: 1, 1: 0}
        await kafka.group("billing").commit({"orders": {0: 1}})
        assert (await kafka.group("billing").wait_for(lag=0, state="Empty")).is_simple
        assert await kafka.transactions["app"].exists is False


def test_asyncio() -> None:
    asyncio.run(use())


def test_trio() -> None:
    trio.run(use)


def test_a_wait_can_be_cancelled() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker() as kafka:
            for wait in (kafka.wait_for("Produce"), kafka.topic("t").wait_for_records(1)):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait, 0.05)
            assert await kafka.requests() == []

    asyncio.run(main())


def test_waits_outlive_a_restart_and_a_reset() -> None:
    async def main() -> None:
        found: list[Any] = []

        async def keep(wait: Any) -> None:
            found.append(await wait)

        async with oncelog.AsyncBroker(topics={"orders": 1}) as kafka, trio.open_nursery() as nursery:
            orders, billing = kafka.topic("orders"), kafka.group("billing")
            for wait in (
                orders.wait_for_records(timeout=PATIENCE_S),
                billing.wait_for(committed={"orders": {0: 1}}, timeout=PATIENCE_S),
            ):
                nursery.start_soon(keep, wait)
            await trio.testing.wait_all_tasks_blocked()
            await kafka.kill()
            await kafka.start()
            await kafka.reset()
            assert found == []
            [written] = await kafka.produce_many("orders", ["value"])
            await billing.commit({"orders": {0: 1}})
        assert [written] in found
        assert len(found) == 2

    trio.run(main)
