"""ShareFetch: records are acquired, locked, given back; long poll, sessions. compat_tests/share compares with Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.share_fetch import FetchPartition, FetchTopic
from tests.common.batches import TRANSACTIONAL, batch, read_batches, record
from tests.harness.requests import bytes_of, create_topic, produce
from tests.harness.share_readers import GROUP, ShareReader, serve_share_groups
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

ACCEPT, RELEASE, REJECT, RENEW = [1], [2], [3], [4]


@contextlib.asynccontextmanager
async def share_broker(
    *sizes: int, partitions: int = 1, config: dict[str, str] | None = None
) -> AsyncIterator[tuple[SimBroker, bytes]]:
    """A broker with a topic that has record batches with so many records each."""
    async with SimBroker(config=config) as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a", partitions, {"retention.ms": "-1"})
        for size in sizes:
            await produce(client, "a", batch(size))
        await serve_share_groups(broker, topic_id, partitions)
        yield broker, topic_id


@simulated
async def test_records_are_acquired_and_accepted() -> None:
    async with share_broker(3, 2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        [row] = await member.fetch(wait_ms=1000)
        assert [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records] == [
            (0, 4, 1)
        ]
        assert [header.base_offset for header in read_batches(bytes_of(row.records))] == [0, 3]
        assert await member.acknowledge((0, 4, ACCEPT)) == 0
        assert await member.acquire() == []
        summary = await broker.node.share_persister.summary(GROUP, topic_id, 0)
        assert (summary.start_offset, summary.delivery_complete_count) == (0, 5)
        [partition] = broker.node.shares.partitions_of(GROUP)
        assert partition.window is not None
        assert partition.window.start_offset == 5


@simulated
async def test_a_response_has_the_batches_with_acquired_records_only() -> None:
    async with share_broker(2, 2, 2, 2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        await member.acquire(wait_ms=1000)
        await member.acknowledge((2, 3, RELEASE))
        [row] = await member.fetch()
        assert [header.base_offset for header in read_batches(bytes_of(row.records))] == [2]


@simulated
async def test_large_records_are_sent_from_the_file() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a")
        sent = b""
        for count in range(20):
            await produce(client, "a", batch([record(value=bytes([count]) * 10_000)]))
        await serve_share_groups(broker, topic_id)
        member = ShareReader(broker.connect(), topic_id)
        [row] = await member.fetch(wait_ms=1000, most=3)
        sent = bytes_of(row.records)
        assert [header.base_offset for header in read_batches(sent)] == [0, 1, 2]


@simulated
async def test_a_fetch_waits_for_records() -> None:
    async with share_broker() as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        assert await member.acquire() == []
        got: list[Any] = []

        async def fetch() -> None:
            got.append((await member.acquire(wait_ms=60_000), trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.sleep(1)
            began = trio.current_time()
            await produce(broker.connect(), "a", batch(2))
        assert got == [([(0, 1, 1)], began)]


@pytest.mark.parametrize("how", ["release", "leave", "lock ends", "connection lost"])
def test_a_fetch_waits_for_what_others_give_back(how: str) -> None:
    @simulated
    async def run() -> None:
        async with share_broker(2) as (broker, topic_id):
            first, second = (ShareReader(broker.connect(), topic_id, name) for name in "ab")
            assert await first.acquire(wait_ms=1000) == [(0, 1, 1)]
            got: list[Any] = []

            async def fetch() -> None:
                got.append((await second.acquire(wait_ms=60_000), trio.current_time()))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fetch)
                await trio.sleep(1)
                assert not got
                if how == "release":
                    await first.acknowledge((0, 1, RELEASE))
                elif how == "leave":
                    await first.leave()
                elif how == "connection lost":
                    first.client.transport.close()
                else:
                    await trio.sleep(29)
                ended = trio.current_time()
            assert got == [([(0, 1, 2)], ended)]

    run()


@simulated
async def test_a_fetch_ends_after_its_time() -> None:
    async with share_broker() as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        began = trio.current_time()
        assert await member.acquire(wait_ms=5_000) == []
        assert trio.current_time() - began == pytest.approx(5)


@simulated
async def test_a_lost_connection_gives_back() -> None:
    async with share_broker(2) as (broker, topic_id):
        client = broker.connect()
        first = ShareReader(client, topic_id, "a")
        second = ShareReader(broker.connect(), topic_id, "b")
        await second.fetch()
        assert await first.acquire(wait_ms=1000) == [(0, 1, 1)]
        client.transport.close()
        assert await second.acquire(wait_ms=1000) == [(0, 1, 2)]
        assert len(broker.node.shares.sessions) == 1


@simulated
async def test_a_group_without_sessions_keeps_no_share_partitions_and_goes_on_from_what_is_stored() -> None:
    async with share_broker(4) as (broker, topic_id):
        client = broker.connect()
        first = ShareReader(client, topic_id, "a")
        assert await first.acquire(wait_ms=1000) == [(0, 3, 1)]
        await first.acknowledge((0, 0, ACCEPT), (2, 2, ACCEPT))
        assert len(broker.node.shares) == 1
        client.transport.close()
        await trio.testing.wait_all_tasks_blocked()
        assert len(broker.node.shares) == 0
        second = ShareReader(broker.connect(), topic_id, "b")
        assert await second.acquire(wait_ms=1000) == [(1, 1, 2), (3, 3, 2)]


@simulated
async def test_a_restart_delivers_again_what_was_not_acknowledged() -> None:
    async with share_broker(4) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        assert await member.acquire(wait_ms=1000) == [(0, 3, 1)]
        await member.acknowledge((0, 1, ACCEPT))
        await broker.crash("process")
        await broker.start()
        member = ShareReader(broker.connect(), topic_id)
        assert await member.acquire(wait_ms=10_000) == [(2, 3, 1)]


@simulated
async def test_acknowledgements_on_a_fetch() -> None:
    async with share_broker(4) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        await member.acquire(wait_ms=1000)
        rows = await member.fetch((0, 1, ACCEPT), (2, 3, RELEASE), wait_ms=1000)
        [row] = rows
        assert row.acknowledge_error_code == 0
        assert [(one.first_offset, one.last_offset) for one in row.acquired_records] == [(2, 3)]
        [row] = await member.fetch((0, 1, ACCEPT), (3, 2, ACCEPT))
        assert row.acknowledge_error_code == ErrorCode.INVALID_REQUEST
        [row] = await member.fetch((2, 2, ACCEPT), (2, 2, ACCEPT))
        assert row.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


@simulated
async def test_a_renewed_lock() -> None:
    async with share_broker(2) as (broker, topic_id):
        first, second = (ShareReader(broker.connect(), topic_id, name) for name in "ab")
        assert await first.acquire(wait_ms=1000) == [(0, 1, 1)]
        await trio.sleep(20)
        [row] = await first.fetch((0, 1, RENEW))
        assert row.acknowledge_error_code == 0
        await trio.sleep(20)
        assert await second.acquire() == []
        assert await second.acquire(wait_ms=60_000) == [(0, 1, 2)]
        [row] = await first.fetch((0, 1, ACCEPT))
        assert row.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


@simulated
async def test_a_renewal_must_not_ask_for_records() -> None:
    async with share_broker(2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        await member.acquire(wait_ms=1000)
        response = await member.call(member.request((0, 1, RENEW), max_bytes=1, max_records=1))
        assert response.error_code == ErrorCode.INVALID_REQUEST


@simulated
async def test_an_unknown_acquire_mode() -> None:
    async with share_broker(2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        wrong = await member.call(member.request(share_acquire_mode=2))
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        assert await member.acquire(wait_ms=1000) == [(0, 1, 1)]


@simulated
async def test_a_negative_size_asks_for_nothing() -> None:
    async with share_broker(2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        assert await member.fetch(wait_ms=1000, max_bytes=-1) == []
        assert await member.acquire(wait_ms=1000) == [(0, 1, 1)]


@simulated
async def test_sessions_out_of_step() -> None:
    async with share_broker(2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        member.epoch = 1
        assert (await member.call(member.request())).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        member.epoch = 0
        begin = member.request((0, 0, ACCEPT))
        assert (await member.call(begin)).error_code == ErrorCode.INVALID_REQUEST
        await member.fetch()
        member.epoch = 5
        assert (await member.call(member.request())).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await member.say(epoch=0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        member.epoch = 1
        await member.fetch()
        await member.leave()
        assert (await member.leave()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@simulated
async def test_no_more_sessions_than_the_limit() -> None:
    config = {"group.share.max.share.sessions": "200"}
    async with share_broker(config=config) as (broker, topic_id):
        members = [ShareReader(broker.connect(), topic_id, f"m{n}", partitions=0) for n in range(201)]
        for member in members[:200]:
            await member.call(member.request())
        began = trio.current_time()
        response = await members[200].call(members[200].request(wait_ms=700))
        assert response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert trio.current_time() - began == pytest.approx(0.7)


@simulated
async def test_partitions_that_are_not_there() -> None:
    async with share_broker(1) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id, partitions=2)
        topics = [
            FetchTopic(topic_id, [FetchPartition(0), FetchPartition(1)]),
            FetchTopic(b"x" * 16, [FetchPartition(0)]),
        ]
        response = await member.call(member.request(wait_ms=1000, topics=topics))
        codes = {
            (bytes(topic.topic_id), row.partition_index): row.error_code
            for topic in response.responses
            for row in topic.partitions
        }
        assert codes == {
            (topic_id, 0): 0,
            (topic_id, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (b"x" * 16, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }


@simulated
async def test_a_share_partition_that_nobody_initialized() -> None:
    async with share_broker(1) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id, group="other")
        [row] = await member.fetch(wait_ms=1000)
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(broker.node.shares) == 0


@simulated
async def test_records_in_a_deleted_part_of_the_log() -> None:
    async with share_broker(2, 2, 2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        broker.node.cluster.log("a", 0).delete_records(4)
        assert await member.acquire(wait_ms=1000) == []
        assert await member.acquire() == [(4, 5, 1)]


@simulated
async def test_an_aborted_transaction_is_not_delivered_to_a_group_that_reads_committed_records() -> None:
    async with share_broker() as (broker, topic_id):
        client = broker.connect()
        log = broker.node.cluster.log("a", 0)
        for producer, commit in ((1, False), (2, True)):
            records = batch(2, attributes=TRANSACTIONAL, producer=(producer, 0, 0))
            log.append(bytearray(records), leader_epoch=0)
            marker = end_transaction_marker(
                commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=0
            )
            log.append(marker, leader_epoch=0, origin=_coordinator())
        set_group_config(broker, "share.isolation.level", "read_committed")
        member = ShareReader(client, topic_id)
        assert await member.acquire(wait_ms=1000) == [(2, 5, 1)]
        open_one = batch(2, attributes=TRANSACTIONAL, producer=(3, 0, 0))
        log.append(bytearray(open_one), leader_epoch=0)
        assert await member.acquire(wait_ms=1000) == []


def _coordinator() -> Any:
    from oncelog.broker.log.producers.state import AppendOrigin

    return AppendOrigin.COORDINATOR


def set_group_config(broker: SimBroker, name: str, value: str) -> None:
    from oncelog.broker.metadata.image import GROUP as GROUP_RESOURCE
    from oncelog.wire.stored.metadata import ConfigRecord

    record = ConfigRecord(resource_type=GROUP_RESOURCE, resource_name=GROUP, name=name, value=value)
    broker.node.metadata.commit([record])


@simulated
async def test_a_window_full_of_aborted_records_moves_on() -> None:
    async with share_broker() as (broker, topic_id):
        log = broker.node.cluster.log("a", 0)
        for number in range(10):
            records = batch(10, attributes=TRANSACTIONAL, producer=(1, 0, 10 * number))
            log.append(bytearray(records), leader_epoch=0)
        marker = end_transaction_marker(
            commit=False, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=0
        )
        log.append(marker, leader_epoch=0, origin=_coordinator())
        log.append(bytearray(batch(1)), leader_epoch=0)
        set_group_config(broker, "share.isolation.level", "read_committed")
        set_group_config(broker, "share.partition.max.record.locks", "100")
        member = ShareReader(broker.connect(), topic_id)
        assert await member.acquire(wait_ms=1000) == []
        assert await member.acquire(wait_ms=1000) == [(100, 101, 1)]


@simulated
async def test_where_a_group_begins() -> None:
    async with share_broker(2) as (broker, topic_id):
        await broker.node.share_persister.initialize("new", topic_id, 0, 0, -1)
        member = ShareReader(broker.connect(), topic_id, group="new")
        assert await member.acquire(wait_ms=1000) == []
        await produce(broker.connect(), "a", batch(1))
        assert await member.acquire() == [(2, 2, 1)]


@simulated
async def test_what_could_not_be_stored_stays_acquired() -> None:
    async with share_broker(2) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id)
        await member.acquire(wait_ms=1000)
        await broker.node.share_persister.delete(GROUP, topic_id, 0)
        assert await member.acknowledge((0, 1, ACCEPT)) == ErrorCode.UNKNOWN_SERVER_ERROR
        [partition] = broker.node.shares.partitions_of(GROUP)
        assert partition.window is not None
        assert [records.pending for records in partition.window.states()] == [None]


@simulated
async def test_a_deleted_topic() -> None:
    async with share_broker(2) as (broker, topic_id):
        from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

        member = ShareReader(broker.connect(), topic_id)
        await member.acquire(wait_ms=1000)
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
        await broker.connect().call(request, 4, DeleteTopicsResponse)
        assert len(broker.node.shares) == 0
        assert await member.acknowledge((0, 1, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID
        [row] = await member.fetch()
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_a_thousand_share_partitions_without_traffic_have_no_timers() -> None:
    async with share_broker(partitions=1_000) as (broker, topic_id):
        member = ShareReader(broker.connect(), topic_id, partitions=1_000)
        await member.call(member.request(wait_ms=10_000))
        assert len(broker.node.shares) == 1_000
        assert len(broker.node.shares.timer.deadlines) == 0


@pytest.mark.parametrize("on_fetch", [False, True], ids=["ShareAcknowledge", "ShareFetch"])
def test_several_partitions_are_stored_at_the_same_time(on_fetch: bool) -> None:
    """They share a flush, and one that cannot be stored keeps no other from it."""

    @simulated
    async def run() -> None:
        config = {"log.flush.interval.messages": "1", "share.coordinator.state.topic.num.partitions": "2"}
        async with share_broker(2, partitions=30, config=config) as (broker, topic_id):
            client = broker.connect()
            for partition in range(1, 30):
                await produce(client, "a", batch(2), partition=partition)
            member = ShareReader(client, topic_id, partitions=30)
            acquired: set[int] = set()
            while len(acquired) < 30:
                acquired |= {row.partition_index for row in await member.fetch(wait_ms=1000) if row.records}
            broker.files.latency_s = 5
            before = syncs(broker)
            began = trio.current_time()
            response = await member.say_of_all((0, 0, ACCEPT), on_fetch=on_fetch, beyond={7})
            # Two flushes are under way at the same time; what comes while they are waits for a second one.
            assert trio.current_time() - began <= 20
            assert syncs(broker) - before <= 8
            assert {code for partition, code in response.items() if partition != 7} == {0}
            assert response[7] == ErrorCode.INVALID_REQUEST
            broker.files.latency_s = 0
            for one in broker.node.shares.partitions_of(GROUP):
                assert one.window is not None
                assert one.window.start_offset == (0 if one.partition == 7 else 1)

    run()


def syncs(broker: SimBroker) -> int:
    """How often a log of the share coordinator was flushed."""
    return sum(
        count
        for (operation, path), count in broker.files.counts.items()
        if operation == "fsync" and "__share_group_state" in path
    )
