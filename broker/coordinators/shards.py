"""`Shards`: the shards of one internal topic, their loading and unloading, and the tasks that serve them.

A shard is the state that one partition of the topic stores. It is loaded when somebody asks for it, and after a start
all those that have records are, in the background: sessions time out from then on, and a list of groups is whole. The
tasks sleep until there is something to do. Source: ``CoordinatorRuntime``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from oncelog.broker.coordinators.duties import RETRY_BACKOFF_MS, Duties
from oncelog.broker.coordinators.partition_of_key import partition_of_key
from oncelog.broker.coordinators.shard_log import LogReplay, Replayable, ShardLog
from oncelog.broker.logs import get_logger
from oncelog.broker.metadata.internal_topics import described
from oncelog.broker.seams.clock import real_time
from oncelog.broker.slices import Slices
from oncelog.coordinator.groups.errors import to_client_error
from oncelog.coordinator.promise import Promise
from oncelog.wire.batch import NO_SEQUENCE
from oncelog.wire.compression import NONE
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.stored.metadata import RemoveTopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence

    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.node import Node
    from oncelog.wire.schema import Message

LOAD_AT_ONCE_BYTES = 32 * 1024
"""A shard whose log has no more than this is loaded by the request that asks for it: a few hundred records, about
two milliseconds. A larger one is loaded a slice at a time, and requests get COORDINATOR_LOAD_IN_PROGRESS meanwhile."""

KNOWN_KEYS_MAX = 10_000
"""Keys whose partition is remembered."""

KNOWN_KEY_CHARS_MAX = 255
"""Characters of such a key: what nobody would call a group must not fill the memory."""

_log = get_logger(__name__)


class Shard(Replayable, Protocol):
    partition: int

    def on_loaded(self) -> None: ...

    def on_unloaded(self) -> None: ...


S = TypeVar("S", bound=Shard)
M = TypeVar("M", bound="Message")


class _Served(Generic[S]):
    """A shard that is loaded or being loaded; as a waiter on its log it learns when that cannot be used any more."""

    __slots__ = ("_on_lost", "journal", "log", "shard", "steps")

    def __init__(
        self,
        shard: S,
        journal: ShardLog,
        log: PartitionLog,
        steps: Generator[FileRange | None, None, None],
        on_lost: Callable[[], None],
    ) -> None:
        self.shard = shard
        self.journal = journal
        self.log = log
        self.steps = steps
        """Each replays a record."""
        self._on_lost = on_lost
        log.waiters.add(self)

    def is_lost(self) -> bool:
        return self.log.offline or self.log.deleted

    def notify(self, log: PartitionLog) -> None:
        if log.offline or log.deleted:
            self._on_lost()

    def close(self) -> None:
        self.steps.close()
        self.log.waiters.discard(self)


class Shards(Duties, Generic[S]):
    """The shards of ``topic`` by partition. Subclasses say what a shard is: `make`, `record_types`, `codec`."""

    BASE_SEQUENCE = NO_SEQUENCE
    """Of every batch: no producer numbers them, but Kafka does write one."""

    SKIPS_VERSIONS = False
    """Whether values of a version not known are left out; otherwise they keep a shard from being loaded."""

    def __init__(self, node: Node, topic: str) -> None:
        super().__init__(node, topic)
        self._loaded: dict[int, _Served[S]] = {}
        self._loading: dict[int, _Served[S]] = {}
        self._unread: dict[int, float] = {}
        """Partitions that have records, and that nobody has asked for since the start, or since a shortage; from when
        on they may be loaded (seconds of broker time).
        """
        self._failed: set[int] = set()
        """Partitions whose records make no state: a restart may try again."""
        self._partitions = 0
        self._partition_by_key: dict[str, int] = {}
        self._may_load_unread = False
        self._load_event = trio.Event()
        self._has_lost = False
        node.metadata.subscribe(self.on_record)

    # -- what subclasses say

    def make(self, partition: int, journal: ShardLog) -> S:
        """An empty shard."""
        raise NotImplementedError

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        """Record type -> class of the key, and of the value."""
        raise NotImplementedError

    def codec(self) -> int:
        """The codec of the batches that are written."""
        return NONE

    def began(self, shard: S) -> None:
        """The shard is loaded and serves from now on."""

    # -- which shard

    def partition_for(self, key: str) -> int:
        """The partition that stores the key, whether it is there or not. The number of partitions is that which the
        topic had at first: as in Kafka, one that grows changes nothing until a restart.
        """
        found = self._partition_by_key.get(key)
        if found is not None:
            return found
        if not self._partitions:
            topic = self.node.cluster.topic(self.topic)
            if topic is None:
                return partition_of_key(key, described(self.topic, self.node.config.current, 1).partitions)
            self._partitions = len(topic.partitions)
        found = partition_of_key(key, self._partitions)
        if len(key) <= KNOWN_KEY_CHARS_MAX:
            if len(self._partition_by_key) >= KNOWN_KEYS_MAX:
                self._partition_by_key.clear()
            self._partition_by_key[key] = found
        return found

    def shard_of(self, key: str) -> S:
        """The shard that stores the key. Raises KafkaError as `at`."""
        return self.at(self.partition_for(key))

    def at(self, partition: int) -> S:
        """The shard of a partition, loaded. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        served = self._loaded.get(partition)
        if served is not None:
            if not served.is_lost():
                return served.shard
            self._unload(partition)
        if partition not in self._loading:
            served = self._start_loading(partition)
            if served.log.size <= LOAD_AT_ONCE_BYTES and self._load_at_once(partition, served):
                return served.shard
            self._wake_loading()
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def shards(self) -> list[S]:
        """All that hold anything, by partition. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) while not all that
        the last run left are loaded.
        """
        if self._loading or self._unread:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [served.shard for _, served in sorted(self._loaded.items()) if not served.is_lost()]

    # -- loading and unloading

    def _start_loading(self, partition: int) -> _Served[S]:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the log is being recovered, NOT_COORDINATOR."""
        topic = self.node.cluster.topic(self.topic)
        if partition in self._failed or topic is None or partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        node = self.node
        journal = ShardLog(node.cluster, node.clock, self.topic, partition, self.codec, self.BASE_SEQUENCE)
        try:
            log = journal.leader_partition().log
            log.check_alive()
        except KafkaError as error:
            waits = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._is_led_here(topic, partition)
            told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if waits else ErrorCode.NOT_COORDINATOR
            raise KafkaError(told) from error
        shard = self.make(partition, journal)
        replay = LogReplay(log, *self.record_types(), shard, skips_versions=self.SKIPS_VERSIONS)
        steps = replay.steps()
        self._unread.pop(partition, None)
        served = self._loading[partition] = _Served(shard, journal, log, steps, self._on_lost)
        return served

    def _is_led_here(self, topic: Topic, partition: int) -> bool:
        return topic.partitions[partition].leader == self.node.cluster.node_id

    def _load_at_once(self, partition: int, served: _Served[S]) -> bool:
        try:
            for _ in served.steps:
                pass
        except Exception as error:
            self._load_failed(partition, served, error)
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
        self._finish_loading(partition)
        return True

    async def _load_in_slices(self, partition: int, served: _Served[S]) -> None:
        slices = Slices()
        began = real_time.monotonic()
        try:
            for cold in served.steps:
                if cold is not None:
                    await self.node.files.offload(cold.read)
                if slices.is_over():
                    await slices.pause()
        except Exception as error:
            self._load_failed(partition, served, error)
            return
        if self._loading.get(partition) is not served:
            return  # the topic is gone, upon which the steps have ended
        self._finish_loading(partition)
        seconds = round(real_time.monotonic() - began, 3)
        _log.info("loaded", topic=self.topic, partition=partition, bytes=served.log.size, seconds=seconds)

    def _finish_loading(self, partition: int) -> None:
        served = self._loaded[partition] = self._loading.pop(partition)
        served.shard.on_loaded()
        self.began(served.shard)

    def _load_failed(self, partition: int, served: _Served[S], error: Exception) -> None:
        served.close()
        if self._loading.get(partition) is not served:
            return
        del self._loading[partition]
        _log.exception("shard not loaded", topic=self.topic, partition=partition, error=str(error))
        if isinstance(error, OSError):
            error = served.log.storage_error(error)
        if isinstance(error, KafkaError):
            if not served.is_lost():
                self._load_later(partition)
            return
        self._failed.add(partition)
        if not isinstance(error, DecodeError):
            self.node.note_bug()

    def _load_later(self, partition: int) -> None:
        """It was a shortage: the next request tries again, or we do."""
        self._unread[partition] = self.node.clock.monotonic() + RETRY_BACKOFF_MS / 1000
        self.deadlines.set(("load", partition), RETRY_BACKOFF_MS, self._wake_loading)

    def _on_lost(self) -> None:
        # Perhaps in the middle of a step: the task does it.
        self._has_lost = True
        self.wake()

    def before_deadlines(self) -> None:
        if not self._has_lost:
            return
        self._has_lost = False
        for partition in [key for key, served in self._loaded.items() if served.is_lost()]:
            self._unload(partition)

    def _unload(self, partition: int) -> None:
        served = self._loaded.pop(partition)
        served.close()
        _log.warning("shard given up", topic=self.topic, partition=partition)
        served.shard.on_unloaded()

    def on_record(self, record: Message, topic: Topic | None) -> None:
        """A record of the metadata was committed."""
        if isinstance(record, RemoveTopicRecord) and topic is not None and topic.name == self.topic:
            for served in self._loading.values():
                served.close()
            self._loading.clear()
            self._unread.clear()
            self._failed.clear()
            self._partition_by_key.clear()
            self._partitions = 0
            self._on_lost()

    # -- answers

    def journal_of(self, shard: S) -> ShardLog:
        """The log of a loaded shard. Raises KafkaError (NOT_COORDINATOR) where it was given up meanwhile."""
        served = self._loaded.get(shard.partition)
        if served is None or served.shard is not shard:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return served.journal

    def answer(
        self, shard: S, result: M | Promise[M], refused: Callable[[KafkaError], M]
    ) -> M | Coroutine[Any, Any, M]:
        """What a handler returns for a step's ``result``: the response, or a coroutine that waits for it, and for the
        flush of what it rests on where flush.messages asks for it. ``refused`` makes the response that tells of an
        error, should the flush fail.
        """
        return self.answer_of([shard], result, refused)

    def answer_of(
        self, shards: Sequence[S], result: M | Promise[M], refused: Callable[[KafkaError], M]
    ) -> M | Coroutine[Any, Any, M]:
        """The same, for an answer that rests on several shards."""
        if isinstance(result, Promise):
            if not result.done:
                return self._answer_promise(shards, result, refused)
            result = result.value
        try:
            for shard in shards:
                if not self.journal_of(shard).is_durable():
                    return self._answer_durable(shards, result, refused)
        except KafkaError as error:
            return refused(to_client_error(error))
        return result

    async def _answer_promise(
        self, shards: Sequence[S], promise: Promise[M], refused: Callable[[KafkaError], M]
    ) -> M:
        resolved = trio.Event()
        promise.listen(resolved.set)
        await resolved.wait()
        return await self._answer_durable(shards, promise.value, refused)

    async def _answer_durable(
        self, shards: Sequence[S], response: M, refused: Callable[[KafkaError], M]
    ) -> M:
        try:
            for shard in shards:
                journal = self.journal_of(shard)
                if not journal.is_durable():
                    await journal.wait_durable()
        except KafkaError as error:
            return refused(to_client_error(error))
        return response

    # -- the tasks

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what is asked for and keep the deadlines, until cancelled."""
        topic = self.node.cluster.topic(self.topic)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._unread = dict.fromkeys(self._with_records(self._partitions), self.node.clock.monotonic())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run_duties)
            nursery.start_soon(self._keep_loading)
            task_status.started()
            if self._unread:
                await self.node.logs.recovered()
                self._wake_loading()

    def load_unread(self) -> None:
        """Load what the last run left, too: from now on, since a start that is not through yet comes first."""
        self._may_load_unread = True
        self._wake_loading()

    def _wake_loading(self) -> None:
        self._load_event.set()

    def _with_records(self, partitions: int) -> Iterator[int]:
        for partition in range(partitions):
            try:
                if self.node.logs.size_of(self.topic, partition):
                    yield partition
            except OSError as error:
                _log.error("partition not looked at", topic=self.topic, partition=partition, error=str(error))

    async def _keep_loading(self) -> None:
        while True:
            self._load_event = trio.Event()
            if self._loading:
                await self._load_in_slices(*next(iter(self._loading.items())))
            elif not (self._may_load_unread and self._start_unread()):
                await self._load_event.wait()

    def _start_unread(self) -> bool:
        """Whether another shard is being loaded now."""
        now = self.node.clock.monotonic()
        for partition in [key for key, at in self._unread.items() if at <= now]:
            try:
                self._start_loading(partition)
                return True
            except KafkaError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    del self._unread[partition]
                elif self.node.logs.is_recovered:  # otherwise `run` waits for that
                    self._load_later(partition)
        return False
