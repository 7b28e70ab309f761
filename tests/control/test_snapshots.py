"""Snapshots: what a broker has, in one file, and what another broker makes of it."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import oncelog
from oncelog.broker.control import snapshots
from oncelog.broker.control.controlled_broker import ControlledBroker
from oncelog.broker.control.operations import call_operation
from oncelog.broker.control.options import checked_options
from oncelog.broker.control.types import Record
from tests.control.snapshot_files import rewritten

DAY_MS = 24 * 3_600_000
TRANSACTION_TIMEOUT_MS = 600_000
GROUP = "billing"


def fill(kafka: oncelog.Broker) -> Producer:
    """Give it records, a committed offset, a committed and an open transaction, whose producer is returned."""
    address = {"bootstrap.servers": kafka.bootstrap_servers}
    plain = Producer({**address, "enable.idempotence": True})
    for number in range(5):
        plain.produce("orders", f"v{number}", key="k", partition=number % 2, headers={"h": b"x"})
    assert plain.flush(60) == 0
    limits = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    transactional = Producer({**address, **limits, "transactional.id": "app"})
    transactional.init_transactions(60)
    for value in ("committed", "open"):
        transactional.begin_transaction()
        transactional.produce("orders", value, partition=0)
        assert transactional.flush(60) == 0
        if value == "committed":
            transactional.commit_transaction(60)
    consumer = Consumer({**address, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    consumer.close()
    return transactional


def state(kafka: oncelog.Broker) -> dict[str, Any]:
    """What a broker has."""
    group, topic = kafka.group(GROUP).info, kafka.topic("orders").info
    return {
        "cluster": kafka.cluster_id,
        "topics": kafka.topics,
        "topic": (topic.topic_id, topic.overrides, [row.last_stable_offset for row in topic.partitions]),
        "committed records": content(kafka, "read_committed"),
        "all records": content(kafka, "read_uncommitted"),
        "group": (group.committed, group.state, group.type),
        "transactions": [replace(row, start_ms=0, last_update_ms=0) for row in kafka.transactions.all()],
        "producers": [
            (row.partition, row.producer_id, row.last_sequence, row.transaction_start_offset)
            for row in kafka.producers
        ],
    }


def content(kafka: oncelog.Broker, isolation: str) -> list[Record]:
    records = kafka.topic("orders").records(isolation=isolation)  # type: ignore[arg-type]
    # A start after an unclean stop raises the leader epoch for records from then on, not of these.
    return list(records)


def started(content: bytes) -> dict[str, Any]:
    with oncelog.Broker(from_snapshot=content) as kafka:
        return state(kafka)


def a_day_later(content: bytes) -> bytes:
    """The snapshot as if it were loaded a day later than it is."""
    manifest = snapshots.decode(content, "it").manifest
    return rewritten(content, clock_ahead_ms=manifest.clock_ahead_ms + DAY_MS)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["runs", "stopped", "killed"])
@pytest.mark.parametrize(("from_disk", "to_disk"), [(False, False), (True, False), (False, True)])
def test_another_broker_has_everything(end: str, from_disk: bool, to_disk: bool, tmp_path: Path) -> None:
    seed = tmp_path / "seed.oncelog"
    directory = tmp_path / "first" if from_disk else None
    overrides = {"orders": {"partitions": 2, "config": {"retention.ms": "-1"}}}
    with oncelog.Broker(overrides, data_dir=directory) as kafka:
        producer = fill(kafka)
        before = state(kafka)
        if end != "runs":
            (kafka.stop if end == "stopped" else kafka.kill)()
        kafka.snapshot(seed)
        if end == "runs":
            kafka.stop()
            changed = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            kafka.start()
            changed.produce("orders", b"later", partition=0)
            assert changed.flush(60) == 0
        del producer
    with oncelog.Broker(from_snapshot=seed, data_dir=tmp_path / "second" if to_disk else None) as kafka:
        assert state(kafka) == before
        again = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "app"})
        again.init_transactions(60)  # ends the open transaction
        again.begin_transaction()
        again.produce("orders", b"next", partition=1)
        again.commit_transaction(60)
        assert [
            one.value for one in kafka.topic("orders").records(isolation="read_committed", partition=1)
        ] == [
            b"v1",
            b"v3",
            b"next",
        ]
        assert all(one.producer_id >= 0 for one in kafka.producers)
    assert os.listdir(tmp_path).count("seed.oncelog.tmp") == 0


@pytest.mark.slow
def test_ids_are_not_given_again() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        idempotent = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
        idempotent.produce("orders", b"v")
        assert idempotent.flush(60) == 0
        (before,) = kafka.producers
        seed = kafka.snapshot_bytes()
    with oncelog.Broker(from_snapshot=seed) as kafka:
        idempotent = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
        idempotent.produce("orders", b"v")
        assert idempotent.flush(60) == 0
        assert len({before.producer_id, *(one.producer_id for one in kafka.producers)}) == 2


@pytest.mark.slow
def test_many_brokers_start_from_one_file(tmp_path: Path) -> None:
    with oncelog.Broker(topics={"orders": 2}) as kafka:
        fill(kafka)
        before = state(kafka)
        kafka.snapshot(tmp_path / "seed")
    with (
        oncelog.Broker(from_snapshot=tmp_path / "seed") as one,
        oncelog.Broker(from_snapshot=tmp_path / "seed") as two,
    ):
        assert one.bootstrap_servers != two.bootstrap_servers
        assert state(one) == state(two) == before
        one.stop()
        assert state(two) == before


def test_the_configuration_comes_along_and_can_be_overridden() -> None:
    config = {"log.retention.ms": "-1", "message.max.bytes": "5000"}
    with oncelog.Broker(["orders"], config) as kafka:
        seed = kafka.snapshot_bytes()
    with oncelog.Broker({"more": 1}, {"message.max.bytes": "6000"}, from_snapshot=seed) as kafka:
        assert kafka.topics == ["more", "orders"]
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        found = admin.describe_configs([resource])[resource].result(60)
        assert (found["retention.ms"].value, found["max.message.bytes"].value) == ("-1", "6000")
        second = kafka.snapshot_bytes()
    kept = snapshots.decode(second, "it").manifest.config
    assert kept == {"log.retention.ms": "-1", "message.max.bytes": "6000"}


def test_neither_the_address_nor_a_password_comes_along() -> None:
    config = {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
        "ssl.key.password": "secret",
        "num.partitions": "3",
    }
    with oncelog.Broker(["orders"], config) as kafka:
        seed = kafka.snapshot_bytes()
    assert snapshots.decode(seed, "it").manifest.config == {"num.partitions": "3"}
    with oncelog.Broker(from_snapshot=seed) as kafka:
        assert kafka.topics == ["orders"]


OF_ITS_OWN = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "log.dirs": "/nowhere",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "delegation.token.secret.key": "mine",
}
"""What somebody may write into a snapshot's file."""


def test_what_a_snapshot_leaves_out_is_left_out_when_it_is_loaded() -> None:
    """Somebody has changed the file."""
    with oncelog.Broker(["orders"], {"num.partitions": "3"}) as kafka:
        seed = rewritten(kafka.snapshot_bytes(), config={**OF_ITS_OWN, "num.partitions": "3"})
    with oncelog.Broker(from_snapshot=seed, users={"app": "x"}) as kafka:
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=1)
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            settings = kafka.client_config("confluent-kafka", user="app", mechanism=mechanism)
            assert set(AdminClient(settings).list_topics(timeout=60).topics) == {"orders"}
        again = snapshots.decode(kafka.snapshot_bytes(), "it").manifest.config
        assert again == {"num.partitions": "3"}


def test_what_the_program_says_wins_over_a_snapshot() -> None:
    with oncelog.Broker(["orders"]) as kafka:
        seed = rewritten(kafka.snapshot_bytes(), config={"authorizer.class.name": "", "num.partitions": "3"})
    with oncelog.Broker(from_snapshot=seed, users={"app": "x"}, acls=[]) as kafka:
        settings = kafka.client_config("confluent-kafka", user="app")
        assert set(AdminClient(settings).list_topics(timeout=60).topics) == set()


@pytest.mark.slow
def test_reset_goes_back_to_the_snapshot() -> None:
    with oncelog.Broker(topics={"orders": 2}) as kafka:
        fill(kafka)
        seed = kafka.snapshot_bytes()
        before = state(kafka)
    with oncelog.Broker({"more": 1}, from_snapshot=seed) as kafka:
        kafka.reset()
        assert state(kafka) == {**before, "topics": ["more", "orders"]}
        kafka.kill()
        kafka.start()
        assert state(kafka) == {**before, "topics": ["more", "orders"]}
        kafka.lose_power()
        kafka.start()
        assert content(kafka, "read_committed") == before["committed records"]


def test_it_is_one_instant_of_a_broker_that_goes_on() -> None:
    """What was acknowledged before the snapshot is in it, and of every partition a beginning."""
    acknowledged: list[int] = []
    enough, over = threading.Event(), threading.Event()

    def produce(bootstrap_servers: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        number = 0
        while not over.is_set():
            producer.produce(
                "orders",
                b"%010d" % number + bytes(5000),
                on_delivery=lambda error, message: acknowledged.append(int((message.value() or b"-1")[:10])),
            )
            number += 1
            if number % 50 == 0:
                producer.flush(60)
            if len(acknowledged) > 500:
                enough.set()
        producer.flush(60)

    with oncelog.Broker({"orders": {"config": {"segment.bytes": str(1 << 20)}}}) as kafka:
        thread = threading.Thread(target=produce, args=(kafka.bootstrap_servers,))
        thread.start()
        try:
            assert enough.wait(60)
            taken = []
            for _ in range(3):
                count = len(acknowledged)
                taken.append((count, kafka.snapshot_bytes()))
        finally:
            over.set()
            thread.join()
    for count, seed in taken:
        with oncelog.Broker(from_snapshot=seed) as kafka:
            values = [int((record.value or b"-1")[:10]) for record in kafka.topic("orders").records()]
            assert values == list(range(len(values)))
            assert len(values) >= count


# -- time


@asynccontextmanager
async def controlled(content: bytes) -> AsyncIterator[ControlledBroker]:
    broker = ControlledBroker(checked_options(from_snapshot=content))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await broker.start()
        yield broker
        await broker.stop()
        nursery.cancel_scope.cancel()


async def advance(broker: ControlledBroker, seconds: float) -> None:
    broker.clock.advance(seconds)
    await trio.testing.wait_all_tasks_blocked(0.01)


async def transaction_state(broker: ControlledBroker) -> str:
    found = await call_operation(broker, "transaction", {"transactional_id": "app"})
    return str(found.state)


def filled(**config: str) -> bytes:
    texts = {key.replace("_", "."): value for key, value in config.items()}
    with oncelog.Broker({"orders": 2}, texts) as kafka:
        fill(kafka)
        return kafka.snapshot_bytes()


@pytest.mark.slow
def test_an_open_transaction_keeps_the_time_that_it_has_left() -> None:
    async def main() -> None:
        async with controlled(a_day_later(seed)) as broker:
            await advance(broker, 300)
            assert await transaction_state(broker) == "Ongoing"
            second = await call_operation(broker, "snapshot", {})
        async with controlled(a_day_later(second)) as broker:
            await advance(broker, 200)
            assert await transaction_state(broker) == "Ongoing"
            await advance(broker, 300)
            assert await transaction_state(broker) == "CompleteAbort"

    seed = filled()
    trio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["0", "1"], ids=["plain", "gzip"])
def test_offsets_and_records_keep_the_time_that_they_have_left(codec: str) -> None:
    seed = filled(
        offsets_retention_minutes=str(3 * 60),
        log_retention_ms=str(3 * 3_600_000),
        offsets_topic_compression_codec=codec,
        # The producers' client stamps records with the time of this machine, which is a day behind broker time.
    )

    async def committed(broker: ControlledBroker) -> bool:
        return GROUP in await call_operation(broker, "groups", {})

    async def count(broker: ControlledBroker) -> int:
        return len(await call_operation(broker, "records", {"topic": "orders", "partition": 1}))

    async def main() -> None:
        async with controlled(a_day_later(seed)) as broker:
            await advance(broker, 2 * 3600)
            assert (await committed(broker), await count(broker)) == (True, 2)
            second = await call_operation(broker, "snapshot", {})
        async with controlled(a_day_later(second)) as broker:
            await advance(broker, 0.8 * 3600)
            assert (await committed(broker), await count(broker)) == (True, 2)
            await advance(broker, 1200)
            await advance(broker, 1200)
            assert (await committed(broker), await count(broker)) == (False, 0)

    trio.run(main)


@pytest.mark.slow
def test_the_clocks_advance_comes_along() -> None:
    async def main() -> None:
        async with controlled(seed) as broker:
            await advance(broker, 7 * 24 * 3600)
            at = broker.clock.now_ms()
            second = await call_operation(broker, "snapshot", {})
        async with controlled(second) as broker:
            assert 0 <= broker.clock.now_ms() - at < DAY_MS

    seed = filled()
    trio.run(main)


@pytest.mark.slow
def test_a_clock_that_stands_still_stands_at_the_same_time() -> None:
    async def main() -> None:
        async with controlled(seed) as broker:
            broker.clock.freeze()
            at = broker.clock.now_ms()
            gaps = broker.files.read_bytes("/data/oncelog-time-gaps")  # from seed to here
            second = await call_operation(broker, "snapshot", {})
        async with controlled(second) as broker:
            assert broker.clock.is_frozen
            assert broker.clock.now_ms() == at
            assert broker.files.read_bytes("/data/oncelog-time-gaps") == gaps
            await advance(broker, 500)
            assert await transaction_state(broker) == "Ongoing"
            await advance(broker, 200)
            assert await transaction_state(broker) == "CompleteAbort"

    seed = filled()
    trio.run(main)


# -- the file


def test_the_same_state_gives_the_same_file() -> None:
    """So a seed in a repository changes only if the data has."""
    with oncelog.Broker(topics=["orders"]) as kafka:
        first, second = (snapshots.decode(kafka.snapshot_bytes(), "it") for _ in range(2))
    same = replace(second, manifest=first.manifest)
    assert snapshots.encode(first) == snapshots.encode(same)
