"""What the tests of the log store share: an environment in memory, batches, and reading a log whole."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.log.environment import LogEnvironment
from oncelog.broker.log.opening import create_partition, open_partition
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery
from oncelog.broker.log.results import FileRange, LogRead
from oncelog.broker.seams.files import FileSystem
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.clocks import FixedClock
from tests.sim.files import SimFileSystem

TOPIC_ID = bytes(range(16))
DIRECTORY = "/data/topic-0"
START_MS = 1_700_000_000_000


class NoFlusher:
    """Flushes only when awaited, and records which logs were due."""

    def __init__(self) -> None:
        self.told: list[PartitionLog] = []

    async def flush(self, log: PartitionLog, up_to: int) -> None:
        flush(log)

    def due(self, log: PartitionLog) -> None:
        self.told.append(log)


def flush(log: PartitionLog) -> None:
    """One flush, as the flusher does it."""
    work = log.prepare_flush()
    if work is not None:
        work.run()
        log.flushed(work)


class PartitionLogHarness:
    """One partition on one disk, over starts and crashes."""

    def __init__(self, files: FileSystem | None = None, seed: int = 0, **config: object) -> None:
        self.clock = FixedClock(START_MS)
        self.chance = random.Random(seed)
        self.disk = SimFileSystem(self.chance, self.clock.now_ms)
        self.files: FileSystem = files if files is not None else self.disk
        self.directory = DIRECTORY
        self.config = topic_config(**config)
        self.flusher = NoFlusher()
        self.scheduled: list[str] = []
        self.saved_log_start = 0
        self.recovery_point = self.high_watermark = 0
        """As they are checkpointed."""
        self.recovery: PartitionRecovery
        self.env = LogEnvironment(
            self.files,
            self.clock,
            self.chance,
            flusher=self.flusher,
            save_log_start=self._save_log_start,
            lower_checkpoints=self._lower_checkpoints,
            schedule_delete=self.scheduled.extend,
        )

    def _save_log_start(self, log: PartitionLog) -> None:
        self.saved_log_start = log.log_start_offset

    def _lower_checkpoints(self, log: PartitionLog, end: int, start: int | None) -> None:
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        if start is not None:
            self.saved_log_start = start

    def create(self) -> PartitionLog:
        log = create_partition(self.env, self.directory, "topic", 0, TOPIC_ID, self.config)
        log.become_leader(0)
        # The manager's part: the names above the partition's own directory.
        self.files.sync_dir(self.directory.rpartition("/")[0])
        if self.files is self.disk:
            self.files.sync_dir("")
        return log

    def open(self) -> PartitionLog:
        return open_partition(self.env, self.directory, "topic", 0, self.config, self.saved_log_start)

    def recover(self, recovery_point: int = 0, step: int = 1 << 20) -> PartitionLog:
        self.recovery = PartitionRecovery(
            self.env, self.directory, "topic", 0, self.config, self.saved_log_start, recovery_point
        )
        while not self.recovery.step(step):
            pass
        return self.recovery.log

    def delete_scheduled(self) -> None:
        for path in self.scheduled:
            if self.files.exists(path):
                self.files.remove(path)
        self.scheduled.clear()

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def topic_config(**overrides: object) -> TopicConfig:
    return TopicConfig.effective(
        {name.replace("_", "."): str(value) for name, value in overrides.items()}, BrokerConfig()
    )


def batch(
    values: Sequence[bytes] = (b"value",),
    *,
    timestamp: int = START_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    codec: int = 0,
    keys: Sequence[bytes] | None = None,
) -> bytearray:
    """What a producer sends; ``producer`` is (id, epoch, base sequence)."""
    builder = BatchBuilder(
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        codec=codec,
    )
    for at, value in enumerate(values):
        builder.append(timestamp + at, None if keys is None else keys[at], value)
    return builder.build()


def stamped(sent: bytes | bytearray, base_offset: int, leader_epoch: int) -> bytes:
    """What is in the log of a batch that was sent."""
    return struct.pack(">q", base_offset) + sent[8:12] + struct.pack(">i", leader_epoch) + sent[16:]


def bytes_of(read: LogRead) -> bytes:
    if isinstance(read.records, FileRange):
        data = read.records.read()
        read.records.release()
        return data
    return read.records


def read_all(log: PartitionLog, start: int | None = None) -> bytes:
    """Return all batches below the high watermark, read as a consumer does: each read starts after the last batch."""
    offset = log.log_start_offset if start is None else start
    found = bytearray()
    while offset < log.high_watermark:
        data = bytes_of(log.read(offset, 1 << 30, minimum_one=True, up_to=log.high_watermark))
        if not data:
            break
        found += data
        offset = batches_in(data)[-1][1] + 1
    return bytes(found)


def batches_in(data: bytes) -> list[tuple[int, int, bytes]]:
    """(first offset, last offset, bytes) of each whole batch."""
    found = []
    at = 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        (delta,) = struct.unpack_from(">i", data, at + 23)
        found.append((base, base + delta, data[at : at + 12 + length]))
        at += 12 + length
    return found


def refused(code: ErrorCode, log: PartitionLog, sent: bytearray, version: int = 13) -> KafkaError:
    """An append that is refused, and leaves no trace."""
    before = (log.log_end_offset, log.size, log.producers.snapshot(), log.epochs.entries(), read_all(log))
    with pytest.raises(KafkaError) as error:
        log.append(sent, leader_epoch=9, produce_version=version)
    assert error.value.code is code
    assert before == (
        log.log_end_offset,
        log.size,
        log.producers.snapshot(),
        log.epochs.entries(),
        read_all(log),
    )
    return error.value


# Reading.


def fill(log: PartitionLog, count: int = 10) -> list[bytes]:
    rows = []
    for at in range(count):
        sent = batch((bytes(at * 10),))
        rows.append(stamped(sent, at, 0))
        log.append(sent, leader_epoch=0)
    return rows
