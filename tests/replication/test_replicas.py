"""Replicated partitions on three nodes: what is acknowledged, what may be read, what stays when a leader is lost."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
from oncelog.wire.messages.produce import LeaderIdAndEpoch
from tests.harness.replicated_nodes import running_nodes, values_of
from tests.harness.simulation import simulated
from tests.sim.disk import Fault

LATEST, EARLIEST = -1, -2
both_forms = pytest.mark.parametrize("encodes", [False, True])


@both_forms
@simulated
async def test_what_acks_all_acknowledged_survives_the_leader(encodes: bool) -> None:
    async with running_nodes(encodes=encodes) as nodes:
        nodes.create(min_insync_replicas="2")
        row = await nodes[1].produce(b"a", b"b")
        assert (row.error_code, row.base_offset) == (0, 0)
        nodes[1].kill()
        nodes.elect(2, isr=[2, 3])
        row = await nodes[2].produce(b"c")
        assert (row.error_code, row.base_offset) == (0, 2)
        assert nodes[2].values() == [b"a", b"b", b"c"]
        assert nodes[3].values() == [b"a", b"b", b"c"]


@both_forms
@simulated
async def test_a_record_that_acks_1_lost_was_never_readable(encodes: bool) -> None:
    async with running_nodes(encodes=encodes) as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes.isolate(1)
        row = await nodes[1].produce(b"lost", acks=1)
        assert (row.error_code, row.base_offset) == (0, 1)
        read = await nodes[1].fetch(0, max_wait_ms=2000)
        assert values_of(read.records) == [b"a"]
        nodes[1].kill()
        nodes.elect(2, isr=[2, 3])
        nodes.heal()
        row = await nodes[2].produce(b"b")
        assert (row.error_code, row.base_offset) == (0, 1)

        await nodes[1].start()
        await nodes.wait_isr(1, 2, 3)
        assert nodes[1].values() == [b"a", b"b"]


@both_forms
@simulated
async def test_after_an_unclean_election_the_old_leader_cuts_its_log_where_the_epochs_part(
    encodes: bool,
) -> None:
    async with running_nodes(encodes=encodes) as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        for node_id in (2, 3):
            nodes[node_id].kill()
            nodes.fence(node_id)
        nodes.change(isr=[1])
        row = await nodes[1].produce(b"b", b"c")  # alone in the ISR, it acknowledges
        assert row.error_code == 0
        assert values_of((await nodes[1].fetch(0)).records) == [b"a", b"b", b"c"]
        nodes[1].kill()
        await nodes[2].start()
        nodes.elect(2, isr=[2])
        row = await nodes[2].produce(b"d")
        assert (row.error_code, row.base_offset) == (0, 1)

        await nodes[1].start()
        await nodes.wait_isr(1, 2)
        assert nodes[1].values() == [b"a", b"d"]
        assert nodes[1].log.epochs.entries() == nodes[2].log.epochs.entries() == [(0, 0), (1, 1)]
        # A consumer that had read on is told where (KIP-320).
        row = await nodes[2].fetch(3, epoch=0)
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await nodes[2].fetch(3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@simulated
async def test_a_follower_that_has_cut_its_log_to_the_leaders_end_hears_of_the_watermark() -> None:
    """It has led an epoch without records: the cut takes only the epoch, and no record follows that would tell it."""
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a", b"b")
        nodes.network.cut(1, 2)
        nodes.network.cut(3, 2)
        nodes.elect(2, isr=[2])
        await nodes.wait(lambda: nodes[2].log.epochs.entries() == [(0, 0), (1, 2)])
        assert (nodes[2].log.high_watermark, nodes[2].log.log_end_offset) == (0, 2)
        nodes.elect(1, isr=[1])
        nodes.heal()
        await nodes.wait(lambda: [node.log.high_watermark for node in nodes] == [2, 2, 2])
        assert nodes[2].log.epochs.entries() == [(0, 0)]


@simulated
async def test_a_follower_that_lags_leaves_the_isr_and_comes_back() -> None:
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a")
        nodes.network.cut(3, 1)
        began = trio.current_time()
        row = await nodes[1].produce(b"b", timeout_ms=30_000)  # waits until it has left
        assert row.error_code == 0
        assert 2 <= trio.current_time() - began <= 4 * 1.5 + 0.5
        assert nodes.partition.isr == [1, 2]
        assert nodes[3].values() == [b"a"]
        nodes.heal()
        await nodes.wait_isr(1, 2, 3)
        assert nodes[3].values() == [b"a", b"b"]
        assert nodes.partition.leader_epoch == 0


@simulated
async def test_a_node_that_ends_can_begin_to_lead() -> None:
    """A follower's fetch lets it, between the end of the node's tasks and its leaving of the network."""
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        await nodes.wait(lambda: nodes[2].values() == [b"a"])
        flushing = nodes[2].config.with_changes({"log.flush.interval.messages": "1"})
        nodes[2].logs.update_config("t", effective_topic_config(nodes[2].metadata.image, flushing, "t"))
        assert nodes[2].log.durable_offset < nodes[2].log.log_end_offset
        nodes[2].kill()
        await trio.testing.wait_all_tasks_blocked()
        assert nodes[2].replication.lead(nodes[2].metadata.image.topics["t"], 0, None).log is nodes[2].log


@simulated
async def test_a_follower_of_an_idle_partition_stays_in_sync() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        await trio.sleep(60)
        await nodes[1].produce(b"b", acks=1)
        nodes[1].leader.maybe_shrink()  # at once, before a follower has fetched
        await trio.sleep(10)
        assert nodes.proposals == []


@simulated
async def test_below_min_isr_nothing_is_committed_until_a_follower_is_back() -> None:
    """As seen of Kafka 4.4.0 with three brokers, both followers of which are killed."""
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a")
        nodes[2].kill()
        nodes[3].kill()
        began = trio.current_time()
        row = await nodes[1].produce(b"b", timeout_ms=1000)
        assert 1 <= trio.current_time() - began < 1.1
        assert (row.error_code, row.base_offset, row.log_start_offset, row.error_message) == (7, 1, 0, None)
        nodes.fence(3)
        nodes.change(isr=[1, 2])
        nodes.fence(2)
        nodes.change(isr=[1], eligible_leader_replicas=[2])

        row = await nodes[1].produce(b"never")
        assert (row.error_code, row.base_offset, row.log_start_offset) == (19, -1, 0)
        row = await nodes[1].produce(b"c", b"d", acks=1)
        assert (row.error_code, row.base_offset) == (0, 2)
        read = await nodes[1].fetch(0)
        assert (values_of(read.records), read.high_watermark, read.last_stable_offset) == ([b"a"], 1, 1)
        for offset in (1, 4):
            read = await nodes[1].fetch(offset)
            assert (read.error_code, values_of(read.records), read.high_watermark) == (0, [], 1)
        assert (await nodes[1].fetch(99)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await nodes[1].list_offset(LATEST)).offset == 1
        assert (await nodes[1].list_offset(LATEST, replica_id=-2)).offset == 4
        assert (await nodes[1].list_offset(EARLIEST)).offset == 0

        await nodes[2].start()
        await nodes.wait_isr(1, 2)
        read = await nodes[1].fetch(0)
        assert (values_of(read.records), read.high_watermark) == ([b"a", b"b", b"c", b"d"], 4)
        assert (await nodes[1].produce(b"e")).error_code == 0
        assert nodes.partition.leader_epoch == 0


@simulated
async def test_an_append_that_is_committed_below_min_isr_says_so() -> None:
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a")
        nodes.network.cut(2, 1)
        nodes.network.cut(3, 1)
        async with trio.open_nursery() as nursery:
            rows: list[Any] = []

            async def produce() -> None:
                rows.append(await nodes[1].produce(b"b", timeout_ms=30_000))

            nursery.start_soon(produce)
            await trio.sleep(0.1)
            leader = nodes[1].leader
            # Two followers have it, and the ISR shrinks in the same moment.
            for follower in leader.followers.values():
                follower.end_offset = 2
            nodes[1].log.advance_high_watermark(2)
            nodes.change(isr=[1])
        assert rows[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@simulated
async def test_a_lost_leadership_ends_the_wait_at_once() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes.network.cut(2, 1)
        nodes.network.cut(3, 1)
        rows: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                rows.append(await nodes[1].produce(b"b", timeout_ms=30_000))

            async def fetch() -> None:
                rows.append(await nodes[1].fetch(1, epoch=0, max_wait_ms=30_000))

            nursery.start_soon(produce)
            nursery.start_soon(fetch)
            await trio.sleep(0.1)
            began = trio.current_time()
            nodes.elect(2)
        assert trio.current_time() - began < 0.1
        codes = sorted(row.error_code for row in rows)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]


@simulated
async def test_the_same_leader_in_a_new_epoch_goes_on_waiting() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        nodes.network.cut(2, 1)
        nodes.network.cut(3, 1)
        rows: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                rows.append(await nodes[1].produce(b"a", timeout_ms=30_000))

            nursery.start_soon(produce)
            await trio.sleep(0.1)
            nodes.elect(1)
            await trio.sleep(0.1)
            assert rows == []
            nodes.heal()
        assert rows[0].error_code == 0
        assert nodes[1].log.epochs.entries() == [(0, 0), (1, 1)]


@simulated
async def test_a_leader_that_loses_its_followers_fulfils_what_waits() -> None:
    """Found by a reviewer: a reassignment to the leader alone failed what waited for the others, although nothing was
    lost; a producer without idempotence sent its record again.
    """
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a", b"b")
        await nodes.wait_replicated()
        nodes.network.cut(2, 1)
        nodes.network.cut(3, 1)
        rows: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                rows.append(await nodes[1].produce(b"c", timeout_ms=30_000))

            async def delete() -> None:
                rows.append(await nodes[1].delete_records(1, timeout_ms=30_000))

            nursery.start_soon(produce)
            nursery.start_soon(delete)
            await trio.sleep(0.1)
            assert rows == []
            nodes.change(isr=[1], replicas=[1], leader=1)
        assert [row.error_code for row in rows] == [0, 0]
        assert (nodes[1].log.high_watermark, nodes[1].log.log_start_offset) == (3, 1)
        assert (await nodes[1].produce(b"d")).error_code == 0


@simulated
async def test_who_asks_the_wrong_node_is_told_the_right_one() -> None:
    """KIP-951, with the values that Kafka 4.4.0 was seen to give."""
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        row = await nodes[2].produce(b"b")
        assert (row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset) == (
            6,
            -1,
            -1,
            -1,
        )
        assert row.current_leader == LeaderIdAndEpoch(1, 0)
        [node] = nodes[2].last_response.node_endpoints
        assert (node.node_id, node.host, node.port) == (1, "node1", 9092)

        row = await nodes[2].fetch(0, version=10)  # its client does not know that followers may be read
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        nodes.elect(2)
        row = await nodes[2].fetch(0, epoch=0, version=17)
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)
        response: FetchResponse = nodes[2].last_response
        assert [node.node_id for node in response.node_endpoints] == [2]
        assert (await nodes[1].produce(b"b")).current_leader == LeaderIdAndEpoch(2, 1)


@simulated
async def test_the_leader_epoch_is_checked_before_the_leadership() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes.wait_replicated()
        for node in nodes:
            assert (await node.fetch(0, epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await node.list_offset(LATEST, epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await nodes[2].list_offset(LATEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await nodes[2].list_offset(LATEST, replica_id=-2)).error_code == 0


@simulated
async def test_a_new_leader_does_not_tell_the_end_before_it_knows_what_was_committed() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a", b"b")
        await nodes.wait_replicated()
        nodes[1].kill()
        nodes.network.cut(3, 2)
        nodes.elect(2, isr=[2, 3])
        assert nodes[2].log.high_watermark < 2  # it has not heard of the last watermark
        assert (await nodes[2].list_offset(LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await nodes[2].list_offset(LATEST, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await nodes[2].list_offset(2_000_000_000_000)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await nodes[2].list_offset(EARLIEST)).offset == 0
        nodes.heal()
        await nodes.wait(lambda: nodes[2].log.high_watermark == 2)
        assert (await nodes[2].list_offset(LATEST)).offset == 2


@simulated
async def test_delete_records_waits_for_the_live_followers() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a", b"b")
        await nodes.wait(lambda: nodes[1].log.high_watermark == 2)
        row = await nodes[1].delete_records(1)
        assert (row.error_code, row.low_watermark) == (0, 1)
        assert [node.log.log_start_offset for node in nodes] == [1, 1, 1]
        nodes.network.cut(3, 1)
        row = await nodes[1].delete_records(2, timeout_ms=500)
        assert (row.error_code, row.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        nodes.fence(3)  # it is no longer waited for
        row = await nodes[1].delete_records(2)
        assert (row.error_code, row.low_watermark) == (0, 2)


@simulated
async def test_a_follower_whose_records_the_leader_has_deleted_begins_anew() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes[3].kill()
        nodes.fence(3)
        nodes.change(isr=[1, 2])
        await nodes[1].produce(b"b", b"c")
        await nodes[1].produce(b"d")
        assert (await nodes[1].delete_records(3)).error_code == 0
        await nodes[3].start()
        await nodes.wait_isr(1, 2, 3)
        assert (nodes[3].log.log_start_offset, nodes[3].values()) == (3, [b"d"])


@simulated
async def test_consumers_read_a_follower_up_to_the_watermark_that_it_knows() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        read = await nodes[2].fetch(0, max_wait_ms=2000)
        assert values_of(read.records) == [b"a"]
        nodes.network.cut(3, 1)
        await nodes[1].produce(b"b", acks=1)
        await nodes.wait(lambda: nodes[2].log.log_end_offset == 2)
        assert values_of((await nodes[2].fetch(1)).records) == []
        assert values_of((await nodes[2].fetch(1, replica_id=-2)).records) == [b"b"]


@simulated
async def test_the_leader_sends_a_consumer_to_the_replica_in_its_rack() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with running_nodes(racks=["a", "b", "c"], replica_selector_class=selector) as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        row = await nodes[1].fetch(0, rack="b", max_wait_ms=10_000)
        assert (row.error_code, row.preferred_read_replica, values_of(row.records)) == (0, 2, [])
        assert (await nodes[1].fetch(0, rack="a")).preferred_read_replica == -1
        assert values_of((await nodes[1].fetch(0, rack="a")).records) == [b"a"]
        assert (await nodes[1].fetch(0, rack="elsewhere")).preferred_read_replica == -1
        nodes.change(isr=[1, 3])
        assert (await nodes[1].fetch(0, rack="b")).preferred_read_replica == -1


@simulated
async def test_idle_partitions_are_not_named_in_the_requests_and_responses_of_a_round() -> None:
    async with running_nodes() as nodes:
        for number in range(20):
            nodes.create(topic=f"idle{number}")
        nodes.create()
        await nodes[1].produce(b"a")
        await trio.sleep(2)
        named: list[tuple[int, int]] = []

        def count(request: FetchRequest, response: FetchResponse) -> None:
            named.append((len(request.topics), len(response.responses)))

        nodes[1].on_fetch = count
        for _ in range(5):
            await nodes[1].produce(b"b")
        await trio.sleep(2)
        assert named
        assert max(named) <= (1, 1)


@simulated
async def test_a_leader_whose_metadata_are_behind_its_followers_answers_when_it_has_them() -> None:
    async with running_nodes(replica_fetch_backoff_ms="60000") as nodes:
        nodes.network.cut(CONTROLLER_ID, 1)
        nodes.create()  # nodes 2 and 3 know of it, and fetch
        await trio.sleep(0.1)
        nodes.network.heal()
        nodes[1].catch_up()
        row = await nodes[1].produce(b"a", timeout_ms=100)
        assert row.error_code == 0


@simulated
async def test_a_new_partition_is_fetched_at_once_though_a_fetch_waits() -> None:
    async with running_nodes() as nodes:
        nodes.create(topic="other")
        await nodes[1].produce(b"a", topic="other")
        await trio.sleep(2.1)  # the followers' fetches wait, for 500 ms each
        nodes.create()
        row = await nodes[1].produce(b"a", timeout_ms=50)
        assert row.error_code == 0


@simulated
async def test_a_start_names_each_partition_a_few_times() -> None:
    """Not in a session for each of them, which names all."""
    async with running_nodes() as nodes:
        for number in range(50):
            nodes.create(topic=f"t{number}")
        await trio.sleep(2)
        named: list[int] = []
        nodes[1].on_fetch = lambda request, response: named.append(len(request.topics))
        nodes[2].kill()
        await nodes[2].start()
        await trio.sleep(2)
        assert 50 <= sum(named) <= 4 * 50


@simulated
async def test_with_acks_1_nobody_waits_for_the_followers() -> None:
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="3")
        nodes.isolate(1)
        began = trio.current_time()
        assert (await nodes[1].produce(b"a", acks=1)).error_code == 0
        assert trio.current_time() == began
        assert (await nodes[1].produce(b"b", timeout_ms=100)).error_code == ErrorCode.REQUEST_TIMED_OUT


@simulated
async def test_a_follower_that_becomes_the_leader_fetches_no_longer() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes.network.cut(CONTROLLER_ID, 1)  # it goes on as the leader
        nodes.elect(2)
        await nodes[1].produce(b"b", acks=1)
        await trio.sleep(2)
        assert nodes[2].values() == nodes[3].values() == [b"a"]


@simulated
async def test_a_new_replica_is_filled_and_a_removed_one_is_deleted() -> None:
    async with running_nodes() as nodes:
        nodes.create(replicas=[1])
        await nodes[1].produce(b"a")
        nodes.change(replicas=[1, 2], adding_replicas=[2])
        await nodes.wait_isr(1, 2)
        assert nodes[2].values() == [b"a"]
        assert (await nodes[1].produce(b"b")).error_code == 0
        nodes.change(replicas=[2], adding_replicas=[], removing_replicas=[], isr=[2], leader=2)
        assert not nodes[1].logs.has("t", 0)
        assert (await nodes[2].produce(b"c")).base_offset == 2
        assert nodes[2].log.high_watermark == 3
        assert (await nodes[1].produce(b"d")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@simulated
async def test_a_partition_without_a_leader_is_read_at_a_follower_and_written_nowhere() -> None:
    """As seen of Kafka 4.4.0."""
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        assert values_of((await nodes[2].fetch(0, max_wait_ms=2000)).records) == [b"a"]
        nodes[1].kill()
        nodes.fence(1)
        nodes.elect(-1, isr=[])
        row = await nodes[2].produce(b"b", acks=1)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader == LeaderIdAndEpoch(-1, 1)
        assert nodes[2].last_response.node_endpoints == []
        await nodes.wait(lambda: ("t", 0) in nodes[2].replication.followed)
        assert values_of((await nodes[2].fetch(0)).records) == [b"a"]
        row = await nodes[2].fetch(0, epoch=0, version=17)
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (-1, 1)
        assert nodes[2].last_response.node_endpoints == []
        assert (await nodes[2].fetch(0, epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        nodes.elect(2, isr=[2])
        assert (await nodes[2].produce(b"b", acks=1)).base_offset == 1


@simulated
async def test_a_follower_whose_disk_is_full_leaves_the_isr_and_comes_back_when_there_is_room() -> None:
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a")
        full = Fault("write", errno.ENOSPC, lambda path: "t-0" in path)
        nodes[3].files.faults.append(full)
        assert (await nodes[1].produce(b"b", timeout_ms=30_000)).error_code == 0
        assert nodes.partition.isr == [1, 2]
        nodes[3].files.faults.remove(full)
        await nodes.wait_isr(1, 2, 3)
        assert nodes[3].values() == [b"a", b"b"]


@simulated
async def test_a_disk_that_fills_between_two_batches_of_a_response() -> None:
    """The follower goes on after those that it has."""
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="2")
        await nodes[1].produce(b"a")
        await nodes.wait(lambda: nodes[3].values() == [b"a"])
        nodes.network.cut(1, 3)
        for value in (b"b", b"c", b"d"):
            await nodes[1].produce(value, acks=1)
        full = Fault("write", errno.ENOSPC, lambda path: "t-0" in path, after_bytes=nodes[3].log.size)
        nodes[3].files.faults.append(full)
        nodes.heal()
        await nodes.wait(lambda: nodes.partition.isr == [1, 2])
        assert nodes[3].values() == [b"a", b"b"]
        nodes[3].files.faults.remove(full)
        await nodes.wait_isr(1, 2, 3)
        assert nodes[3].values() == [b"a", b"b", b"c", b"d"]


@simulated
async def test_a_disk_that_is_full_when_a_follower_flushes() -> None:
    async with running_nodes(log_index_interval_bytes="1") as nodes:
        nodes.create(min_insync_replicas="2", flush_messages="1")
        await nodes[1].produce(b"a")
        faults = [
            Fault(operation, errno.ENOSPC, lambda path: "t-0" in path and path.endswith("index"))
            for operation in ("open", "write")
        ]
        nodes[3].files.faults += faults
        for value in (b"b", b"c"):
            assert (await nodes[1].produce(value, timeout_ms=30_000)).error_code == 0
        assert nodes.partition.isr == [1, 2]
        nodes[3].files.faults.clear()
        await nodes.wait_isr(1, 2, 3)
        assert nodes[3].values() == [b"a", b"b", b"c"]
        assert nodes[3].log.recovery_point == 3


@simulated
async def test_a_disk_that_is_full_when_a_new_partition_is_to_be_followed() -> None:
    async with running_nodes() as nodes:
        full = Fault("makedirs", errno.ENOSPC, lambda path: "t-0" in path)
        nodes[3].files.faults.append(full)
        nodes.create(min_insync_replicas="2")
        assert (await nodes[1].produce(b"a", timeout_ms=30_000)).error_code == 0
        assert nodes.partition.isr == [1, 2]
        await trio.sleep(5)
        nodes[3].files.faults.remove(full)
        await nodes.wait_isr(1, 2, 3)
        assert nodes[3].values() == [b"a"]


@pytest.mark.parametrize("side", ["leader", "follower"])
@simulated
async def test_a_new_replica_is_copied_no_faster_than_its_throttle(side: str) -> None:
    async with running_nodes(replica_fetch_max_bytes="50000") as nodes:
        names = {"leader": "0:1", "follower": "0:2"}[side]
        nodes.create(replicas=[1], **{f"{side}_replication_throttled_replicas": names})
        for node in nodes:
            node.dynamic.change({f"{side}.replication.throttled.rate": "100000"})
        for _ in range(10):
            await nodes[1].produce(bytes(50_000))
        began = trio.current_time()
        nodes.change(replicas=[1, 2, 3], adding_replicas=[2, 3])
        await nodes.wait_isr(1, 2, 3)
        assert 4 <= trio.current_time() - began <= 12
        # In sync, it is held back no longer.
        for _ in range(10):
            assert (await nodes[1].produce(bytes(50_000), timeout_ms=400)).error_code == 0


@simulated
async def test_what_waits_learns_that_the_topic_is_gone() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        nodes.network.cut(2, 1)
        nodes.network.cut(3, 1)
        rows: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                rows.append(await nodes[1].produce(b"a", timeout_ms=30_000))

            nursery.start_soon(produce)
            await trio.sleep(0.1)
            nodes.delete()
        assert rows[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated
async def test_a_follower_reports_only_what_is_flushed() -> None:
    async with running_nodes() as nodes:
        nodes.create(flush_messages="1")
        row = await nodes[1].produce(b"a")
        assert row.error_code == 0
        for node in nodes:
            assert node.log.recovery_point == 1


@simulated
async def test_a_leader_that_follows_reports_only_what_is_flushed() -> None:
    """Its own flush of what it has written as a leader may still be under way."""
    async with running_nodes() as nodes:
        nodes.create(flush_messages="1", min_insync_replicas="2")
        await nodes[1].produce(b"a")
        nodes[1].files.latency_s = 10
        nodes.nursery.start_soon(nodes[1].produce, b"b")
        await nodes.wait(lambda: [node.log.recovery_point for node in nodes] == [1, 2, 2])
        nodes.elect(2, isr=[1, 2, 3])
        await trio.sleep(2)
        assert (nodes[1].log.log_end_offset, nodes[1].log.recovery_point) == (2, 1)
        assert nodes[2].leader.followers[1].end_offset < 2
        assert nodes[2].log.high_watermark == 1
        await nodes.wait_isr(1, 2, 3)


@simulated
async def test_the_controllers_refusal_is_taken_back_and_tried_again() -> None:
    async with running_nodes() as nodes:
        nodes.create(min_insync_replicas="1")
        await nodes[1].produce(b"a")
        nodes.network.cut(3, 1)
        nodes.refusal = ErrorCode.INELIGIBLE_REPLICA
        await nodes[1].produce(b"b", acks=1)
        await nodes.wait(lambda: len(nodes.proposals) >= 2)
        assert nodes[1].log.high_watermark == 1
        nodes.refusal = ErrorCode.NONE
        await nodes.wait_isr(1, 2)
        assert nodes[1].log.high_watermark == 2


@simulated
async def test_a_leader_that_does_not_reach_the_controller_waits_for_its_answer() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes.network.cut(1, CONTROLLER_ID)
        nodes[3].kill()
        row = await nodes[1].produce(b"b", timeout_ms=20_000)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        nodes.network.heal()
        await nodes.wait(lambda: nodes[1].log.high_watermark == 2)


@simulated
async def test_a_fetch_from_before_the_followers_registration_counts_for_nothing() -> None:
    async with running_nodes() as nodes:
        nodes.create()
        await nodes[1].produce(b"a")
        nodes.change(isr=[1, 3])
        await nodes.wait_isr(1, 2, 3)
        nodes.network.cut(CONTROLLER_ID, 2)
        nodes.register(2)  # node 2 itself does not know of it
        nodes.change(isr=[1, 3])
        await nodes[1].produce(b"b")
        await trio.sleep(3)
        assert nodes.partition.isr == [1, 3]
