"""The log of a partition with several replicas: its high watermark, who hears of what, and appends as a follower."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from oncelog.broker.log.following import append_as_follower, follow_log_start
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.log.truncation import truncate_fully_and_start_at, truncate_to
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import DATA, LogManagerHarness, append, run
from tests.harness.partition_log import (
    START_MS,
    PartitionLogHarness,
    batch,
    batches_in,
    bytes_of,
    flush,
    stamped,
    topic_config,
)
from tests.sim.files import Fault


class Waiter:
    """Notes what a log shows when it notifies."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.appended: list[tuple[int, bytes] | None] = []

    def notify(self, log: PartitionLog) -> None:
        self.seen.append((log.high_watermark, log.log_end_offset))
        self.appended.append(None if log.appended is None else (log.appended[0], bytes(log.appended[1])))


def replicated(**config: Any) -> PartitionLog:
    return PartitionLogHarness(is_replicated=True, **config).create()


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return end_transaction_marker(
        commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=START_MS
    )


def everything(log: PartitionLog) -> bytes:
    """All batches, also those above the watermark."""
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


# The high watermark.


def test_an_append_leaves_the_watermark_to_others() -> None:
    log = replicated()
    assert [log.append(batch(), leader_epoch=0).must_wait for _ in range(3)] == [True] * 3
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 3)
    assert bytes_of(log.read(0, 1_000, minimum_one=True, up_to=log.high_watermark)) == b""
    log.advance_high_watermark(2)
    log.advance_high_watermark(1)
    assert log.high_watermark == 2
    log.advance_high_watermark(9)
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)


def test_a_duplicate_of_what_the_watermark_has_not_passed_waits() -> None:
    log = replicated()
    sent = batch(producer=(7, 0, 0))
    log.append(bytearray(sent), leader_epoch=0)
    duplicate = log.append(bytearray(sent), leader_epoch=0)
    assert (duplicate.duplicate, duplicate.must_wait) == (True, True)
    log.advance_high_watermark(1)
    duplicate = log.append(bytearray(sent), leader_epoch=0)
    assert (duplicate.duplicate, duplicate.must_wait) == (True, False)


def test_records_are_deleted_and_segments_go_only_below_the_watermark() -> None:
    log = replicated()
    for _ in range(4):
        log.append(batch(), leader_epoch=0)
        log.roll()
    log.advance_high_watermark(2)
    with pytest.raises(KafkaError) as error:
        log.delete_records(3)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(2) == 2


def test_a_consumer_hears_of_the_watermark_and_a_follower_of_the_end() -> None:
    log = replicated()
    consumer, follower = Waiter(), Waiter()
    log.waiters.add(consumer)
    log.add_end_waiter(follower)
    sent = batch((b"a",))
    log.append(bytearray(sent), leader_epoch=3)
    log.append(batch(), leader_epoch=3)
    assert consumer.seen == []
    assert follower.seen == [(0, 1), (0, 2)]
    assert follower.appended[0] == (0, stamped(sent, 0, 3))
    log.advance_high_watermark(2)
    assert consumer.seen == [(2, 2)]
    log.discard_end_waiter(follower)
    log.append(batch(), leader_epoch=3)
    assert len(follower.seen) == 2


def test_who_waits_for_the_end_of_a_log_with_one_replica_hears_of_each_append() -> None:
    log = PartitionLogHarness().create()
    waiter = Waiter()
    log.add_end_waiter(waiter)
    log.append(batch(), leader_epoch=0)
    assert waiter.seen == [(1, 1)]
    log.discard_end_waiter(waiter)
    log.append(batch(), leader_epoch=0)
    assert waiter.seen == [(1, 1)]


@pytest.mark.parametrize("event", ["deletion", "failure", "truncation"])
def test_all_waiters_hear_of_what_ends_their_wait(event: str) -> None:
    log = replicated()
    log.append(batch(), leader_epoch=0)
    waiters = Waiter(), Waiter()
    log.waiters.add(waiters[0])
    log.add_end_waiter(waiters[1])
    if event == "deletion":
        log.mark_deleted()
    elif event == "failure":
        log.fail(OSError(errno.EIO, "test"))
    else:
        truncate_to(log, 0)
    assert all(waiter.seen for waiter in waiters)


def test_a_replica_counts_only_what_is_flushed_where_flush_messages_asks_for_it() -> None:
    log = replicated(flush_messages=1)
    waiter = Waiter()
    log.append(batch(), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    assert log.durable_offset == 0
    log.add_end_waiter(waiter)
    flush(log)
    assert (log.durable_offset, log.high_watermark, waiter.seen) == (2, 0, [(0, 2)])
    log.update_config(topic_config())
    log.append(batch(), leader_epoch=0)
    assert log.durable_offset == 3


def test_the_number_of_replicas_changes() -> None:
    """Waiters are told, since what they wait for is another thing from then on."""
    log = PartitionLogHarness().create()
    log.append(batch(), leader_epoch=0)
    waiter = Waiter()
    log.waiters.add(waiter)
    log.set_replicated(True)
    assert waiter.seen == [(1, 1)]
    assert log.append(batch(), leader_epoch=0).must_wait
    assert log.high_watermark == 1
    log.set_replicated(False)
    assert log.high_watermark == 2
    assert not log.append(batch(), leader_epoch=0).must_wait
    assert log.high_watermark == 3


def test_a_transaction_is_undecided_until_the_watermark_has_passed_its_marker() -> None:
    log = replicated()
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    log.append(marker(7, commit=False), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.advance_high_watermark(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_so_it_is_after_a_start(is_clean: bool) -> None:
    """The producer snapshot of the stop does not know the transaction any more."""
    harness = PartitionLogHarness(is_replicated=True)
    log = harness.create()
    log.append(batch(), leader_epoch=0)
    log.append(batch(producer=(7, 0, 0), transactional=True), leader_epoch=0)
    log.append(batch(), leader_epoch=0)
    log.append(marker(7, commit=True), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.advance_high_watermark(3)
    harness.checkpoint(log)
    log.close()
    if not is_clean:
        harness.recovery_point = log.recovery_point
    log = harness.open() if is_clean else harness.recover(harness.recovery_point)
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (3, 1, 4)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


# Appending as a follower.


def test_a_follower_takes_batches_as_they_are() -> None:
    leader, follower = replicated(internal_segment_bytes=400), replicated(internal_segment_bytes=400)
    leader.append(batch((b"a", b"b"), producer=(7, 0, 0), codec=1), leader_epoch=1)
    leader.append(batch(producer=(8, 3, 9), transactional=True), leader_epoch=2)
    leader.append(batch((bytes(100),)), leader_epoch=2)
    leader.append(
        end_transaction_marker(
            commit=False, coordinator_epoch=5, producer_id=8, producer_epoch=3, timestamp=START_MS
        ),
        leader_epoch=4,
        origin=AppendOrigin.COORDINATOR,
    )
    append_as_follower(follower, everything(leader), 4)
    assert everything(follower) == everything(leader)
    assert [segment.base_offset for segment in follower.segments] == [
        segment.base_offset for segment in leader.segments
    ]
    assert len(follower.segments) > 1
    assert follower.epochs.entries() == [(1, 0), (2, 2), (4, 4)]
    assert follower.producers.snapshot() == leader.producers.snapshot()
    assert follower.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5) != []
    assert (follower.high_watermark, follower.log_end_offset) == (0, 5)


def test_a_batch_that_is_cut_is_left_out() -> None:
    leader, follower = replicated(), replicated()
    for _ in range(2):
        leader.append(batch(), leader_epoch=0)
    append_as_follower(follower, everything(leader)[:-1], 0)
    assert follower.log_end_offset == 1
    append_as_follower(follower, b"", 0)
    assert follower.log_end_offset == 1


def test_batches_of_a_later_epoch_than_was_asked_for_are_left_out() -> None:
    leader, follower = replicated(), replicated()
    for epoch in (3, 4, 3):
        leader.append(batch(), leader_epoch=epoch)
    append_as_follower(follower, everything(leader), 3)
    assert (follower.log_end_offset, follower.epochs.entries()) == (1, [(3, 0)])


def test_what_is_damaged_or_was_there_before_is_refused_whole() -> None:
    leader, follower = replicated(), replicated()
    for _ in range(3):
        leader.append(batch(), leader_epoch=0)
    rows = [data for _, _, data in batches_in(everything(leader))]
    torn = bytearray(rows[1])
    torn[-1] ^= 1
    for sent, code in (
        (rows[0] + bytes(torn) + rows[2], ErrorCode.CORRUPT_MESSAGE),
        (rows[0] + rows[2] + rows[1], ErrorCode.INVALID_RECORD),
        (rows[0] + bytes(70), ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as error:
            append_as_follower(follower, sent, 0)
        assert error.value.code is code
        assert (follower.log_end_offset, follower.size) == (0, 0)
    append_as_follower(follower, rows[0], 0)
    with pytest.raises(KafkaError) as error:
        append_as_follower(follower, rows[0] + rows[1], 0)
    assert error.value.code is ErrorCode.INVALID_RECORD
    assert everything(follower) == rows[0]


def test_a_follower_has_the_gaps_of_its_leader() -> None:
    """Even one that an index could not tell: a segment that begins after it begins at its end."""
    follower = replicated(index_interval_bytes=0)
    far = 1 << 33
    for offset in (0, 5, far, far + 1):
        append_as_follower(follower, stamped(batch(), offset, 0), 0)
    assert [segment.base_offset for segment in follower.segments] == [0, far]
    assert follower.log_end_offset == far + 2
    for asked, given in ((0, 0), (1, 5), (5, 5), (6, far), (far + 1, far + 1)):
        data = bytes_of(follower.read(asked, 1, minimum_one=True, up_to=far + 2))
        assert batches_in(data)[0][0] == given


def test_an_empty_log_begins_with_the_batch_within_which_the_leaders_log_starts() -> None:
    leader, follower = replicated(), replicated()
    leader.append(batch((b"a", b"b", b"c")), leader_epoch=0)
    leader.advance_high_watermark(3)
    leader.delete_records(2)
    truncate_fully_and_start_at(follower, 2)
    append_as_follower(follower, everything(leader), 0)
    follow_log_start(follower, leader.log_start_offset)
    assert everything(follower) == everything(leader)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (2, 2, 3)


def test_a_log_that_ends_where_the_leaders_starts_begins_with_the_batch_in_which_that_is() -> None:
    """Its records are of an epoch that the leader's log no longer knows: it is not told that they diverge."""
    leader, follower = replicated(), replicated()
    for _ in range(2):
        append_as_follower(follower, stamped(batch(), follower.log_end_offset, 0), 0)
    leader.append(batch((b"a", b"b", b"c")), leader_epoch=1)
    leader.advance_high_watermark(3)
    leader.delete_records(2)
    assert leader.end_offset_for_epoch(0) == (0, 2)
    append_as_follower(follower, everything(leader), 1, leader.log_start_offset)
    follow_log_start(follower, leader.log_start_offset)
    assert everything(follower) == everything(leader)
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 3)
    assert follower.epochs.entries() == leader.epochs.entries()


def test_a_full_disk_leaves_the_batches_that_were_written() -> None:
    leader = replicated()
    harness = PartitionLogHarness(is_replicated=True)
    follower = harness.create()
    for _ in range(3):
        leader.append(batch(), leader_epoch=0)
    size = len(batch())
    harness.disk.faults.append(Fault("write", errno.ENOSPC, after_bytes=size + 3, times=1))
    with pytest.raises(KafkaError) as error:
        append_as_follower(follower, everything(leader), 0)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (follower.log_end_offset, follower.offline) == (1, False)
    append_as_follower(follower, everything(leader)[size:], 0)
    assert everything(follower) == everything(leader)


def test_the_log_start_follows_the_leaders() -> None:
    follower = replicated()
    for offset in range(4):
        append_as_follower(follower, stamped(batch(), offset, 2), 2)
        follower.roll()
    follow_log_start(follower, 2)
    assert (follower.log_start_offset, follower.high_watermark, follower.epochs.entries()) == (2, 2, [(2, 2)])
    follow_log_start(follower, 1)
    assert follower.log_start_offset == 2
    follow_log_start(follower, 9)
    assert (follower.log_start_offset, follower.log_end_offset, follower.size) == (9, 9, 0)
    assert follower.epochs.entries() == []


# Starts.


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_replica_starts_at_its_checkpointed_watermark(is_clean: bool) -> None:
    harness = LogManagerHarness()
    harness.add_topic("t", 2, replicated=(0,))

    async def first() -> None:
        async with harness.running() as manager:
            for partition in (0, 1):
                log = manager.get("t", partition)
                assert log.is_replicated == (partition == 0)
                append(log)
                append(log)
            manager.get("t", 0).advance_high_watermark(1)
            await trio.sleep(6)
            if not is_clean:
                harness.sim.crash("process")

    async def second() -> None:
        async with harness.running() as manager:
            await manager.recovered()
            logs = [manager.get("t", partition) for partition in (0, 1)]
            assert [(log.high_watermark, log.log_end_offset) for log in logs] == [(1, 2), (2, 2)]

    run(first)
    run(second)


def test_a_replica_whose_log_begins_above_0_has_it_after_a_loss_of_power() -> None:
    """Whatever else is saved later: without its log start, what it has would look like what is behind a gap."""
    harness = LogManagerHarness()
    harness.add_topic("t", replicated=(0,))

    async def main() -> None:
        manager = harness.manager()
        log = manager.get("t", 0)
        follow_log_start(log, 5)  # where its leader's log begins
        append(log)
        work = log.prepare_flush()
        assert work is not None
        work.run()
        manager.offsets.save_log_starts()
        harness.sim.crash("power")
        async with harness.running() as manager:
            await manager.recovered()
            log = manager.get("t", 0)
            assert (log.log_start_offset, log.log_end_offset) == (5, 6)

    run(main)


def test_a_replica_that_has_lost_records_waits_for_its_leader() -> None:
    """No leader epoch rises for it, and no checkpoint claims what it does not have: it grows again."""
    harness = LogManagerHarness()
    harness.add_topic("t", replicated=(0,))

    async def main() -> None:
        manager = harness.manager()
        log = manager.get("t", 0)
        for _ in range(3):
            append(log)
        log.advance_high_watermark(3)
        await manager.offsets.save_high_watermarks()
        harness.sim.crash("process")
        path = f"{DATA}/t-0/{0:020d}.log"
        harness.sim.open(path).truncate(harness.sim.size(path) // 3)
        log = harness.manager().get("t", 0)
        assert (log.high_watermark, log.log_end_offset) == (1, 1)
        append(log)
        append(log)
        harness.sim.crash("process")
        log = harness.manager().get("t", 0)
        assert (log.high_watermark, log.log_end_offset) == (1, 3)
        assert harness.truncated == []

    run(main)


def test_only_assigned_partitions_have_directories() -> None:
    """What was assigned elsewhere while the node was down is set aside."""
    harness = LogManagerHarness()
    harness.add_topic("t", (0, 2))

    async def main() -> None:
        async with harness.running() as manager:
            for partition in (0, 2):
                append(manager.get("t", partition))
            with pytest.raises(KafkaError) as error:
                manager.get("t", 1)
            assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        harness.add_topic("t", (1, 2))
        async with harness.running() as manager:
            append(manager.get("t", 1))
            assert manager.get("t", 2).log_end_offset == 1
            names = [name for name in harness.sim.listdir(DATA) if name.startswith("t-")]
            assert [name.partition(".")[0] for name in names] == ["t-0", "t-1", "t-2"]
            assert names[0].endswith("-stray")
            # A reassignment takes one away from the running node.
            harness.add_topic("t", (1,))
            manager.delete("t", 2)
            await trio.sleep(61)
            assert [name for name in harness.sim.listdir(DATA) if name.startswith("t-")] == [names[0], "t-1"]

    run(main)
