"""A log manager on a simulated disk, with the metadata that a test gives it, and lives of it that end too early."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.log.manager import LocalTopic, LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.files import FileSystem
from oncelog.wire.batch_builder import BatchBuilder
from tests.harness.clocks import VirtualWall
from tests.harness.simulation import deterministic
from tests.sim.files import SimFileSystem, SimulatedCrash

DATA = "/data"
START_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(1, 17))
OTHER_ID = bytes(range(2, 18))
CLEAN_MARK = f"{DATA}/.kafka_cleanshutdown"

T = TypeVar("T")
Crash = Literal["process", "power"]


class LogManagerHarness:
    """The disk and the metadata that outlive the processes of one test."""

    def __init__(
        self,
        seed: int = 0,
        files: FileSystem | None = None,
        data_dir: str = DATA,
        keys: dict[str, str] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.clock = MovableClock(VirtualWall(START_MS).now_ms)
        self.sim = SimFileSystem(random.Random(seed + 1), self.clock.now_ms)
        self.files: FileSystem = files or self.sim
        if files is None:
            self.sim.makedirs(data_dir)
            self.sim.sync_dir("/")
        self.data_dir = data_dir
        self.config = BrokerConfig({"log.dirs": data_dir, **(keys or {})})
        self.topics: dict[str, LocalTopic] = {}
        self.truncated: list[tuple[str, int, int]] = []

    def add_topic(
        self,
        name: str,
        partitions: int | Collection[int] = 1,
        topic_id: bytes = TOPIC_ID,
        overrides: dict[str, str] | None = None,
        replicated: Container[int] = (),
    ) -> None:
        """``partitions``: how many, or those of which this node has a replica."""
        config = TopicConfig.effective(overrides or {}, self.config)
        local = range(partitions) if isinstance(partitions, int) else partitions
        self.topics[name] = LocalTopic(topic_id, config, local, replicated)

    def manager(self) -> LogManager:
        """A new process: started and loaded, but nothing in the background."""
        manager = LogManager(self.data_dir, self.files, self.clock, self.random, self.config)
        manager.start()
        manager.load(self.topics.get, self._on_truncated)
        return manager

    def _on_truncated(self, log: PartitionLog) -> None:
        self.truncated.append((log.topic, log.partition, log.log_end_offset))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LogManager]:
        """A new process, stopped cleanly at the end."""
        manager = self.manager()

        def on_internal_error() -> None:
            raise AssertionError("background work failed")

        manager.on_internal_error = on_internal_error
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(manager.run)
                yield manager
                nursery.cancel_scope.cancel()
        finally:
            manager.stop()


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Under a virtual clock that jumps to the next deadline, with a deterministic order of tasks."""
    return deterministic(main)


def batch(*values: bytes, key: bytes | None = b"key", timestamp: int = START_MS, **fields: int) -> memoryview:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    for value in values:
        builder.append(timestamp, key, value)
    return memoryview(builder.build())


def append(log: PartitionLog, *values: bytes, **fields: int) -> int:
    """Append one batch; the log end offset then."""
    log.append(batch(*(values or (b"value",)), **fields), leader_epoch=0)  # type: ignore[arg-type]
    return log.log_end_offset


def offsets_in(log: PartitionLog) -> list[int]:
    """The base offsets of the log's batches, from its files."""
    found = []
    for segment in log.segments:
        found += [header.base_offset for _, header in segment.headers()]
    return found


def make_unclean(harness: LogManagerHarness, **batches: int) -> None:
    """Run a process that appends to partitions 0 of these topics, flushes nothing, and dies."""

    async def main() -> None:
        manager = harness.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            for topic, number in batches.items():
                for _ in range(number):
                    append(manager.get(topic, 0), bytes(100))
            nursery.cancel_scope.cancel()
        harness.sim.crash("process")

    run(main)


def dies(life: Callable[[], object]) -> bool:
    """Whether the simulated crash came before the end."""
    try:
        life()
    except BaseException as error:
        inner: BaseException = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        if not isinstance(inner, SimulatedCrash):
            raise
        return True
    return False
