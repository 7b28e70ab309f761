"""A real Kafka runs on the data directory in a snapshot of oncelog."""

import pathlib

import pytest

import oncelog
from compat_tests.differential import Session
from compat_tests.transactions.reader import committed, values
from compat_tests.transactions.test_takeover import begin, resume
from compat_tests.transactions.wire import V2_END, V2_PRODUCE
from oncelog.broker.control import snapshots
from oncelog.broker.seams.os_files import OsFileSystem
from tests.common import exchanges
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka

DAY_MS = 24 * 3_600_000


@exchanges.SNAPSHOTS
@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_kafka_goes_on_with_a_snapshot(tmp_path: pathlib.Path, clean: bool) -> None:
    with oncelog.Broker({"t": 2}) as ours:
        session = Session(ours.bootstrap_servers)
        producer = begin(session, "id")
        session.close()
        if clean:
            ours.stop()
        snapshot = snapshots.decode(ours.snapshot_bytes(), "it")
    data_dir = tmp_path / "data"
    # A day has passed: without the load's changes Kafka would abort the transaction at once.
    snapshots.load(snapshot, OsFileSystem(), str(data_dir), snapshot.manifest.taken_ms + DAY_MS)
    assert (data_dir / ".kafka_cleanshutdown").exists() == clean
    kafka = RealKafka(data_dir=data_dir)
    try:
        kafka.start()
    except RealPartMissing as missing:
        require(str(missing))
    try:
        session, producer = resume(kafka.bootstrap, producer)
        described = producer.describe()
        assert described["transaction_state"] == "Ongoing"
        begun_ms = described["transaction_start_time_ms"]
        assert snapshot.manifest.taken_ms + DAY_MS - 60_000 < begun_ms <= snapshot.manifest.taken_ms + DAY_MS
        assert producer.send("t", 0, 1, V2_PRODUCE)["error_code"] == 0
        assert producer.end(True, V2_END)["error_code"] == 0
        assert len(values(kafka.bootstrap, "t", 9, 2)) == 9
        assert committed(kafka.bootstrap, "group", "t", 20) == 20
        session.close()
    finally:
        kafka.stop()
