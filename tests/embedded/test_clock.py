"""``kafka.clock`` of a broker in a test: what it moves, what it returns, what it refuses."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

import oncelog

Start = Any
TRANSACTIONAL: dict[str, Any] = {"transactional.id": "pay-7", "transaction.timeout.ms": 900_000}
"""The time-out is longer than any machine takes for a test, and shorter than what the test moves."""


@pytest.fixture(params=["thread", "process"])
def start(request: pytest.FixtureRequest) -> Start:
    return partial(oncelog.Broker, process=request.param == "process")


def test_time_is_the_machines_until_it_is_moved(start: Start) -> None:
    with start() as kafka:
        clock = kafka.clock
        assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=60)
        assert clock.advance(timedelta(hours=1), minutes=30, seconds=0.5, milliseconds=500) == []
        moved = clock.now() - datetime.now(UTC)
        assert timedelta(seconds=5401 - 60) < moved < timedelta(seconds=5401 + 60)
        clock.freeze()
        assert clock.is_frozen
        frozen = clock.now_ms()
        clock.advance(days=7)
        assert clock.now_ms() - frozen == 7 * 24 * 3600 * 1000
        noon = datetime(2099, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
        clock.set(noon)
        assert clock.now() == noon
        clock.set(clock.now_ms() + 1)
        clock.resume()
        assert not clock.is_frozen
        kafka.reset()
        assert abs(kafka.clock.now() - datetime.now(UTC)) < timedelta(seconds=60)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda clock: clock.advance(days=-1), "seconds=-86400.0: time does not go back"),
        (lambda clock: clock.advance(timedelta(seconds=-1)), "does not go back"),
        (lambda clock: clock.advance(hours="3"), "hours='3': expected a number"),
        (lambda clock: clock.advance(seconds=True), "seconds=True: expected a number"),
        (lambda clock: clock.advance(seconds=float("nan")), "cannot be moved so far"),
        (
            lambda clock: clock.advance(5),
            "advance\\(5\\): expected a timedelta, or words: advance\\(seconds=5\\)",
        ),
        (lambda clock: clock.advance(days=10**9), "cannot be moved so far"),
        (lambda clock: clock.advance(days=365 * 9000), "time ends with the year 9999"),
        (lambda clock: clock.advance(days=1, members="expired"), "members='expired'; did you mean expire\\?"),
        (lambda clock: clock.advance(days=1, timeout=0), "timeout=0: expected seconds, more than 0"),
        (lambda clock: clock.set(datetime(2099, 1, 1)), "without a time zone"),
        (lambda clock: clock.set(datetime(2020, 1, 1, tzinfo=UTC)), "cannot be set back.*after 2020-01-01"),
        (lambda clock: clock.set(1_000), "cannot be set back"),
        (lambda clock: clock.set("2099-01-01"), "expected a datetime, or milliseconds"),
        (lambda clock: clock.set(10**18), "time ends with the year 9999"),
    ],
)
def test_wrong_use_is_refused_before_anything_moves(call: Any, says: str) -> None:
    with oncelog.Broker() as kafka:
        kafka.clock.freeze()
        before = kafka.clock.now_ms()
        with pytest.raises(oncelog.InvalidArgumentError, match=says):
            call(kafka.clock)
        assert kafka.clock.now_ms() == before
        with pytest.raises(TypeError):
            kafka.clock.advance(weeks=1)  # type: ignore[call-arg]


def test_retention_offsets_and_transactions_in_a_moment(start: Start) -> None:
    with start(topics=["orders"]) as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        consumer = Consumer({**servers, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        producer = Producer({**servers, **TRANSACTIONAL})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(60)
        info = kafka.transactions["pay-7"].info
        happened = kafka.clock.advance(days=7, seconds=1)
        first, *rest = (str(one) for one in happened)
        about = f"(producer id {info.producer_id}, epoch {info.producer_epoch})"
        assert first == f"transaction pay-7 {about}: timed out, aborted"
        assert set(rest) == {
            f"topic orders partition 0: producer id {info.producer_id} expired",
            "group billing: 1 offset expired",
            "group billing: removed, since it has neither members nor offsets",
        }
        assert happened[0].at_ms < happened[-1].at_ms
        assert kafka.transactions["pay-7"].state == "CompleteAbort"


@pytest.mark.slow
def test_time_moves_while_the_broker_is_stopped() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **TRANSACTIONAL})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(60)
        kafka.stop()
        assert kafka.clock.advance(hours=1) == []
        kafka.start()
        assert [one.what for one in kafka.clock.advance()] == ["transaction timed out"]


def test_one_member_and_one_transaction_expire() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        with pytest.raises(oncelog.NotFoundError, match="there is no group 'billing'"):
            kafka.group("billing").expire_member("c-1")
        with pytest.raises(oncelog.NotFoundError, match="there is no transactional id 'pay-7'"):
            kafka.transactions["pay-7"].expire()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **TRANSACTIONAL})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(60)
        [happened] = kafka.transactions["pay-7"].expire()
        assert (happened.what, happened.about["transactional_id"]) == ("transaction timed out", "pay-7")
        with pytest.raises(
            oncelog.InvalidArgumentError, match="no open transaction: its state is CompleteAbort"
        ):
            kafka.transactions["pay-7"].expire()


def test_the_same_under_trio() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker() as kafka:
            await kafka.clock.freeze()
            before = await kafka.clock.now()
            assert await kafka.clock.advance(days=7) == []
            assert await kafka.clock.now() - before == timedelta(days=7)
            assert await kafka.clock.is_frozen

    trio.run(main)


def test_on_a_disk_it_waits_for_the_threads(tmp_path: Path) -> None:
    """The markers are written when the decision is on the disk, and the compacted segment when it is synced."""
    config_of_topic = {
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "message.timestamp.type": "LogAppendTime",
    }
    config = {"log.flush.interval.messages": 1}
    with oncelog.Broker(
        topics={"orders": {"config": config_of_topic}}, config=config, data_dir=tmp_path / "data"
    ) as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        plain = Producer(servers)
        for _ in range(3):
            for value in range(100):
                plain.produce("orders", str(value), b"key")
            plain.flush(60)
            kafka.clock.advance(hours=2)
        compacted = {record.offset for record in kafka.topic("orders").records()}
        assert len(compacted) < 300
        producer = Producer({**servers, **TRANSACTIONAL})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"value", b"key")
        producer.flush(60)
        assert "transaction timed out" in [one.what for one in kafka.clock.advance(hours=1)]
        assert kafka.transactions["pay-7"].state == "CompleteAbort"
        [partition] = kafka.topic("orders").info.partitions
        assert partition.last_stable_offset == partition.high_watermark == partition.log_end_offset


def test_moves_at_once_are_made_one_after_the_other() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker() as kafka:
            await kafka.clock.freeze()
            before = await kafka.clock.now()
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(lambda: kafka.clock.advance(days=7))
            assert await kafka.clock.now() - before == timedelta(days=35)

    trio.run(main)


@pytest.mark.slow
def test_clients_go_on_while_time_is_moved() -> None:
    """Transactions that begin and end all the time do not keep it from its end. None of them is aborted, even if it is
    open all the time: all moves together are shorter than its timeout.
    """
    with oncelog.Broker(topics={"orders": 4}, config={"log.flush.interval.messages": 1}) as kafka:
        done = threading.Event()
        committed = []

        def work(number: int) -> None:
            producer = Producer(
                {
                    "bootstrap.servers": kafka.bootstrap_servers,
                    "transactional.id": f"id{number}",
                    "transaction.timeout.ms": TRANSACTIONAL["transaction.timeout.ms"],
                }
            )
            producer.init_transactions(60)
            while not done.is_set():
                producer.begin_transaction()
                for _ in range(20):
                    producer.produce("orders", b"value")
                producer.commit_transaction(60)
                committed.append(20)

        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(work, number) for number in range(4)]
            for _ in range(20):
                assert kafka.clock.advance(seconds=30, timeout=60) == []
            done.set()
            for worker in workers:
                worker.result(60)
        assert len(kafka.topic("orders").records(isolation="read_committed")) == sum(committed)
