"""``kafka.clock`` of a broker in a test: what it moves, what it returns, what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

import oncelog

Start = Any


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
        producer = Producer({**servers, "transactional.id": "pay-7", "transaction.timeout.ms": 60_000})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(10)
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


def test_time_moves_while_the_broker_is_stopped() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "pay-7"})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(10)
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
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "pay-7"})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("orders", b"value")
        producer.flush(10)
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
