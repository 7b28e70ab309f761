"""A write of the test kit's own comes to a crash point: the broker dies as by a client's, and the test is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog

PATIENCE_S = 60
Work = Callable[[oncelog.Broker], object]

WRITES: list[tuple[str, int, str, Work, int, dict[str, dict[int, int]]]] = [
    ("before append", 1, "orders", lambda kafka: kafka.produce("orders", b"coffee"), 0, {}),
    ("after append", 1, "orders", lambda kafka: kafka.produce("orders", b"coffee"), 1, {}),
    ("after append", 2, "orders", lambda kafka: kafka.produce_many("orders", [b"x" * 200_000] * 3), 2, {}),
    ("before offsets", 1, "g", lambda kafka: kafka.group("g").commit({"orders": {0: 5}}), 0, {}),
    ("after offsets", 1, "g", lambda kafka: kafka.group("g").commit({"orders": {0: 5}}), 0, {"orders": {0: 5}}),
]  # fmt: skip
"""Crash point, the how many-th time, topic or group; the write; the records and committed offsets that it leaves."""


@pytest.mark.parametrize("process", [False, True])
def test_a_write_of_the_kit(process: bool) -> None:
    with oncelog.Broker(topics=["orders"], process=process) as kafka:
        for point, nth, name, write, records, committed in WRITES:
            kafka.reset()
            what: dict[str, Any] = {"group": name} if name == "g" else {"topic": name}
            rule = kafka.faults.crash_at(point, nth=nth, **what)
            with pytest.raises(oncelog.NotRunningError) as raised:
                write(kafka)
            assert str(raised.value) == (
                f"the broker died at rule {rule.id} ({rule.state.text}): start() starts it again"
            )
            assert f"crash_at: {point}" in str(raised.value)
            assert not kafka.is_running
            kafka.start()
            assert rule.fired == 1
            assert len(kafka.topic("orders").records()) == records
            assert (kafka.group("g").committed if "g" in kafka.groups else {}) == committed
            write(kafka)


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
def test_what_a_move_of_time_writes(process: bool) -> None:
    with oncelog.Broker(topics=["orders"], process=process) as kafka:
        works: dict[str, Work] = {
            "advance": lambda kafka: kafka.clock.advance(minutes=2),
            "expire": lambda kafka: kafka.transactions["expire"].expire(),
        }
        for name, work in works.items():
            producer = Producer(
                {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0}
            )
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
            producer.produce("orders", b"coffee")
            assert producer.flush(PATIENCE_S) == 0
            rule = kafka.faults.crash_at("after decision", transactional_id=name)
            with pytest.raises(
                oncelog.NotRunningError, match=rf"died at rule {rule.id} \(crash_at: after decision"
            ):
                work(kafka)
            kafka.start()
            assert kafka.transactions[name].state == "CompleteAbort"
