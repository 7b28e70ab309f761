"""A full disk, seen by clients: a clear error, nothing acknowledged lost, and business as usual once there is room."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio

from oncelog.broker.seams.memory_files import Operation
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.common.batches import batch, record
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, fetch, produce, read_all
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

__all__ = ["lines"]  # a fixture


def values(count: int, size: int = 100) -> list[bytes]:
    return [record(b"k", bytes([index]) * size) for index in range(count)]


def fill(broker: SimBroker, when: Callable[[str], bool] = lambda path: True, after_bytes: int = 0) -> None:
    broker.files.faults.append(Fault("write", errno.ENOSPC, when, after_bytes=after_bytes))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("after_bytes", [0, 30, 250])
@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"])
def test_a_producer_is_told_and_what_was_acknowledged_stays(
    acks: int, after_bytes: int, flush_messages: str
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, reader = broker.connect(), broker.connect()
            await create_topic(client, "t", configs={"flush.messages": flush_messages})
            sent = values(6)
            for one in sent[:3]:
                assert (await produce(client, "t", batch([one]), acks=acks)).error_code == 0
            fill(broker, lambda path: "/t-0/" in path, after_bytes)
            codes = [(await produce(client, "t", batch([one]), acks=acks)).error_code for one in sent[3:]]
            taken = codes.count(0)
            assert codes == [0] * taken + [ErrorCode.KAFKA_STORAGE_ERROR] * (3 - taken)
            assert taken == (1 if after_bytes == 250 else 0)
            kept = sent[: 3 + taken]
            assert [one.payload for one in await read_all(reader, "t")] == kept

            broker.files.faults.clear()
            row = await produce(client, "t", batch([sent[5]]), acks=acks)
            assert (row.error_code, row.base_offset) == (0, len(kept))
            for crash in (None, "process"):
                if crash is None:
                    await broker.stop()
                else:
                    await broker.crash("process")
                await broker.start()
                await broker.node.logs.recovered()
                found = await read_all(broker.connect(), "t")
                assert [one.payload for one in found] == [*kept, sent[5]]

    run()


@simulated
async def test_an_idempotent_producer_repeats_its_batch_when_there_is_room() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        producer_id = (
            await client.call(InitProducerIdRequest(None, 0), 4, InitProducerIdResponse)
        ).producer_id
        batches = [batch([one], producer=(producer_id, 0, at)) for at, one in enumerate(values(3))]
        assert (await produce(client, "t", batches[0])).base_offset == 0
        fill(broker, lambda path: path.endswith(".log"), after_bytes=20)
        assert (await produce(client, "t", batches[1])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert ErrorCode.KAFKA_STORAGE_ERROR.retriable
        # The refused batch left nothing in the producer's state: the next one would be out of order.
        broker.files.faults.clear()
        assert (await produce(client, "t", batches[2])).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await produce(client, "t", batches[1])).base_offset == 1
        assert (await produce(client, "t", batches[2])).base_offset == 2


@pytest.mark.parametrize(
    ("operation", "suffix"), [("open", ".log"), ("open", ".snapshot"), ("write", ".snapshot")]
)
def test_no_room_to_roll(operation: Operation, suffix: str) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", configs={"segment.bytes": "1048576"})
            big = [batch([record(b"k", bytes(600_000))], producer=(7, 0, at)) for at in range(2)]
            assert (await produce(client, "t", big[0])).base_offset == 0
            full = Fault(operation, errno.ENOSPC, lambda path: "/t-0/" in path and suffix in path)
            broker.files.faults.append(full)
            assert (await produce(client, "t", big[1])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await fetch(client, "t")).high_watermark == 1
            logs = [name for name in broker.files.listdir(f"{DATA_DIR}/t-0") if name.endswith(".log")]
            assert logs == [f"{0:020d}.log"]
            broker.files.faults.clear()
            assert (await produce(client, "t", big[1])).base_offset == 1
            await broker.crash("process")
            await broker.start()
            await broker.node.logs.recovered()
            assert len(await read_all(broker.connect(), "t")) == 2

    run()


@simulated
async def test_admin_requests_and_other_topics_on_a_full_disk() -> None:
    """Writes are refused; requests that need no space are served."""
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        for one in values(3):
            await produce(client, "t", batch([one]))
        fill(broker)
        response = await client.call(
            CreateTopicsRequest([CreatableTopic("new", 1, 1)], 1000), 7, CreateTopicsResponse
        )
        assert response.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        rows = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])]
        deleted = await client.call(DeleteRecordsRequest(rows, 1000), 2, DeleteRecordsResponse)
        assert deleted.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        metadata = await client.call(MetadataRequest(None), 12, MetadataResponse)
        assert [topic.name for topic in metadata.topics] == ["t"]
        broker.files.faults.clear()
        await create_topic(client, "new")
        assert (await produce(client, "new")).error_code == 0


@pytest.mark.slow
@simulated
async def test_a_full_disk_for_hours_and_then_a_clean_stop() -> None:
    """Checkpoints, snapshots and flushes fail meanwhile. The broker continues and loses no record."""
    async with SimBroker(config={"log.retention.check.interval.ms": "1000"}) as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"flush.ms": "1000"})
        for one in values(3):
            await produce(client, "t", batch([one]))
        fill(broker, lambda path: not path.endswith(".log"))
        await trio.sleep(3 * 3600)
        reader = broker.connect()
        row = await fetch(reader, "t")
        assert row.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        await broker.stop()
        broker.files.faults.clear()
        await broker.start()
        await broker.node.logs.recovered()
        assert len(await read_all(broker.connect(), "t")) == 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_the_log_says_so_once_for_each_partition_and_minute(lines: list[str], error: int) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t", 2)

            async def be_refused(times: int) -> list[str]:
                """What is logged meanwhile, without time, level and logger."""
                lines.clear()
                for _ in range(times):
                    for partition in (0, 1):
                        row = await produce(client, "t", partition=partition)
                        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                return [line.split(": ", 1)[1].split(" error=")[0] for line in lines]

            broker.files.faults.append(Fault("write", error, lambda path: path.endswith(".log")))
            what = {errno.ENOSPC: "disk full", errno.EDQUOT: "disk quota used up"}[error]
            written = [f"{what}, records not written topic=t partition={partition}" for partition in (0, 1)]
            assert await be_refused(50) == written
            assert await be_refused(50) == []
            broker.clock.advance(60)
            assert await be_refused(2) == written
            assert all(line.endswith(" left_out=99\n") for line in lines)

    run()


@pytest.mark.slow
@simulated
async def test_ten_minutes_of_refused_requests_are_some_lines_a_minute(lines: list[str]) -> None:
    """Requests of all kinds that write: metadata, group coordinator, records; and background work."""
    async with SimBroker(config={"log.retention.check.interval.ms": "1000"}) as broker:
        client = broker.connect()
        await create_topic(client, "t", configs={"flush.ms": "1000"})
        await produce(client, "t")
        fill(broker)
        lines.clear()
        for _ in range(600):
            await produce(client, "t")
            await client.call(CreateTopicsRequest([CreatableTopic("n", 1, 1)], 0), 7, CreateTopicsResponse)
            await client.call(FindCoordinatorRequest("", 0, ["g"]), 4, FindCoordinatorResponse)
            await client.call(InitProducerIdRequest(None, 0), 4, InitProducerIdResponse)
            await trio.sleep(1)
        assert 4 <= len(lines) <= 60
        broker.files.faults.clear()
