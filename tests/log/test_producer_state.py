"""Idempotence as Kafka's ProducerStateManager decides it, and the snapshot file's bytes."""

from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c

from oncelog.broker.log.indexes import AbortedTxn
from oncelog.broker.log.producers.entry import first_sequence_of
from oncelog.broker.log.producers.snapshots import (
    CorruptSnapshot,
    ProducerSnapshots,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from oncelog.broker.log.producers.state import AppendOrigin, Marker, ProducerStateManager
from oncelog.wire.batch import BatchHeader, read_header
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.partition_log import START_MS, PartitionLogHarness, batch, flush
from tests.sim.files import SimFileSystem

LAST = 0x7FFFFFFF
SEQUENCE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def header(
    epoch: int, sequence: int, count: int = 1, *, producer_id: int = 7, transactional: bool = False
) -> BatchHeader:
    sent = batch((b"",) * count, producer=(producer_id, epoch, sequence), transactional=transactional)
    return read_header(sent)


class Log:
    """A producer state and the offset that comes next."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.next = 0

    def add(self, sent: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> int | None:
        """The first offset of the batch that it repeats, or None: it was added."""
        if origin is AppendOrigin.CLIENT:
            repeated = self.state.find_duplicate(sent)
            if repeated is not None:
                return repeated.first_offset
        self.state.check(sent, origin)
        self.state.add(sent, self.next, START_MS)
        self.next += sent.last_offset_delta + 1
        return None

    def refuse(self, sent: BatchHeader, code: ErrorCode, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        before = self.state.snapshot()
        with pytest.raises(KafkaError) as error:
            self.add(sent, origin)
        assert error.value.code is code
        assert self.state.snapshot() == before


def test_in_order() -> None:
    log = Log()
    for sequence in range(0, 30, 3):
        assert log.add(header(0, sequence, 3)) is None
    log.refuse(header(0, 31), SEQUENCE)
    log.refuse(header(0, 29), SEQUENCE)
    assert log.add(header(0, 30)) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its state may have been deleted with its records, or expired (KIP-360)."""
    log = Log()
    assert log.add(header(3, 77)) is None
    log.refuse(header(3, 79), SEQUENCE)


def test_the_last_five_batches_are_recognised() -> None:
    log = Log()
    for sequence in range(0, 12, 2):
        log.add(header(0, sequence, 2))
    for sequence in range(2, 12, 2):
        assert log.add(header(0, sequence, 2)) == sequence
    log.refuse(header(0, 0, 2), SEQUENCE)
    log.refuse(header(0, 8, 1), SEQUENCE)  # not the batch that was sent
    log.refuse(header(0, 9, 2), SEQUENCE)


def test_sequences_go_on_at_zero() -> None:
    log = Log()
    log.add(header(0, LAST - 3, 3))
    assert log.add(header(0, LAST, 3)) is None  # 2**31-1, 0, 1
    assert log.add(header(0, 2)) is None
    assert log.add(header(0, LAST, 3)) == 3
    assert first_sequence_of(1, 2) == LAST
    log = Log()
    log.add(header(0, LAST - 2, 3))
    log.refuse(header(0, 1), SEQUENCE)
    assert log.add(header(0, 0)) is None


def test_a_new_epoch_begins_at_zero() -> None:
    log = Log()
    log.add(header(4, 10))
    log.refuse(header(5, 11), SEQUENCE)
    assert log.add(header(5, 0)) is None
    log.refuse(header(4, 11), EPOCH)
    log.refuse(header(4, 10), EPOCH)  # the batches of another epoch are forgotten
    log.refuse(header(4, 11), EPOCH, AppendOrigin.COORDINATOR)
    assert log.add(header(5, 9), AppendOrigin.COORDINATOR) is None  # only clients number their batches


def test_producers_do_not_meet() -> None:
    log = Log()
    log.add(header(0, 0))
    assert log.add(header(0, 0, producer_id=8)) is None
    assert log.add(header(0, 0, producer_id=8)) == 1


def test_expiry() -> None:
    log = Log()
    log.add(header(0, 0))
    log.add(header(0, 0, producer_id=8, transactional=True))
    list(log.state.remove_expired(START_MS + 999, 1_000))
    assert set(log.state.producers) == {7, 8}
    list(log.state.remove_expired(START_MS + 1_000, 1_000))
    assert set(log.state.producers) == {8}  # who has a transaction open stays


def marker(epoch: int, producer_id: int = 7) -> BatchHeader:
    return read_header(
        end_transaction_marker(
            commit=False,
            coordinator_epoch=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=START_MS,
        )
    )


def test_transactions() -> None:
    log = Log()
    state = log.state
    log.add(header(0, 0, 2, transactional=True))
    log.add(header(0, 0, 3, producer_id=8, transactional=True))
    log.refuse(header(0, 2), ErrorCode.INVALID_TXN_STATE)
    assert state.first_unstable_offset == 0
    state.check_marker(marker(0), 1, AppendOrigin.COORDINATOR, 0)
    ended = state.add_marker(marker(0), 5, Marker(1, START_MS, aborted=True))
    assert ended == AbortedTxn(producer_id=7, first_offset=0, last_offset=5, last_stable_offset=2)
    assert state.first_unstable_offset == 0  # until the high watermark has passed the marker
    state.on_high_watermark(5)
    assert state.first_unstable_offset == 0
    state.on_high_watermark(6)
    assert state.first_unstable_offset == 2
    assert state.add_marker(marker(0, 8), 6, Marker(1, START_MS, aborted=False)) is None
    state.on_high_watermark(7)
    assert state.first_unstable_offset is None
    assert not state.has_transactions
    # The producer's numbers go on after a marker of its epoch, and begin anew with a marker of the next.
    assert log.add(header(0, 2)) is None
    state.add_marker(marker(1), 8, Marker(1, START_MS, aborted=True))
    log.refuse(header(1, 3), SEQUENCE)
    assert log.add(header(1, 0)) is None


def test_markers_that_are_refused() -> None:
    log = Log()
    log.add(header(3, 0, transactional=True))
    state = log.state
    for epoch, version, refused in ((2, 0, True), (3, 0, False), (3, 2, True), (4, 2, False), (4, 0, False)):
        if refused:
            with pytest.raises(KafkaError) as error:
                state.check_marker(marker(epoch), 1, AppendOrigin.COORDINATOR, version)
            assert error.value.code is EPOCH
        else:
            state.check_marker(marker(epoch), 1, AppendOrigin.COORDINATOR, version)
    state.check_marker(marker(2), 1, AppendOrigin.REPLICATION, 0)
    state.add_marker(marker(3), 1, Marker(5, START_MS, aborted=True))
    state.check_marker(marker(3), 5, AppendOrigin.COORDINATOR, 2)  # a marker's retry
    with pytest.raises(KafkaError) as error:
        state.check_marker(marker(4), 4, AppendOrigin.COORDINATOR, 2)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_snapshot_bytes() -> None:
    """Field by field as Kafka's ProducerSnapshot.json declares version 1."""
    rows = [SnapshotEntry(7, 1, 12, 99, 2, START_MS, -1, -1), SnapshotEntry(1 << 40, 2, -1, -1, 0, -1, 3, 55)]
    data = encode_snapshot(rows)
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 7, 1, 12, 99, 2, START_MS, -1, -1)
    body += struct.pack(">qhiqiqiq", 1 << 40, 2, -1, -1, 0, -1, 3, 55)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert decode_snapshot(data) == rows
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size])
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))


def test_a_snapshot_holds_the_last_batch_of_each() -> None:
    log = Log()
    for sequence in range(0, 10, 2):
        log.add(header(1, sequence, 2))
    log.add(header(0, 0, producer_id=8, transactional=True))
    rows = log.state.snapshot()
    assert rows == [
        SnapshotEntry(7, 1, 9, 9, 1, START_MS, -1, -1),
        SnapshotEntry(8, 0, 0, 10, 0, START_MS, -1, 10),
    ]
    loaded = Log()
    loaded.state.load(rows, START_MS, 1_000)
    assert loaded.state.snapshot() == rows
    assert loaded.state.first_unstable_offset == 10
    assert loaded.add(header(1, 8, 2)) == 8
    loaded.refuse(header(1, 6, 2), SEQUENCE)
    loaded.state.load(rows, START_MS + 1_000, 1_000)
    assert set(loaded.state.producers) == {8}


def test_which_snapshot_files_stay() -> None:
    files = SimFileSystem(random.Random(0))
    files.makedirs("/p")
    held = ProducerSnapshots(files, "/p")
    held.take(0, [])
    held.take(10, [])
    held.take(15, [], floating=True)
    held.take(17, [], floating=True)
    assert held.offsets == [10, 17]
    held.take(20, [])
    assert held.offsets == [10, 20]
    held.take(20, [], floating=True)
    held.take(15, [])
    assert held.offsets == [10, 20]
    assert files.listdir("/p") == ["00000000000000000010.snapshot", "00000000000000000020.snapshot"]
    # At a start: those of segments, and the newest behind all of them.
    held = ProducerSnapshots(files, "/p", [10, 20])
    held.remove_strays([0, 20])
    assert held.offsets == [20]
    held.remove_strays([0])
    assert (held.offsets, held.floating) == ([20], 20)


def test_older_batches_are_known_after_a_clean_restart() -> None:
    """The snapshot has only the last; the others are read back from the log."""
    harness = PartitionLogHarness(internal_segment_bytes=2_000)
    log = harness.create()
    sent = []
    for at in range(40):
        sent.append(batch((bytes(at * 5),), producer=(7, 0, at)))
        log.append(bytearray(sent[-1]), leader_epoch=0)
        log.append(batch((b"other",)), leader_epoch=0)
    assert len(log.segments) > 3
    log.close()
    log = harness.open()
    for at in (39, 36, 35, 38, 37):
        result = log.append(bytearray(sent[at]), leader_epoch=0)
        assert (result.duplicate, result.base_offset) == (True, 2 * at)
    with pytest.raises(KafkaError) as error:
        log.append(bytearray(sent[34]), leader_epoch=0)
    assert error.value.code is SEQUENCE
    assert log.append(batch(producer=(7, 0, 40)), leader_epoch=0).base_offset == 80


@pytest.mark.parametrize("flushed", [False, True])
def test_all_is_known_after_a_crash(flushed: bool) -> None:
    harness = PartitionLogHarness(internal_segment_bytes=2_000)
    log = harness.create()
    sent = [batch((bytes(at * 5),), producer=(7, 0, at)) for at in range(40)]
    for at in range(40):
        log.append(bytearray(sent[at]), leader_epoch=0)
        if flushed and at == 30:
            flush(log)
    point = log.recovery_point
    harness.disk.crash("process")
    log = harness.recover(point)
    for at in range(35, 40):
        assert log.append(bytearray(sent[at]), leader_epoch=0).base_offset == at
    assert log.log_end_offset == 40
