"""A disk that cannot be read: a storage error for that partition, and everybody else is served."""

from __future__ import annotations

import errno

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.common.batches import batch
from tests.harness.requests import create_topic, fetch, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

MAX_TIMESTAMP = -3


def break_reads(broker: SimBroker) -> None:
    broker.files.faults.append(Fault("read", errno.EIO, lambda path: "/t-0/" in path))


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
@pytest.mark.parametrize("restart", [False, True])
def test_offsets_by_time(timestamp: int, restart: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            await create_topic(client, "other")
            for at in range(3):
                await produce(client, "t", batch(base_timestamp=at))
            if restart:
                client = await broker.restart()
            break_reads(broker)
            row = await list_offset(client, "t", timestamp)
            assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await produce(client, "t")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await produce(client, "other")).error_code == 0

    run()


@pytest.mark.parametrize("restart", [False, True])
def test_a_fetch(restart: bool) -> None:
    """If the error comes while the response is sent, only that connection is closed."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client, other = broker.connect(), broker.connect()
            await create_topic(client, "t")
            await create_topic(client, "other")
            for _ in range(3):
                await produce(client, "t")
            if restart:
                await broker.restart()
                client, other = broker.connect(), broker.connect()
            break_reads(broker)
            try:
                row = await fetch(client, "t", 1)
                assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            except ConnectionEndedError:
                pass
            assert (await produce(other, "other")).error_code == 0

    run()


@simulated
async def test_a_shortage_while_records_are_read_is_not_the_end() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await produce(client, "t")
        assert (
            await fetch(client, "t", 0)
        ).error_code == 0  # from now on it is known where the next one begins
        await produce(client, "t")
        broker.files.faults.append(Fault("read", errno.EMFILE, lambda path: "/t-0/" in path, times=1))
        assert (await fetch(client, "t", 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetch(client, "t", 1)).records
        assert (await produce(client, "t")).error_code == 0


@pytest.mark.parametrize("crash", [False, True])
def test_a_shortage_when_a_partition_is_first_used_is_not_the_end(crash: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            await produce(client, "t")
            await (broker.crash("process") if crash else broker.stop())
            broker.files.faults.append(Fault("open", errno.EMFILE, lambda path: "/t-0/" in path))
            await broker.start()
            client = broker.connect()
            for _ in range(2):
                assert (await produce(client, "t")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert (await fetch(client, "t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            broker.files.faults.clear()
            assert (await produce(client, "t")).base_offset == 1
            assert (await fetch(client, "t", 0)).records

    run()


@simulated
async def test_the_batches_before_a_retry_cannot_be_read() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        sent = [batch(base_timestamp=broker.clock.now_ms(), producer=(7, 0, at)) for at in range(3)]
        for one in sent:
            assert (await produce(client, "t", one)).error_code == 0
        client = await broker.restart()
        assert (await list_offset(client, "t", -1)).offset == 3
        break_reads(broker)
        assert (await produce(client, "t", sent[1])).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@simulated
async def test_the_size_of_a_directory_that_cannot_be_listed() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        client = await broker.restart()
        broker.files.faults.append(Fault("open", errno.EIO))
        response = await client.call(DescribeLogDirsRequest(None), 4, DescribeLogDirsResponse)
        assert response.results[0].error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
