"""A real Kafka takes over a data directory with transactions, then oncelog again; DumpLogSegments reads it."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.differential import Session, make_topic
from compat_tests.oncelog_server import Oncelog
from compat_tests.transactions.reader import committed, values
from compat_tests.transactions.wire import GROUP, V2_END, V2_OFFSETS, V2_PRODUCE, Producer, find_coordinator
from tests.common import exchanges
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka

TIMEOUT_MS = 900_000


def begin(session: Session, transactional_id: str) -> Producer:
    """Run three transactions: commit one, abort one, and leave one open."""
    producer = Producer(session, transactional_id, timeout_ms=TIMEOUT_MS)
    producer.init()
    find_coordinator(session, "group", GROUP)
    for commit in (True, False, None):
        for partition in (0, 1):
            row = producer.send("t", partition, 2, V2_PRODUCE)
            assert row["error_code"] == 0
        assert producer.commit_offset("group", "t", 10 * producer.epoch, V2_OFFSETS) == 0
        if commit is not None:
            assert producer.end(commit, V2_END)["error_code"] == 0
    return producer


def resume(bootstrap: str, old: Producer) -> tuple[Session, Producer]:
    session = Session(bootstrap)
    producer = Producer(session, old.transactional_id, timeout_ms=TIMEOUT_MS)
    producer.producer_id, producer.epoch, producer.sequences = old.producer_id, old.epoch, old.sequences
    return session, producer


@exchanges.TRANSACTIONS
@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_there_and_back(tmp_path: pathlib.Path, clean: bool) -> None:
    def end(broker: Any) -> None:
        if clean:
            broker.stop()
        else:
            broker.kill()

    data_dir = tmp_path / "data"
    with Oncelog(data_dir=data_dir) as ours:
        make_topic(ours.bootstrap, "t", 2)
        session = Session(ours.bootstrap)
        producer = begin(session, "id")
        session.close()
        assert len(values(ours.bootstrap, "t", 4, 2)) == 4
        end(ours)
    kafka = RealKafka(data_dir=data_dir)
    try:
        kafka.start()
    except RealPartMissing as missing:
        require(str(missing))
    try:
        # Kafka has loaded the open transaction: the producer continues and commits it.
        session, producer = resume(kafka.bootstrap, producer)
        assert producer.describe()["transaction_state"] == "Ongoing"
        assert producer.send("t", 0, 1, V2_PRODUCE)["error_code"] == 0
        assert producer.end(True, V2_END)["error_code"] == 0
        assert len(values(kafka.bootstrap, "t", 9, 2)) == 9
        assert committed(kafka.bootstrap, "group", "t", 20) == 20
        assert producer.send("t", 1, 3, V2_PRODUCE)["error_code"] == 0
        assert producer.commit_offset("group", "t", 30, V2_OFFSETS) == 0
        session.close()
        end(kafka)
    finally:
        kafka.stop()
    with Oncelog(data_dir=data_dir) as ours:
        session, producer = resume(ours.bootstrap, producer)
        assert producer.describe()["transaction_state"] == "Ongoing"
        assert len(values(ours.bootstrap, "t", 9, 2)) == 9
        assert producer.end(True, V2_END)["error_code"] == 0
        assert len(values(ours.bootstrap, "t", 12, 2)) == 12
        assert committed(ours.bootstrap, "group", "t", 30) == 30
        # The next producer gets a higher epoch.
        before = producer.epoch
        producer.init()
        assert producer.epoch == before + 1
        session.close()
        assert ours.tracebacks == 0
        ours.stop()


@exchanges.TRANSACTIONS
@pytest.mark.slow
def test_dump_log_segments(tmp_path: pathlib.Path, kafka_tool: Callable[..., Any]) -> None:
    data_dir = tmp_path / "data"
    with Oncelog(data_dir=data_dir) as ours:
        make_topic(ours.bootstrap, "t", 2)
        session = Session(ours.bootstrap)
        begin(session, "id")
        session.close()
        ours.stop()

        def dumped(pattern: str, *arguments: str) -> str:
            files = [path for path in sorted(data_dir.glob(pattern)) if path.stat().st_size]
            assert files
            tool = "org.apache.kafka.tools.DumpLogSegments"
            return str(kafka_tool(tool, *arguments, "--files", ",".join(map(str, files))).stdout)

        states = dumped("__transaction_state-*/*.log", "--transaction-log-decoder", "--print-data-log")
        # How the tool writes a state depends on its release.
        assert states.count('"transactionalId":"id"') + states.count("transactionalId=id") >= 8, states
        found = re.findall(r"state=(\w+)", states) or re.findall(r'"transactionStatus":"?(\w+)', states)
        assert found, states
        log = dumped("t-0/*.log", "--deep-iteration", "--verify-index-only")
        assert "isvalid: false" not in log
        markers = dumped("t-0/*.log", "--deep-iteration", "--print-data-log")
        assert re.findall(r"endTxnMarker: (\w+)", markers) == ["COMMIT", "ABORT"]
        index = dumped("t-0/*.txnindex")
        assert re.search(r"producerId: \d+ firstOffset: 3 lastOffset: 5", index), index
        snapshot = dumped("t-0/*.snapshot")
        assert re.search(r"currentTxnFirstOffset: (Optional\[|OptionalLong\[)?6", snapshot), snapshot
