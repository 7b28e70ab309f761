"""A test freezes or moves Python's time (freezegun, time-machine, `unittest.mock`): the time of the broker is real."""

from __future__ import annotations

import pytest

from tests.harness.child_program import output_of

FREEZES = {
    "freezegun": 'import freezegun\nfreeze = freezegun.freeze_time("2020-01-01")',
    "freezegun that ticks": 'import freezegun\nfreeze = freezegun.freeze_time("2040-01-01", tick=True)',
    "time-machine": "import time_machine\nfreeze = time_machine.travel(0, tick=False)",
    "a mock": 'from unittest import mock\nfreeze = mock.patch("time.monotonic", lambda: 5.0)',
    "mocks": (
        "import contextlib\nfrom unittest import mock\n"
        "names = ['time', 'time_ns', 'monotonic', 'perf_counter']\n"
        "freeze = contextlib.ExitStack()\n"
        "for name in names:\n"
        "    freeze.enter_context(mock.patch(f'time.{name}', lambda: 5))"
    ),
}
PROGRAM = """
import datetime

from confluent_kafka import Consumer, Producer

import oncelog

real = datetime.datetime.now(datetime.UTC)


def use(kafka):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    said = []
    producer.produce("orders", b"tea", on_delivery=lambda error, _: said.append(error))
    assert producer.flush(30) == 0
    assert said == [None], said
    assert [one.value for one in kafka.topic("orders").wait_for_records(1, timeout=30)] == [b"tea"]
    try:
        kafka.topic("orders").wait_for_records(2, timeout=0.2)
    except oncelog.WaitTimeoutError:
        pass
    else:
        raise AssertionError("a wait that has ended without its record")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "a",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(30).value() == b"tea"
    assert consumer.poll(0.7) is None  # the long poll of a Fetch ends, too
    consumer.close()
    assert abs(kafka.clock.now_ms() / 1000 - real.timestamp()) < 600


with oncelog.Broker() as before:
    %s
    with freeze:
        use(before)
        with oncelog.Broker() as meanwhile:
            use(meanwhile)
print("done")
"""


@pytest.mark.parametrize("freeze", FREEZES.values(), ids=FREEZES)
def test_the_brokers_time_is_real(freeze: str) -> None:
    program = PROGRAM % freeze.replace("\n", "\n    ")
    assert output_of(program) == "done\n"


def test_an_oncelog_that_is_imported_under_a_frozen_date_works() -> None:
    program = (
        "import freezegun\n"
        "with freezegun.freeze_time('2020-01-01'):\n"
        "    import oncelog\n"
        "    with oncelog.Broker() as kafka:\n"
        "        kafka.produce('orders', 'tea')\n"
        "        [record] = kafka.topic('orders').wait_for_records(1, timeout=30)\n"
        "        assert record.timestamp > 1_700_000_000_000, record\n"
        "print('done')\n"
    )
    assert output_of(program) == "done\n"
