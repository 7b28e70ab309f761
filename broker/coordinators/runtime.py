"""`CoordinatorRuntime`: loads the shards of one internal topic, finds the shard of a key, and delays responses until
their records are committed.

A shard is the state that one partition of the topic stores, on the node that leads the partition. The first request
for a shard loads it: a small shard at once, a large one in slices, and meanwhile requests get
COORDINATOR_LOAD_IN_PROGRESS. After a start, and where leadership is gained, the runtime also loads shards with records
in the background, so that sessions time out and lists of groups are complete. Where leadership is lost, the shard goes,
with its timers, and who waits for it gets NOT_COORDINATOR. Source: ``CoordinatorRuntime``, ``updateCoordinator`` of
``BrokerMetadataPublisher``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from oncelog.broker.coordinators.loader import CoordinatorLoader
from oncelog.broker.coordinators.log import CoordinatorLog
from oncelog.broker.coordinators.partition_of_key import partition_of_key
from oncelog.broker.coordinators.shard import S, ShardContext
from oncelog.broker.coordinators.sliced_work import SlicedWork
from oncelog.broker.coordinators.timer import RETRY_BACKOFF_MS, CoordinatorTimer
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.internal_topics import topic_parameters
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import Slices
from oncelog.broker.seams.clock import real_time
from oncelog.coordinator.errors import to_client_error
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.stored.metadata import RemoveTopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.shard import ShardBuilder
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.metadata.image import Topic
    from oncelog.wire.schema import Message

LOAD_AT_ONCE_BYTES = 32 * 1024
"""A request loads a shard at once if its log has at most this many bytes: a few hundred records, about 2 ms."""

READ_WAIT_MS = 100
"""Milliseconds of real time that a response waits until what it read is committed, before it is made from what is."""

KNOWN_KEYS_MAX = 10_000
"""The size of the cache of partitions by key."""

KNOWN_KEY_CHARS_MAX = 255
"""The longest key in that cache, in characters: very long group ids must not fill the memory."""

_log = get_logger(__name__)

M = TypeVar("M", bound="Message")


class CoordinatorRuntime(Generic[S]):
    """The shards of ``topic``, by partition. ``builder`` builds them."""

    def __init__(self, topic: str, builder: ShardBuilder[S], environment: CoordinatorEnvironment) -> None:
        self.topic = topic
        self._builder = builder
        self._config = environment.config
        self._cluster = environment.cluster
        self._logs = environment.logs
        self._files = environment.files
        self._clock = environment.clock
        self._note_internal_error = environment.note_internal_error
        self.timer = CoordinatorTimer(
            topic,
            self._clock,
            environment.lines,
            environment.background,
            self._unload_lost,
            self._note_internal_error,
        )
        self.background = SlicedWork(topic, environment.background, self._note_internal_error)
        self.loaded: dict[int, ShardContext[S]] = {}
        self._loading: dict[int, ShardContext[S]] = {}
        self._unloaded: dict[int, float] = {}
        """Partitions with records whose shards must still be loaded, after a start, a new leader epoch or a failed
        load. The value is the time from which on they may be loaded, in seconds of broker time.
        """
        self._failed: set[int] = set()
        """Partitions whose records cannot be replayed. A restart or a new leader epoch tries again."""
        self._partitions = 0
        self._partition_by_key: dict[str, int] = {}
        self._loads_in_background = False
        self._load_event = trio.Event()
        self._all_tried = trio.Event()
        """Set when the background has loaded all that can be loaded now."""
        self._has_lost = False
        self._committed: dict[int, tuple[S, int, S]] = {}
        """By partition: a shard that waits for the watermark, the watermark, and the shard as it was there."""
        self._views: dict[int, S] = {}
        """Stands in for the shards of these partitions while a response is made once more."""
        environment.metadata.subscribe(self._on_record)
        self._cluster.subscribe(self._on_new_epoch)

    # -- shards by key

    def partition_for(self, key: str) -> int:
        """Return the partition that stores ``key``, even if the topic does not exist yet.

        The number of partitions is that at the node's start or at the topic's creation. As in Kafka, partitions that
        are added later change nothing before a restart.
        """
        found = self._partition_by_key.get(key)
        if found is not None:
            return found
        if not self._partitions:
            topic = self._cluster.topic(self.topic)
            if topic is None:
                return partition_of_key(key, topic_parameters(self.topic, self._config.current, 1).partitions)
            self._partitions = len(topic.partitions)
        found = partition_of_key(key, self._partitions)
        if len(key) <= KNOWN_KEY_CHARS_MAX:
            if len(self._partition_by_key) >= KNOWN_KEYS_MAX:
                self._partition_by_key.clear()
            self._partition_by_key[key] = found
        return found

    def shard_of(self, key: str) -> S:
        """Return the shard that stores ``key``. Raises KafkaError as `at`."""
        return self.at(self.partition_for(key))

    def shard_for(self, key: str) -> S:
        """Return the shard that stores ``key``, for a request about it; first do what is due of ``key``.

        Raises KafkaError as `at`; COORDINATOR_LOAD_IN_PROGRESS also if too much is due: the client asks again.
        """
        shard = self.shard_of(key)
        if not self.timer.run_due_of(key):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def at(self, partition: int) -> S:
        """Return the loaded shard of a partition. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        context = self.loaded.get(partition)
        if context is not None:
            if not context.is_lost():
                return self._views.get(partition, context.shard)
            self._unload(partition)
        if partition not in self._loading:
            context = self._start_loading(partition)
            if context.partition_log.size <= LOAD_AT_ONCE_BYTES and self._load_at_once(partition, context):
                return context.shard
            self._load_event.set()
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def has_unloaded(self) -> bool:
        """Whether shards of partitions with records are not loaded yet."""
        return bool(self._loading or self._unloaded)

    async def wait_loaded(self) -> None:
        """Wait until all shards with records are loaded, but for those that cannot be loaded now."""
        if self.has_unloaded():
            if self._all_tried.is_set():
                self._all_tried = trio.Event()
            self._load_event.set()
            await self._all_tried.wait()

    def shards(self) -> list[S]:
        """Return all shards by partition. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) if some are not loaded
        yet.
        """
        if self.has_unloaded():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [
            self._views.get(partition, context.shard)
            for partition, context in sorted(self.loaded.items())
            if not context.is_lost()
        ]

    def log_of(self, shard: S) -> CoordinatorLog:
        """Return the log of a loaded shard. Raises KafkaError (NOT_COORDINATOR) if it has been unloaded."""
        context = self.loaded.get(shard.partition)
        if context is None or context.shard is not shard or not context.log.is_current():
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return context.log

    # -- loading

    def _start_loading(self, partition: int) -> ShardContext[S]:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the log is being recovered, NOT_COORDINATOR."""
        topic = self._cluster.topic(self.topic)
        if partition in self._failed or topic is None or partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition in self.loaded:  # of an earlier leader epoch, and the timer's task has not come yet
            self._unload(partition)
        builder = self._builder
        try:
            log = CoordinatorLog(
                self._cluster,
                self._clock,
                self.topic,
                partition,
                builder.codec,
                builder.BASE_SEQUENCE,
                builder.write_timeout_ms,
                is_acks_all=builder.IS_ACKS_ALL,
            )
            partition_log = log.leader_partition().log
            partition_log.check_alive()
        except KafkaError as error:
            is_recovering = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._leads(topic, partition)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_recovering else ErrorCode.NOT_COORDINATOR
            raise KafkaError(code) from error
        shard = builder.build(partition, log)
        loader = CoordinatorLoader(
            partition_log, *builder.record_types(), shard, skips_versions=builder.SKIPS_VERSIONS
        )
        self._unloaded.pop(partition, None)
        context = ShardContext(shard, log, partition_log, loader.steps(), self._on_lost)
        self._loading[partition] = context
        return context

    def _leads(self, topic: Topic, partition: int) -> bool:
        return topic.partitions[partition].leader == self._cluster.node_id

    def _load_at_once(self, partition: int, context: ShardContext[S]) -> bool:
        try:
            for _ in context.steps:
                pass
        except Exception as error:
            self._load_failed(partition, context, error)
            raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
        self._finish_loading(partition)
        return True

    async def _load_in_slices(self, partition: int, context: ShardContext[S]) -> None:
        began = real_time.monotonic()
        try:
            await self._take(context.steps)
        except Exception as error:
            self._load_failed(partition, context, error)
            return
        if self._loading.get(partition) is not context:
            return  # the topic was deleted, or leadership was lost, which closed the steps
        self._finish_loading(partition)
        seconds = round(real_time.monotonic() - began, 3)
        size = context.partition_log.size
        _log.info("loaded", topic=self.topic, partition=partition, bytes=size, seconds=seconds)

    async def _take(self, steps: Generator[FileRange | None, None, None]) -> None:
        """Take the steps of a `CoordinatorLoader` beside other work."""
        slices = Slices()
        for cold in steps:
            if cold is not None:
                await self._files.offload(cold.read)
            if slices.is_over():
                await slices.pause()

    def _finish_loading(self, partition: int) -> None:
        context = self.loaded[partition] = self._loading.pop(partition)
        context.shard.on_loaded()
        self._builder.on_shard_loaded(context.shard)

    def _load_failed(self, partition: int, context: ShardContext[S], error: Exception) -> None:
        context.close()
        if self._loading.get(partition) is not context:
            return
        del self._loading[partition]
        _log.exception("shard not loaded", topic=self.topic, partition=partition, error=str(error))
        if isinstance(error, OSError):
            error = context.partition_log.storage_error(error)
        if isinstance(error, KafkaError):
            if not context.is_lost():
                self._retry_loading(partition)
            return
        self._failed.add(partition)
        if not isinstance(error, DecodeError):
            self._note_internal_error()

    def _retry_loading(self, partition: int) -> None:
        """Load the shard after a back-off, or earlier if a request needs it."""
        self._unloaded[partition] = self._clock.monotonic() + RETRY_BACKOFF_MS / 1000
        self.timer.deadlines.set(
            ("load", partition), RETRY_BACKOFF_MS, self._wake_loading, early_ms=RETRY_BACKOFF_MS
        )

    def _wake_loading(self) -> None:
        self._load_event.set()

    # -- leadership

    def _on_new_epoch(self, topic: Topic, partition: int) -> None:
        """Load the shard anew if this node leads its partition in the new epoch; else it goes."""
        if topic.name != self.topic:
            return
        state = topic.partitions[partition]
        self._failed.discard(partition)
        self._unloaded.pop(partition, None)
        if not self._leads(topic, partition):
            self._drop(partition)
        elif not self._keeps(partition, state.leader_epoch):
            self._drop(partition)
            # A new partition has no records, and its directory is not looked for.
            if state.leader_epoch > 0 and self._has_records(partition):
                self._unloaded[partition] = self._clock.monotonic()
                self._wake_loading()

    def _keeps(self, partition: int, leader_epoch: int) -> bool:
        """Keep the shard where nobody else can have led since, as Kafka does but for transactions in a new epoch: their
        epochs are in markers.
        """
        context = self.loaded.get(partition) or self._loading.get(partition)
        if context is None:
            return False
        epochs_since = leader_epoch - context.log.leader_epoch
        if epochs_since > 1 or (epochs_since and self._builder.RELOADS):
            return False
        with suppress(KafkaError):
            context.log.renew()
        return not context.is_lost()

    def _drop(self, partition: int) -> None:
        """Forget a shard of an earlier leader epoch."""
        loading = self._loading.pop(partition, None)
        if loading is not None:
            loading.close()
        if partition in self.loaded:
            self._on_lost()

    # -- unloading

    def _on_lost(self) -> None:
        # A step of that shard may be the caller, so the timer's task unloads it.
        self._has_lost = True
        self.timer.wake()

    def _unload_lost(self) -> None:
        if not self._has_lost:
            return
        self._has_lost = False
        for partition in [key for key, context in self.loaded.items() if context.is_lost()]:
            self._unload(partition)

    def _unload(self, partition: int) -> None:
        context = self.loaded.pop(partition)
        self._committed.pop(partition, None)
        context.close()
        _log.warning("shard unloaded", topic=self.topic, partition=partition)
        context.shard.on_unloaded()

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        """Handle a committed metadata record: forget all shards if the topic was deleted."""
        if isinstance(record, RemoveTopicRecord) and topic is not None and topic.name == self.topic:
            for context in self._loading.values():
                context.close()
            self._loading.clear()
            self._unloaded.clear()
            self._failed.clear()
            self._partition_by_key.clear()
            self._partitions = 0
            self._on_lost()

    # -- responses

    def respond(
        self,
        shards: Sequence[S],
        result: M | Promise[M],
        error_response: Callable[[KafkaError], M],
        timeout_ms: int | None = None,
    ) -> M | Pending[M]:
        """Return the response of a step in ``shards`` that returned ``result``.

        The response is `Pending` until the promise is resolved and all records of the shards are committed.
        ``error_response`` makes the response for an error of that. ``timeout_ms``: instead of the builder's.
        """
        if isinstance(result, Promise):
            if not result.done:
                return Pending(self._respond_to_promise(shards, result, error_response))
            result = result.value
        try:
            for shard in shards:
                if not self.log_of(shard).is_durable():
                    return Pending(self.respond_durable(shards, result, error_response, timeout_ms))
        except KafkaError as error:
            return error_response(to_client_error(error))
        return result

    def respond_read(
        self,
        shards: Sequence[S],
        result: M,
        error_response: Callable[[KafkaError], M],
        again: Callable[[], M],
    ) -> M | Pending[M]:
        """Return the response of a step that has only read ``shards``.

        If what it read is not committed within `READ_WAIT_MS`, ``again`` makes another response, from what is: while it
        runs, `at` and `shards` give the shards as their committed records make them (Kafka: ``lastCommittedOffset``).
        """
        try:
            if all(self.log_of(shard).is_durable() for shard in shards):
                self._committed.clear()
                return result
        except KafkaError as error:
            return error_response(to_client_error(error))
        return Pending(self._respond_committed(list(shards), result, error_response, again))

    async def _respond_committed(
        self,
        shards: list[S],
        result: M,
        error_response: Callable[[KafkaError], M],
        again: Callable[[], M],
    ) -> M:
        views: dict[int, S] = {}
        try:
            for shard in shards:
                view = await self._view(shard)
                if view is not None:
                    views[shard.partition] = view
        except KafkaError as error:
            return error_response(to_client_error(error))
        if not views:
            return result
        self._views = views
        try:
            return again()
        finally:
            self._views = {}

    async def _view(self, shard: S) -> S | None:
        """Return the shard as its committed records make it; None if all are committed soon. Raises KafkaError."""
        log = self.log_of(shard)
        if log.is_durable():
            return None
        partition_log = self.loaded[shard.partition].partition_log
        known = self._committed.get(shard.partition)
        if known is not None and known[0] is shard and known[1] == partition_log.high_watermark:
            return known[2]
        try:
            await log.wait_durable(READ_WAIT_MS)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
        else:
            return None
        watermark = partition_log.high_watermark
        view = self._builder.build_view(shard.partition, log)
        await self._take(
            CoordinatorLoader(
                partition_log,
                *self._builder.record_types(),
                view,
                skips_versions=self._builder.SKIPS_VERSIONS,
                up_to=watermark,
            ).steps()
        )
        self.log_of(shard)
        self._committed[shard.partition] = shard, watermark, view
        return view

    async def _respond_to_promise(
        self, shards: Sequence[S], promise: Promise[M], error_response: Callable[[KafkaError], M]
    ) -> M:
        resolved = trio.Event()
        promise.listen(resolved.set)
        await resolved.wait()
        return await self.respond_durable(shards, promise.value, error_response)

    async def respond_durable(
        self,
        shards: Sequence[S],
        response: M,
        error_response: Callable[[KafkaError], M],
        timeout_ms: int | None = None,
    ) -> M:
        """Wait until all records of ``shards`` are committed, and return ``response``, or the error's response."""
        try:
            for shard in shards:
                log = self.log_of(shard)
                if not log.is_durable():
                    await log.wait_durable(timeout_ms)
        except KafkaError as error:
            return error_response(to_client_error(error))
        return response

    # -- tasks

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards and run timers, until cancelled."""
        topic = self._cluster.topic(self.topic)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._unloaded = dict.fromkeys(
                (
                    partition
                    for partition in range(self._partitions)
                    if self._leads(topic, partition) and self._has_records(partition)
                ),
                self._clock.monotonic(),
            )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.timer.run)
            nursery.start_soon(self.background.run)
            nursery.start_soon(self._load_in_background)
            task_status.started()
            if self._unloaded:
                await self._logs.recovered()
                self._load_event.set()

    def load_all(self) -> None:
        """From now on, load all shards with records in the background. The node calls this at the end of its start."""
        self._loads_in_background = True
        self._load_event.set()

    def _has_records(self, partition: int) -> bool:
        try:
            return bool(self._logs.size_of(self.topic, partition))
        except OSError as error:
            _log.error("partition not looked at", topic=self.topic, partition=partition, error=str(error))
            return False

    async def _load_in_background(self) -> None:
        while True:
            self._load_event = trio.Event()
            if self._loading:
                await self._load_in_slices(*next(iter(self._loading.items())))
            elif not (self._loads_in_background and self._start_loading_unloaded()):
                self._all_tried.set()
                await self._load_event.wait()

    def _start_loading_unloaded(self) -> bool:
        """Start loading one more shard. Returns False if none can be loaded now."""
        now = self._clock.monotonic()
        for partition in [key for key, at in self._unloaded.items() if at <= now]:
            try:
                self._start_loading(partition)
                return True
            except KafkaError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    del self._unloaded[partition]
                elif self._logs.is_recovered:  # otherwise `run` waits for the recovery
                    self._retry_loading(partition)
        return False
