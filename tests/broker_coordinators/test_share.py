"""The share coordinator beside requests: its topic, retries, deleted topics, idle share partitions, pruning."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest
import trio

from oncelog.broker.share.state_manager import ATTEMPTS_MAX
from oncelog.coordinator.share.state import DeliveryState, StateBatch
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

STATE_TOPIC = "__share_group_state"
ONE_PARTITION = {"share.coordinator.state.topic.num.partitions": "1"}
OFTEN = {**ONE_PARTITION, "share.coordinator.state.topic.prune.interval.ms": "1000"}


def of_state_topic(path: str) -> bool:
    return f"/{STATE_TOPIC}-" in path


async def initialize(broker: SimBroker, topic_id: bytes, partition: int = 0) -> None:
    await broker.node.share_persister.initialize("q", topic_id, partition, 0, 0)


async def write(broker: SimBroker, topic_id: bytes, start: int, partition: int = 0) -> None:
    batches = [StateBatch(start, start + 9, DeliveryState.ACKNOWLEDGED, 1)]
    await broker.node.share_persister.write("q", topic_id, partition, 0, 0, start, 10, batches)


def state_log(broker: SimBroker) -> Any:
    return broker.node.cluster.log(STATE_TOPIC, 0)


@simulated
async def test_the_topic_has_kafkas_configs() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        topic_id = await create_topic(broker.connect(), "t")
        assert STATE_TOPIC not in broker.node.metadata.image.topics
        await initialize(broker, topic_id)
        assert len(broker.node.metadata.image.topics[STATE_TOPIC].partitions) == 1
        config = broker.node.topic_config(STATE_TOPIC)
        assert (config.cleanup_policy, config.retention_ms) == (("delete",), -1)
        assert (config.segment_bytes, config.min_insync_replicas) == (100 << 20, 2)


@simulated
async def test_refuses_an_empty_group_id() -> None:
    async with SimBroker() as broker:
        with pytest.raises(KafkaError) as caught:
            await broker.node.share_persister.summary("", bytes(16), 0)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


@simulated
async def test_tries_again_and_keeps_the_order() -> None:
    """A write whose record has no room waits, and no later one overtakes it: an older start offset must not win."""
    async with SimBroker(config=ONE_PARTITION) as broker:
        topic_id = await create_topic(broker.connect(), "t", 2)
        for partition in range(2):
            await initialize(broker, topic_id, partition)
        broker.files.faults.append(Fault("write", errno.ENOSPC, of_state_topic, times=2))
        done: list[int] = []

        async def write_and_note(start: int) -> None:
            await write(broker, topic_id, start)
            done.append(start)

        async with trio.open_nursery() as nursery:
            for start in (10, 20, 30):
                nursery.start_soon(write_and_note, start)
                await trio.sleep(0.1)
            assert done == []
            await write(broker, topic_id, 5, partition=1)
        assert done == [10, 20, 30]
        state = await broker.node.share_persister.read("q", topic_id, 0, 0)
        assert state.start_offset == 30
        assert [batch[:2] for batch in state.batches] == [(30, 39)]


@simulated
async def test_gives_up_in_the_end() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        topic_id = await create_topic(broker.connect(), "t")
        await initialize(broker, topic_id)
        broker.files.faults.append(Fault("write", errno.ENOSPC, of_state_topic))
        began = trio.current_time()
        with pytest.raises(KafkaError) as caught:
            await write(broker, topic_id, 10)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR
        assert trio.current_time() - began == pytest.approx(2 ** (ATTEMPTS_MAX - 2) - 1, abs=0.1)
        state = await broker.node.share_persister.read("q", topic_id, 0, 0)
        assert state.start_offset == 0


@simulated
async def test_a_cancelled_call_lets_the_next_one_pass() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        topic_id = await create_topic(broker.connect(), "t")
        await initialize(broker, topic_id)
        fault = Fault("write", errno.ENOSPC, of_state_topic)
        broker.files.faults.append(fault)
        with trio.move_on_after(0.5):
            await write(broker, topic_id, 10)
        broker.files.faults.remove(fault)
        with trio.fail_after(0.1):
            await write(broker, topic_id, 20)


@simulated
async def test_waits_for_the_load() -> None:
    """The first call after a start, while a large log is loaded."""
    async with SimBroker(config=ONE_PARTITION) as broker:
        topic_id = await create_topic(broker.connect(), "t")
        await initialize(broker, topic_id)
        for start in range(1500):
            await write(broker, topic_id, start)
        await broker.crash("process")
        await broker.start()
        state = await broker.node.share_persister.read("q", topic_id, 0, 0)
        assert state.start_offset == 1499


@pytest.mark.parametrize("crash", [False, True])
@simulated
async def test_a_deleted_topic_takes_its_state_with_it(crash: bool) -> None:
    """Also if the broker dies at once: the next start deletes it."""
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = broker.connect()
        gone, kept = [await create_topic(client, name) for name in ("gone", "kept")]
        for topic_id in (gone, kept):
            await initialize(broker, topic_id)
        if crash:
            broker.files.faults.append(Fault("write", errno.EIO, of_state_topic))
        response = await client.call(
            DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5, DeleteTopicsResponse
        )
        assert response.responses[0].error_code == 0
        await trio.sleep(1)
        if crash:
            await broker.crash("process")
            broker.files.faults.clear()
            await broker.start()
            await trio.sleep(1)
        [context] = broker.node.share_coordinator.runtime.loaded.values()
        assert [key.topic_id for key in context.shard.states] == [kept]


@simulated
async def test_prunes() -> None:
    async with SimBroker(config=OFTEN) as broker:
        topic_id = await create_topic(broker.connect(), "t", 2)
        for partition in range(2):
            await initialize(broker, topic_id, partition)
        await trio.sleep(2)
        assert state_log(broker).log_start_offset == 0
        for partition in range(2):
            await initialize(broker, topic_id, partition)
        await write(broker, topic_id, 7)
        await trio.sleep(2)
        assert state_log(broker).log_start_offset == 2
        await broker.crash("process")
        await broker.start()
        state = await broker.node.share_persister.read("q", topic_id, 0, 0)
        assert state.start_offset == 7


@simulated
async def test_idle_share_partitions_do_not_keep_the_log_from_being_pruned() -> None:
    cold = {
        **OFTEN,
        "share.coordinator.cold.partition.snapshot.interval.ms": "5000",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
    }
    async with SimBroker(config=cold) as broker:
        topic_id = await create_topic(broker.connect(), "t", 2)
        for partition in range(2):
            await initialize(broker, topic_id, partition)
        for start in range(40):
            await write(broker, topic_id, start)
            await trio.sleep(0.5)
        assert state_log(broker).log_start_offset > 20
        await broker.crash("process")
        await broker.start()
        for partition, start in ((0, 39), (1, 0)):
            state = await broker.node.share_persister.read("q", topic_id, partition, 0)
            assert state.start_offset == start


@simulated
async def test_a_deleted_state_topic_begins_anew() -> None:
    async with SimBroker(config=OFTEN) as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "t")
        await initialize(broker, topic_id)
        with suppress(KafkaError):
            await client.call(
                DeleteTopicsRequest(topic_names=[STATE_TOPIC], timeout_ms=1000), 5, DeleteTopicsResponse
            )
        assert (await broker.node.share_persister.summary("q", topic_id, 0)).start_offset == -1
        await initialize(broker, topic_id)
        await trio.sleep(2)
