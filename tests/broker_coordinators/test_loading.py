"""Loading of shards: small ones at once, large ones in slices between requests, each once and completely."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from oncelog.broker.coordinators.runtime import LOAD_AT_ONCE_BYTES
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.harness.classic_members import coordinated
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.offsets_topic import OFFSETS_TOPIC, ONE_PARTITION, fill, log_of
from tests.harness.requests import create_topic, fetch
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
GROUPS_APART = "ghijk"
"""Each of another partition, if there are five."""

LARGE = 20_000
"""Commits: some two megabytes of log, and twenty slices."""


@pytest.mark.parametrize("how", ["stop", "process"])
def test_requests_while_a_large_shard_is_loaded(how: str) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config=ONE_PARTITION) as broker:
            client = await coordinated(broker)
            await create_topic(client, "a")
            fill(broker, "g", LARGE)
            await (broker.stop() if how == "stop" else broker.crash("process"))
            await broker.start()
            client = broker.connect()
            responses = [await fetch_offsets(client, "g", {"a": [LARGE - 1]})]
            with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
                broker.node.groups.runtime.shards()
            served = 0
            while responses[-1] == LOADING:
                assert (await fetch(client, "a")).error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                served += 1
                responses.append(await fetch_offsets(client, "g", {"a": [LARGE - 1]}))
            assert responses[0] == LOADING
            assert responses[-1] == {("a", LARGE - 1): LARGE - 1}
            assert served >= 2
            assert [shard.partition for shard in broker.node.groups.runtime.shards()] == [0]
            found = await fetch_offsets(client, "g")
            assert found == {("a", number): number for number in range(LARGE)}

    run()


@simulated
async def test_a_small_shard_is_loaded_by_the_first_request() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "a")
        for group in "ghijk":
            await commit(client, group, {"a": {0: 3}})
        await broker.restart()
        while not broker.node.groups.runtime.has_unloaded():  # the loop has let the loading run first
            await broker.restart()
        groups = broker.node.groups
        assert groups.shard("i").groups.keys() == {"i"}
        with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
            groups.runtime.shards()  # a list of groups would lack some
        await trio.testing.wait_all_tasks_blocked()
        assert {group for shard in groups.runtime.shards() for group in shard.groups} == set("ghijk")
        assert len(groups.runtime.shards()) == 5  # not all fifty


@simulated
async def test_a_shard_that_is_still_recovered() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = await coordinated(broker)
        await create_topic(client, "a")
        fill(broker, "g", LARGE)
        assert log_of(broker).size > 10 * LOAD_AT_ONCE_BYTES
        await broker.crash("process")
        await broker.start()
        with pytest.raises(KafkaError) as found:
            broker.node.groups.shard("g")
        assert found.value.code is LOADING
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.node.groups.shard("g").offsets.topics("g")["a"]) == LARGE


@simulated
async def test_a_cold_disk_is_read_in_a_thread() -> None:
    """What the loop itself reads afterwards is in the page cache."""
    async with SimBroker(config=ONE_PARTITION) as broker:
        await coordinated(broker)
        fill(broker, "g", 3_000)
        await broker.restart()
        broker.files.is_cold = lambda path: OFFSETS_TOPIC in path
        broker.files.latency_s = 0.25
        began = trio.current_time()
        while True:
            try:
                shard = broker.node.groups.shard("g")
                break
            except KafkaError:
                await trio.sleep(0.1)
        assert trio.current_time() - began > 0.5
        assert len(shard.offsets.topics("g")["a"]) == 3_000
        await trio.testing.wait_all_tasks_blocked()
        assert broker.files.held == 0


def append(broker: SimBroker, key: bytes, value: bytes | None) -> None:
    batch = BatchBuilder()
    batch.append(broker.clock.now_ms(), key, value)
    log_of(broker).append(batch.build(), leader_epoch=0, origin=AppendOrigin.COORDINATOR)


@simulated
async def test_records_of_unknown_types_are_skipped() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = await coordinated(broker)
        await create_topic(client, "a")
        append(broker, b"\0\x63what a later version writes", b"\0\0anything")
        await commit(client, "g", {"a": {0: 3}})
        append(broker, b"\0\x63what a later version writes", None)
        await broker.restart()
        assert await fetch_offsets(broker.connect(), "g", {"a": [0]}) == {("a", 0): 3}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("key", "value"), [
    (b"\0\1\0\1g\0\1a\0\0\0\0", b"\0\x09 a version of the value that is not known"),
    (b"\0\1\0\x09cut", b"\0\0"),
    (b"", None),
])  # fmt: skip
def test_a_malformed_record_stops_only_its_shard(key: bytes, value: bytes | None, large: bool) -> None:
    """Kafka, too, leaves the coordinator of the partition failed."""

    @simulated
    async def run() -> None:
        async with SimBroker(config={"offsets.topic.num.partitions": "2"}) as broker:
            client = await coordinated(broker)
            await create_topic(client, "a")
            bad, good = sorted("gh", key=broker.node.groups.runtime.partition_for)
            await commit(client, good, {"a": {0: 1}})
            if large:
                fill(broker, bad, 3_000)
            append(broker, key, value)
            client = await broker.restart()
            await trio.testing.wait_all_tasks_blocked()
            assert await commit(client, bad, {"a": {0: 4}}) == {("a", 0): NOT_COORDINATOR}
            assert await commit(client, good, {"a": {0: 4}}) == {("a", 0): 0}
            assert [shard.partition for shard in broker.node.groups.runtime.shards()] == [1]
            assert broker.files.held == 0

    run()


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("large", [False, True])
def test_a_failing_read(large: bool, error: int) -> None:
    """After a shortage the next request tries again; anything else takes the log offline."""

    @simulated
    async def run() -> None:
        async with SimBroker(config=ONE_PARTITION) as broker:
            await coordinated(broker)
            count = 3_000 if large else 3
            fill(broker, "g", count)
            await broker.stop()
            broker.files.is_cold = of_offsets_log
            broker.files.latency_s = 1
            await broker.start()
            await trio.sleep(0.5)  # it is being read ahead, in a thread
            broker.files.faults.append(Fault("read", error, of_offsets_log, times=1))
            await trio.sleep(0.7)  # sooner than it is loaded without being asked for
            client = broker.connect()
            response = await fetch_offsets(client, "g")
            if error == errno.EIO:
                assert response == NOT_COORDINATOR
                assert log_of(broker).offline
                assert await fetch_offsets(client, "g") == NOT_COORDINATOR
            else:
                if large:
                    assert response == LOADING
                    await trio.sleep(60)
                    response = await fetch_offsets(client, "g")
                assert isinstance(response, dict)
                assert len(response) == count
            assert broker.files.held == 0

    run()


@simulated
async def test_loading_is_retried_without_a_request_after_opening_the_log_failed() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        await coordinated(broker)
        fill(broker, "g", 3)
        await broker.stop()
        broker.files.faults.append(Fault("open", errno.EMFILE, of_offsets_log))
        await broker.start()
        await trio.sleep(60)
        with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
            broker.node.groups.runtime.shards()
        assert await fetch_offsets(broker.connect(), "g") == LOADING
        broker.files.faults.clear()
        await trio.sleep(2)
        [shard] = broker.node.groups.runtime.shards()
        assert list(shard.groups) == ["g"]


@pytest.mark.parametrize("large", [False, True])
def test_loading_is_retried_without_a_request_after_a_failed_read(large: bool) -> None:
    """Otherwise sessions would not time out, transactions would not be completed, and lists would lack groups."""

    @simulated
    async def run() -> None:
        async with SimBroker(config=ONE_PARTITION) as broker:
            await coordinated(broker)
            fill(broker, "g", 3_000 if large else 3)
            await broker.stop()
            broker.files.is_cold = of_offsets_log
            broker.files.latency_s = 0.1
            await broker.start()
            await trio.sleep(0.05)  # it is being read ahead
            broker.files.faults.append(Fault("read", errno.EMFILE, of_offsets_log))
            await trio.sleep(60)
            with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
                broker.node.groups.runtime.shards()
            broker.files.faults.clear()
            await trio.sleep(2)
            [shard] = broker.node.groups.runtime.shards()
            assert list(shard.groups) == ["g"]

    run()


def of_offsets_log(path: str) -> bool:
    return f"/{OFFSETS_TOPIC}-0/" in path and path.endswith(".log")


@simulated
async def test_a_topic_that_is_deleted_while_a_shard_is_loaded_leaves_no_offsets() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = await coordinated(broker)
        for topic in "ab":
            await create_topic(client, topic)
            fill(broker, "g", LARGE // 2, topic)
        client = await broker.restart()
        assert await fetch_offsets(client, "g") == LOADING
        await client.call(DeleteTopicsRequest(topic_names=["a"]), 5, DeleteTopicsResponse)
        assert await fetch_offsets(client, "g") == LOADING, "or this shows nothing"
        await trio.sleep(1)
        found = await fetch_offsets(client, "g")
        assert found == {("b", number): number for number in range(LARGE // 2)}
        assert not broker.node.groups._deleted_before_load


@simulated
async def test_background_work_goes_on_after_a_shard_that_cannot_be_written() -> None:
    """All groups handle the deletion of a topic, in whichever order."""
    async with SimBroker(config={"offsets.topic.num.partitions": "5"}) as broker:
        client = await coordinated(broker)
        await create_topic(client, "a")
        for group in GROUPS_APART:
            assert await commit(client, group, {"a": {0: 1}}) == {("a", 0): 0}
        broker.files.faults.append(Fault("write", errno.ENOSPC, of_offsets_log, times=1))
        await client.call(DeleteTopicsRequest(topic_names=["a"]), 5, DeleteTopicsResponse)
        await trio.sleep(1)
        found = [await fetch_offsets(client, group) for group in GROUPS_APART]
        assert found.count({}) == len(GROUPS_APART) - 1
