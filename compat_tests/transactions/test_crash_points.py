"""A consume-transform-produce program while its broker dies at every crash point: each input has exactly one output."""

import pathlib
from collections import Counter

import pytest

import oncelog
from compat_tests.transactions.reader import Reader, values
from compat_tests.transactions.test_exactly_once import PARTITIONS, Inputs, Program, running
from oncelog.broker.faults.crash_point_names import AFTER, CRASH_POINTS, EVENTS, event_of
from oncelog.broker.handlers.table import TRANSACTIONAL_ID as OF_TRANSACTIONS

TRANSACTIONAL_ID = "transformer"
POINTS = [point for point in CRASH_POINTS if OF_TRANSACTIONS in EVENTS[event_of(point)]]
MORE = 20
"""Outputs between two deaths."""
PATIENCE_S = 60
CONFIG = {
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.mark.slow
@pytest.mark.parametrize(("client", "storage"), [("confluent", "memory"), ("java", "disk")])
def test_exactly_once_over_a_death_at_every_point(
    client: str, storage: str, java_transactions: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    data_dir = tmp_path / "data" if storage == "disk" else None
    with oncelog.Broker({"in": PARTITIONS, "out": PARTITIONS}, CONFIG, data_dir=data_dir) as kafka:
        bootstrap = kafka.bootstrap_servers
        with (
            running(lambda: Program(client, bootstrap, java_transactions)) as programs,
            Reader(bootstrap, "out", PARTITIONS) as reader,
        ):
            inputs = Inputs(bootstrap, reader)
            try:
                for point in POINTS:
                    reader.wait_for(len(reader.rows) + MORE)
                    # Of several writes of a transaction, another than the first one.
                    nth = 2 if point in (f"{AFTER} marker", f"{AFTER} append") else 1
                    rule = kafka.faults.crash_at(point, transactional_id=TRANSACTIONAL_ID, nth=nth)
                    rule.wait_fired(timeout=PATIENCE_S)
                    kafka.start()
                    rule.remove()
                count = inputs.close()
                reader.wait_for(count)
            except (AssertionError, oncelog.OncelogError) as error:
                raise AssertionError(f"{error}\n{programs[0].output()}") from error
            found = Counter(values(bootstrap, "out", count, PARTITIONS))
    assert found == Counter(str(number) for number in range(count)), found.most_common(5)
