"""Acknowledged changes of groups survive the process, however it ends; a shard is unloaded if its log goes offline."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.shard import GroupShard
from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.wire.messages.heartbeat import HeartbeatResponse
from oncelog.wire.stored.groups import OffsetCommitKey, OffsetCommitValue
from tests.harness.classic_members import coordinated
from tests.harness.offset_requests import commit, delete_offsets, fetch_offsets
from tests.harness.offsets_topic import OFFSETS_TOPIC, ONE_PARTITION, fill, find, log_of
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
EVERY_MESSAGE = {"log.flush.interval.messages": "1"}


def of_offsets_topic(path: str) -> bool:
    return f"/{OFFSETS_TOPIC}-" in path


@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_changes_survive(seed: int) -> None:
    """Power losses with flush.messages=1, deaths of the process in any case: also while commits are on their way."""

    @simulated
    async def run() -> None:
        rng = random.Random(seed)
        power = seed % 2 == 0
        config = {**ONE_PARTITION, **(EVERY_MESSAGE if power else {})}
        async with SimBroker(seed, config=config) as broker:
            client = broker.connect()
            await create_topic(client, "a", 4)
            await find(client)
            told: dict[int, int] = {}
            sent: dict[int, int] = dict.fromkeys(range(4), -1)
            offset = 0
            for _ in range(4):
                for _ in range(rng.randrange(1, 8)):
                    offset += 1
                    partition = rng.randrange(4)
                    sent[partition] = offset
                    response = await commit(client, "g", {"a": {partition: offset}})
                    if response == {("a", partition): 0}:
                        told[partition] = offset
                    if rng.random() < 0.3:
                        assert await fetch_offsets(client, "g", {"a": [partition]}) == {
                            ("a", partition): offset
                        }
                await broker.crash("power" if power else "process")
                await broker.start()
                client = broker.connect()
                found = await fetch_offsets(client, "g", {"a": list(range(4))})
                while found in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR):
                    await trio.sleep(0.1)
                    found = await fetch_offsets(client, "g", {"a": list(range(4))})
                assert isinstance(found, dict), f"seed {seed}: {found}"
                for (_, partition), stored in found.items():
                    assert told.get(partition, -1) <= stored <= sent[partition], f"seed {seed}"

    run()


@simulated
async def test_a_response_waits_for_the_disk() -> None:
    """Reads wait too: the state in their responses must not be lost either."""
    async with SimBroker(config={**ONE_PARTITION, **EVERY_MESSAGE}) as broker:
        client, other = broker.connect(), broker.connect()
        await create_topic(client, "a")
        await find(client)
        broker.files.latency_s = 2
        began = trio.current_time()
        times: list[float] = []

        async def write() -> None:
            await commit(client, "g", {"a": {0: 1}})
            times.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(1)
            assert await fetch_offsets(other, "g") == {("a", 0): 1}
            times.append(trio.current_time() - began)
        assert min(times) >= 2


@simulated
async def test_a_commit_whose_flush_fails_is_refused() -> None:
    async with SimBroker(config={**ONE_PARTITION, **EVERY_MESSAGE}) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        broker.files.faults.append(Fault("fsync", errno.EIO, of_offsets_topic))
        for _ in range(2):
            assert await commit(client, "g", {"a": {0: 1}}) == {("a", 0): NOT_COORDINATOR}
            assert await fetch_offsets(client, "g") == NOT_COORDINATOR
        assert broker.node.groups.runtime.shards() == []


class GivenUp(ClassicGroup):
    """Says when it is unloaded."""

    def __init__(self, group_id: str, told: list[str]) -> None:
        super().__init__(group_id)
        self._told = told

    def on_unloaded(self, shard: GroupShard) -> None:
        self._told.append(self.group_id)


@simulated
async def test_a_shard_is_unloaded_when_its_log_goes_offline() -> None:
    """Waiting members get an error, the shard's deadlines are removed, and other partitions' groups are unaffected."""
    async with SimBroker(config={"offsets.topic.num.partitions": "2"}) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        bad, good = sorted("gh", key=broker.node.groups.runtime.partition_for)
        await commit(client, good, {"a": {0: 1}})
        await commit(client, bad, {"a": {0: 1}})
        shard = broker.node.groups.shard(bad)
        given_up: list[str] = []
        shard.groups[bad] = GivenUp(bad, given_up)
        broker.files.faults.append(Fault("write", errno.EIO, lambda path: f"/{OFFSETS_TOPIC}-0/" in path))
        assert await commit(client, bad, {"a": {0: 2}}) == {("a", 0): NOT_COORDINATOR}
        await trio.testing.wait_all_tasks_blocked()
        assert given_up == [bad]
        assert not shard.loaded
        assert await fetch_offsets(client, bad) == NOT_COORDINATOR
        assert await commit(client, good, {"a": {0: 2}}) == {("a", 0): 0}


@simulated
async def test_a_delayed_response_of_a_shard_that_is_unloaded() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        await commit(client, "g", {"a": {0: 1}})
        groups = broker.node.groups
        shard = groups.shard("g")
        promise: Promise[HeartbeatResponse] = Promise()
        waiting = groups.runtime.respond([shard], promise, lambda error: HeartbeatResponse(0, error.code))
        assert not isinstance(waiting, HeartbeatResponse)
        log_of(broker).fail(OSError(errno.EIO, "broken"))
        await trio.testing.wait_all_tasks_blocked()
        promise.resolve(HeartbeatResponse(0, 0))
        assert (await waiting.wait()).error_code == NOT_COORDINATOR


@simulated
async def test_a_full_disk_refuses_and_then_goes_on() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        await commit(client, "g", {"a": {0: 1}})
        broker.files.faults.append(Fault("write", errno.ENOSPC, of_offsets_topic, times=1))
        assert await commit(client, "g", {"a": {0: 2}}) == {("a", 0): NOT_COORDINATOR}
        assert await fetch_offsets(client, "g") == {("a", 0): 1}
        assert await commit(client, "g", {"a": {0: 3}}) == {("a", 0): 0}
        assert await fetch_offsets(client, "g") == {("a", 0): 3}


@pytest.mark.parametrize("large", [False, True])
def test_the_topic_is_deleted_and_created_again(large: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "a")
            await find(client)
            await commit(client, "g", {"a": {0: 1}})
            if large:
                client = await broker.restart()
            request = DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=1)
            response = await client.call(request, 5, DeleteTopicsResponse)
            assert response.responses[0].error_code == 0
            assert await fetch_offsets(client, "g") == NOT_COORDINATOR
            assert await delete_offsets(client, "g", {"a": [0]}) == NOT_COORDINATOR
            assert broker.node.groups.runtime.shards() == []
            await find(client)
            assert await fetch_offsets(client, "g") == {}
            assert await commit(client, "g", {"a": {0: 5}}) == {("a", 0): 0}
            assert await fetch_offsets(client, "g") == {("a", 0): 5}

    run()


@pytest.mark.parametrize("cold", [False, True])
def test_the_topic_is_deleted_while_a_large_shard_is_loaded(cold: bool) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config=ONE_PARTITION) as broker:
            client = await coordinated(broker)
            await create_topic(client, "a")
            fill(broker, "g", 20_000)
            await broker.restart()
            if cold:
                broker.files.is_cold = of_offsets_topic
                broker.files.latency_s = 10
            client = broker.connect()
            assert await fetch_offsets(client, "g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if cold:
                await trio.sleep(1)
            request = DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=1)
            await client.call(request, 5, DeleteTopicsResponse)
            assert await fetch_offsets(client, "g") == NOT_COORDINATOR
            await find(client)
            assert await commit(client, "g", {"a": {0: 5}}) == {("a", 0): 0}
            await trio.sleep(100)
            assert await fetch_offsets(client, "g") == {("a", 0): 5}
            assert broker.files.held == 0

    run()


@simulated
async def test_a_topic_that_grows_moves_no_group_before_a_restart() -> None:
    async with SimBroker(config={"offsets.topic.num.partitions": "3"}) as broker:
        client = broker.connect()
        await create_topic(client, "a")
        await find(client)
        groups = broker.node.groups
        names = [f"group-{number}" for number in range(20)]
        before = [groups.runtime.partition_for(name) for name in names]
        await commit(client, names[0], {"a": {0: 1}})

        row = CreatePartitionsTopic(OFFSETS_TOPIC, 7, None)
        await client.call(CreatePartitionsRequest([row], 1), 3, CreatePartitionsResponse)
        assert [groups.runtime.partition_for(name) for name in names] == before
        assert max(before) == 2
        client = await broker.restart()
        assert max(broker.node.groups.runtime.partition_for(name) for name in names) > 2
        request = DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=1)
        await client.call(request, 5, DeleteTopicsResponse)
        await find(client)
        assert [broker.node.groups.runtime.partition_for(name) for name in names] == before


@simulated
async def test_a_bug_at_a_deadline_does_not_affect_other_groups() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        broker.node.host.fail_on_internal_errors = False
        deadlines = broker.node.groups.runtime.timer.deadlines
        done: list[float] = []

        def fail() -> None:
            raise ZeroDivisionError

        attempts = iter([KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), None])

        def not_at_first() -> None:
            error = next(attempts)
            if error is not None:
                raise error
            done.append(trio.current_time() - began)

        began = trio.current_time()
        deadlines.set("bad", 100, fail)
        deadlines.set("again", 100, not_at_first)
        deadlines.set("good", 100, lambda: done.append(trio.current_time() - began))
        await trio.sleep(1)
        assert broker.node.host.internal_errors == 1
        assert done == pytest.approx([0.1, 0.6])


class Counted(list[CoordinatorRecord]):
    """Records that count how many of them were encoded."""

    seen = 0

    def __iter__(self) -> Iterator[CoordinatorRecord]:
        for record in super().__iter__():
            self.seen += 1
            yield record


@simulated
async def test_records_too_large_for_a_batch_are_refused_before_all_are_encoded() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        await coordinated(broker)
        record = CoordinatorRecord(
            OffsetCommitKey("g", "a", 0), OffsetCommitValue(1, metadata="m" * 1_000), 3
        )
        records = Counted([record] * 10_000)
        with pytest.raises(KafkaError) as raised:
            broker.node.groups.shard("g").commit(records)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert 0 < records.seen < 1_100
        assert log_of(broker).log_end_offset == 0
        assert not broker.node.groups.shard("g").groups
