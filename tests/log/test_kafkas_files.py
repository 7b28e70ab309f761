"""A partition that Kafka wrote is read by ours, goes on in ours, and is taken back by Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.steps import finish
from tests.common import exchanges
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka
from tests.harness.partition_log import START_MS, PartitionLogHarness, batch, batches_in, read_all

pytestmark = pytest.mark.slow

TOPIC = "topic"
RECORDS = 3_000
TIMEOUT_S = 60


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[RealKafka]:
    # A broker that had no turn for so long would be fenced. One that was killed starts again only after it.
    keys = {"log.index.interval.bytes": "1000", "broker.session.timeout.ms": "9000"}
    node = RealKafka(keys, data_dir=tmp_path / "data")
    try:
        node.start()
    except RealPartMissing as missing:
        require(str(missing))
    try:
        yield node
    finally:
        node.stop()


def fill(kafka: RealKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    for codec in ("none", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.num.messages": 7,
            }
        )
        for at in range(RECORDS // 3):
            value = (b"%d " % at) * 300
            producer.produce(TOPIC, value, b"key", timestamp=START_MS + (at * 7) % 500)
        assert producer.flush(TIMEOUT_S) == 0


def times(kafka: RealKafka) -> dict[int, int]:
    """What Kafka answers for some timestamps."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    wanted = range(START_MS, START_MS + 500, 17)
    found = {
        at: consumer.offsets_for_times([TopicPartition(TOPIC, 0, at)], timeout=TIMEOUT_S)[0].offset
        for at in wanted
    }
    consumer.close()
    return found


def consume(kafka: RealKafka, count: int) -> list[tuple[int | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=TIMEOUT_S)
        assert messages
        for message in messages:
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
    consumer.close()
    return found


@exchanges.LOG
@pytest.mark.parametrize("clean", [True, False])
def test_there_and_back(kafka: RealKafka, clean: bool) -> None:
    fill(kafka)
    expected = times(kafka)
    kafka.stop() if clean else kafka.kill()
    directory = kafka.data_dir / f"{TOPIC}-0"
    stored = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    harness = PartitionLogHarness(OsFileSystem(), index_interval_bytes=1_000)
    harness.directory = str(directory)
    log = harness.open() if clean else harness.recover()
    assert clean or not harness.recovery.cuts
    assert len(log.segments) > 1
    assert log.log_end_offset == RECORDS
    assert read_all(log) == stored
    found = {at: finish(log.offset_for_timestamp(at)) for at in expected}
    assert {at: place.offset for at, place in found.items() if place is not None} == expected
    assert len(log.producers.producers) == 3
    newest = next(
        entry for entry in log.producers.producers.values() if entry.batches[-1].last_offset == RECORDS - 1
    )
    last = batches_in(stored)[-1][2]
    repeated = bytearray(bytes(8) + last[8:])
    assert log.append(repeated, leader_epoch=log.latest_epoch).duplicate
    following = (newest.producer_id, newest.producer_epoch, newest.next_sequence)
    result = log.append(batch((b"ours", b"too"), producer=following), leader_epoch=log.latest_epoch)
    assert result.base_offset == RECORDS
    log.close()

    kafka.restart()
    read = consume(kafka, RECORDS + 2)
    assert [offset for offset, _ in read] == list(range(RECORDS + 2))
    assert [value for _, value in read[-2:]] == [b"ours", b"too"]
    assert times(kafka) == expected
