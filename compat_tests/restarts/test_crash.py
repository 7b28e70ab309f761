"""oncelog is killed while producers write: acknowledged records are kept, in order, and once if idempotent."""

import pathlib
import threading
from collections.abc import Iterator

import pytest

from compat_tests.clients.stock_clients import DEADLINE_S
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from tests.common.batches import Batch, read_batches
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.threads import join

PARTITIONS = 2
ROUNDS = 3
PER_ROUND = 4000


class Load:
    """A librdkafka producer in its own thread that writes consecutive numbers until `stop`."""

    def __init__(self, bootstrap: str, topic: str, acks: int, idempotent: bool) -> None:
        from confluent_kafka import Producer

        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed = 0
        self._reported = threading.Condition()
        self._stop = False
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
                "queue.buffering.max.messages": 2000,
                "max.in.flight.requests.per.connection": 5,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop:
            partition = number % PARTITIONS
            try:
                self._producer.produce(
                    self._topic,
                    b"%d" % number,
                    partition=partition,
                    on_delivery=self._on_delivery(partition, number),
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            number += 1
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def _on_delivery(self, partition: int, number: int):  # type: ignore[no-untyped-def]
        def on_delivery(error: object, _message: object) -> None:
            with self._reported:
                if error is None:
                    self.acknowledged[partition].append(number)
                else:
                    self.failed += 1
                self._reported.notify_all()

        return on_delivery

    def wait_for(self, more: int) -> None:
        """Wait until that many more records are acknowledged."""
        with self._reported:
            goal = sum(map(len, self.acknowledged)) + more
            done = self._reported.wait_for(lambda: sum(map(len, self.acknowledged)) >= goal, DEADLINE_S)
            assert done, f"{sum(map(len, self.acknowledged))} of {goal} acknowledged, {self.failed} failed"

    def stop(self) -> None:
        self._stop = True
        join(self._thread)


def read_numbers(bootstrap: str, topic: str, partition: int) -> list[int]:
    """All values in the partition, in order of their offsets; asserts that offsets have no gap."""
    session = Session(bootstrap)
    session.wait_for_leaders(topic, PARTITIONS)
    found: list[int] = []
    offset = 0
    while True:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 22}
        values = {"max_wait_ms": 0, "max_bytes": 1 << 22, "topics": [{"topic": topic, "partitions": [row]}]}
        response = session.call_unobserved("Fetch", 12, values)["responses"][0]["partitions"][0]
        assert response["error_code"] == 0
        batches: list[Batch] = list(read_batches(response["records"]))
        if not batches:
            assert offset == response["high_watermark"]
            session.close()
            return found
        for one in batches:
            assert one.base_offset == offset
            found += record_values(one.payload, one.record_count)
            offset += one.last_offset_delta + 1


def record_values(payload: bytes, count: int) -> Iterator[int]:
    """The values of records without keys and headers, as decimal numbers."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    for _ in range(count):
        end = varint()
        end += at
        at += 1  # attributes
        varint()  # timestamp delta
        varint()  # offset delta
        assert varint() == -1  # no key
        size = varint()
        yield int(payload[at : at + size])
        at = end
    assert at == len(payload)


@pytest.mark.parametrize(("acks", "idempotent"), [(-1, True), (-1, False), (1, False)])
def test_nothing_acknowledged_is_lost_to_a_kill(name: str, acks: int, idempotent: bool) -> None:
    with Oncelog({"log.segment.bytes": "1048576"}) as broker:
        session = Session(broker.bootstrap)
        session.topic(name, PARTITIONS)
        session.close()
        load = Load(broker.bootstrap, name, acks, idempotent)
        try:
            for _ in range(ROUNDS):
                load.wait_for(PER_ROUND)
                broker.kill()
                broker.start()
            load.wait_for(PER_ROUND)
        finally:
            load.stop()
        assert broker.tracebacks == 0, broker.output()
        assert load.failed == 0
        for partition in range(PARTITIONS):
            stored = read_numbers(broker.bootstrap, name, partition)
            acknowledged = load.acknowledged[partition]
            assert set(acknowledged) <= set(stored), "an acknowledged record is lost"
            if idempotent:
                assert stored == sorted(set(stored)), "a record is duplicated or out of order"
                assert acknowledged == stored
        assert_dump_log_is_clean(broker, producers=idempotent)


def test_a_clean_stop_keeps_everything(name: str) -> None:
    with Oncelog({"log.segment.bytes": "1048576"}) as broker:
        session = Session(broker.bootstrap)
        session.topic(name, PARTITIONS)
        session.close()
        load = Load(broker.bootstrap, name, -1, True)
        try:
            load.wait_for(PER_ROUND)
            assert broker.stop() == 0
            broker.start()
            load.wait_for(PER_ROUND)
        finally:
            load.stop()
        for partition in range(PARTITIONS):
            assert read_numbers(broker.bootstrap, name, partition) == load.acknowledged[partition]
        assert_dump_log_is_clean(broker, producers=True)


def assert_dump_log_is_clean(broker: Oncelog, *, producers: bool) -> None:
    """Stop the broker; Kafka's DumpLogSegments reads all its files and finds no fault."""
    assert broker.stop() == 0
    files: dict[str, list[str]] = {}
    for path in sorted(pathlib.Path(broker.data_dir).rglob("*")):
        files.setdefault(path.suffix, []).append(str(path))
    logs = [path for path in files[".log"] if "__cluster_metadata" not in path]
    metadata = [path for path in files[".log"] if "__cluster_metadata" in path]
    try:
        shown = dump("--deep-iteration", "--files", ",".join(logs))
        assert f"Dumping {logs[-1]}" in shown
        dump("--index-sanity-check", "--files", ",".join(files[".index"]))
        dump(
            "--deep-iteration",
            "--verify-index-only",
            "--files",
            ",".join(files[".index"] + files[".timeindex"]),
        )
        snapshots = [path for path in files[".snapshot"] if "__cluster_metadata" not in path]
        assert ("producerId" in dump("--files", ",".join(snapshots))) == producers
        decoded = dump("--cluster-metadata-decoder", "--files", ",".join(metadata))
        assert '"type":"TOPIC_RECORD"' in decoded
        assert "skipping" not in decoded
    except RealPartMissing as missing:
        require(str(missing))


def dump(*arguments: str) -> str:
    run = run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)
    shown = run.stdout + run.stderr
    for complaint in (
        "Mismatches in",
        "Non-consecutive",
        "Exception",
        "isvalid: false",
        "Found timestamp mismatch",
        "out of order",
    ):
        assert complaint not in shown, [line for line in shown.splitlines() if complaint in line][:5]
    return shown
