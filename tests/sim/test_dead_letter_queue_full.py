"""A dead-letter queue whose disk has no room: the record comes when there is, or is lost with a line in the log."""

from __future__ import annotations

import errno

import trio

from oncelog.broker.metadata.image import GROUP as GROUP_RESOURCE
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.stored.metadata import ConfigRecord, FeatureLevelRecord
from tests.common.batches import batch
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, produce, read_all
from tests.harness.share_readers import GROUP, ShareReader, serve_share_groups
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

__all__ = ["lines"]  # a fixture

QUEUE = "dlq.g"
REJECT = 3
TRIES_S = 1 + 2 + 4 + 8
"""How long the five tries of a write take."""


async def reader_with_queue(broker: SimBroker) -> ShareReader:
    """Return a member that has acquired the records 0 to 1; its group's queue has no room."""
    client = broker.connect()
    topic_id = await create_topic(client, "jobs")
    await create_topic(client, QUEUE, configs={"errors.deadletterqueue.group.enable": "true"})
    await serve_share_groups(broker, topic_id)
    config = ConfigRecord(GROUP_RESOURCE, GROUP, "errors.deadletterqueue.topic.name", QUEUE)
    broker.node.metadata.commit([FeatureLevelRecord("share.version", 2), config])
    await produce(client, "jobs", batch(2))
    reader = ShareReader(client, topic_id)
    assert await reader.acquire(wait_ms=1000) == [(0, 1, 1)]
    broker.files.faults.append(Fault("write", errno.ENOSPC, lambda path: f"/{QUEUE}-0/" in path))
    return reader


def state_of(broker: SimBroker, reader: ShareReader) -> list[str]:
    """Return the states of the records in flight."""
    [partition] = broker.node.shares.partitions_of(GROUP)
    assert partition.window is not None
    return [records.state.name for records in partition.window.states()]


def test_the_record_is_written_when_there_is_room(lines: list[str]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            reader = await reader_with_queue(broker)
            assert await reader.acknowledge((0, 1, [REJECT])) == 0  # the member sees no error of the queue
            await trio.sleep(TRIES_S / 2)
            assert state_of(broker, reader) == ["ARCHIVING"]
            broker.files.faults.clear()
            await trio.sleep(TRIES_S)
            assert [one.record_count for one in await read_all(reader.client, QUEUE)] == [2]
            assert state_of(broker, reader) == []

    run()
    assert not any("without a dead letter" in line for line in lines)


def test_a_queue_that_is_deleted_meanwhile(lines: list[str]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            reader = await reader_with_queue(broker)
            assert await reader.acknowledge((0, 1, [REJECT])) == 0
            await trio.sleep(TRIES_S / 2)
            deleted = await broker.connect().call(
                DeleteTopicsRequest(topic_names=[QUEUE], timeout_ms=1000), 5, DeleteTopicsResponse
            )
            assert deleted.responses[0].error_code == 0
            await trio.sleep(TRIES_S)
            assert state_of(broker, reader) == []

    run()
    [line] = [line for line in lines if "without a dead letter" in line]
    assert line.endswith("first_offset=0 last_offset=1 reason='DLQ topic dlq.g was deleted.'\n")


def test_after_five_tries_the_record_is_archived_without(lines: list[str]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            reader = await reader_with_queue(broker)
            assert await reader.acknowledge((0, 1, [REJECT])) == 0
            await trio.sleep(TRIES_S + 1)
            assert state_of(broker, reader) == []
            broker.files.faults.clear()
            await trio.sleep(TRIES_S)
            assert await read_all(reader.client, QUEUE) == []

    run()
    [line] = [line for line in lines if "without a dead letter" in line]
    assert "group=g topic=jobs partition=0 first_offset=0 last_offset=1 reason=" in line
    assert "KAFKA_STORAGE_ERROR: [Errno 28] No space left on device" in line
