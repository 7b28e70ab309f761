"""`ReplicaFetcher`: fetches the partitions that another node leads, and appends what comes to this node's logs.

One for each leader, with one request under way, in one fetch session: a request names only what has changed for this
follower. The leader answers when there is something new. If partitions come meanwhile, the request is given up, and
the next one begins a new session with all of them.

Source: Kafka's ``AbstractFetcherThread``, ``ReplicaFetcherThread``, ``RemoteLeaderEndPoint``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.log.following import append_as_follower, follow_log_start
from oncelog.broker.log.truncation import prepare_truncation, truncate_fully_and_start_at, truncate_to
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.network.network import LinkDownError
from oncelog.broker.replication.fetch_state import NOT_DELAYED, ON_ERROR, Step, truncation_offset
from oncelog.broker.scheduling.slices import in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.network.network import Link
    from oncelog.broker.replication.fetch_state import PartitionFetchState
    from oncelog.broker.replication.throttle import ReplicationThrottle
    from oncelog.wire.messages.fetch import FetchResponse, PartitionData
    from oncelog.wire.schema import Uuid

FETCH_VERSION = FetchRequest.MAX_VERSION
LIST_OFFSETS_VERSION = ListOffsetsRequest.MAX_VERSION
EARLIEST, LATEST = -2, -1
THROTTLED_S_MAX = 0.5
"""Seconds after which a throttled partition is looked at again, at most: the limit may have changed."""

_log = get_logger(__name__)


class ReplicaFetcher:
    """Fetches from the leader at the other end of ``link``, until it has no partitions."""

    def __init__(
        self,
        link: Link,
        node_id: int,
        metadata: ClusterMetadata,
        config: DynamicBrokerConfig,
        lines: LineLimiter,
        throttle: ReplicationThrottle,
    ) -> None:
        self._link = link
        self._node_id = node_id
        self._metadata = metadata
        self._config = config
        self._lines = lines
        self._throttle = throttle
        self._partitions: dict[tuple[Uuid, int], PartitionFetchState] = {}
        self._to_ask: dict[PartitionFetchState, None] = {}
        """Partitions that the next request must name: new ones, and those whose offset or log start has changed."""
        self._forgotten: list[tuple[Uuid, int]] = []
        """Those that the session has, and which are not fetched any more."""
        self._delayed: dict[PartitionFetchState, None] = {}
        self._session_id = 0
        self._session_epoch = 0
        """Of the request that is under way, or was answered last."""
        self._begins_session = True
        """Whether the next request begins a session."""
        self._has_added = False
        """Whether partitions were added that no session has."""
        self._session_size = 0
        """How many partitions the session has."""
        self._backoff = trio.CancelScope()
        """Of the wait after a broken link."""
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._partitions)

    # -- partitions come and go

    def add(self, partition: PartitionFetchState) -> None:
        """Fetch a partition from the next session on; `fetch_added` begins it. Its log ends with what this node has."""
        log = partition.log
        self._partitions[log.topic_id, log.partition] = partition
        self._has_added = True

    def fetch_added(self) -> None:
        """Begin a session now if partitions were added: each names all partitions, so call it once for many."""
        if self._has_added:
            self._has_added = False
            self._begins_session = True
            self._changed.set()
            self._link.give_up_fetch()
            self._backoff.cancel()

    def remove(self, partition: PartitionFetchState) -> None:
        """Fetch it no longer."""
        partition.is_current = False
        log = partition.log
        if self._partitions.get((log.topic_id, log.partition)) is partition:
            del self._partitions[log.topic_id, log.partition]
        self._delayed.pop(partition, None)
        self._leave_out(partition)
        self._changed.set()

    def _leave_out(self, partition: PartitionFetchState) -> None:
        """Let the session forget a partition."""
        self._to_ask.pop(partition, None)
        if partition.in_session:
            partition.in_session = False
            self._session_size -= 1
            self._forgotten.append((partition.log.topic_id, partition.log.partition))

    # -- rounds

    async def run(self) -> None:
        """Fetch until there are no partitions."""
        while self._partitions:
            self._end_delays()
            await self._flush()
            self._changed = trio.Event()
            request = self._build()
            if request is None:
                with real_time.move_on_after(self._delay_s()):
                    await self._changed.wait()
                continue
            link_changed = self._link.changed
            try:
                response = await self._link.fetch(request, FETCH_VERSION)
            except LinkDownError:
                if not self._begins_session:  # otherwise it was given up, for partitions that have come
                    self._begins_session = True
                    with real_time.move_on_after(self._backoff_s) as self._backoff:
                        await link_changed.wait()
            else:
                await self._take(response)

    @property
    def _backoff_s(self) -> float:
        return self._config.current.replica_fetch_backoff_ms / 1000

    def _delay_s(self) -> float:
        """Return for how long there is nothing to fetch."""
        until = [one.delayed_until_s for one in self._delayed]
        return max(0.0, min(until) - real_time.monotonic()) if until else inf

    def _end_delays(self) -> None:
        if self._delayed:
            now = real_time.monotonic()
            for partition in [one for one in self._delayed if one.delayed_until_s <= now]:
                del self._delayed[partition]
                partition.delayed_until_s = NOT_DELAYED
                self._to_ask[partition] = None

    def _build(self) -> FetchRequest | None:
        """Return the next request; None if there is nothing to fetch."""
        config = self._config.current
        self._session_epoch += 1
        if self._begins_session:
            self._begins_session = False
            self._session_id = self._session_epoch = self._session_size = 0
            self._forgotten.clear()
            self._to_ask = {one: None for one in self._partitions.values() if one.is_fetching}
            for partition in self._partitions.values():
                partition.in_session = False
        for partition in list(self._to_ask):
            if partition.lag != 0 and partition.is_fetching and self._throttle.applies_to(partition.log):
                delay_s = self._throttle.delay_s()
                if delay_s:
                    self._delay(partition, min(delay_s, THROTTLED_S_MAX))
        asked = [one for one in self._to_ask if one.is_fetching and not one.is_asked()]
        self._to_ask.clear()
        if not asked and not self._session_size:
            self._begins_session = True
            return None
        topics: dict[Uuid, FetchTopic] = {}
        for partition in asked:
            log = partition.log
            topic = topics.get(log.topic_id)
            if topic is None:
                topic = topics[log.topic_id] = FetchTopic("", log.topic_id)
            topic.partitions.append(
                FetchPartition(
                    log.partition,
                    partition.leader_epoch,
                    partition.offset,
                    partition.last_fetched_epoch,
                    log.log_start_offset,
                    config.replica_fetch_max_bytes,
                )
            )
            partition.asked_offset = partition.offset
            partition.sent_log_start = log.log_start_offset
            if not partition.in_session:
                partition.in_session = True
                self._session_size += 1
        request = FetchRequest(
            replica_state=ReplicaState(self._node_id, self._metadata.broker_epoch),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
        )
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for topic_id, number in self._forgotten:
            if topic_id not in forgotten:
                forgotten[topic_id] = ForgottenTopic("", topic_id)
            forgotten[topic_id].partitions.append(number)
        request.forgotten_topics_data = list(forgotten.values())
        self._forgotten.clear()
        return request

    async def _take(self, response: FetchResponse) -> None:
        if response.error_code:  # the leader does not know the session
            self._lines.write(
                _log.info,
                "fetch session of a follower lost",
                {"leader": self._link.target, "error": ErrorCode(response.error_code).name},
            )
            self._begins_session = True
            if self._session_epoch == 0:
                await real_time.sleep(self._backoff_s)
            return
        self._session_id = response.session_id
        for topic in response.responses:
            for row in topic.partitions:
                partition = self._partitions.get((topic.topic_id, row.partition_index))
                if partition is None or not partition.is_fetching:
                    continue
                if not partition.in_session or partition.asked_offset != partition.offset:
                    continue  # it came anew meanwhile
                try:
                    await self._take_row(partition, row)
                except KafkaError as error:
                    self._give_up(partition, error)

    async def _flush(self) -> None:
        """Flush what the next request reports, as ``flush.messages`` demands. Partitions may come meanwhile."""
        while to_flush := [
            one
            for one in (self._partitions.values() if self._begins_session else self._to_ask)
            if one.log.durable_offset < one.offset and one.is_fetching
        ]:
            for partition in to_flush:
                try:
                    await partition.log.flush(partition.offset)
                except KafkaError as error:
                    self._give_up(partition, error)

    def _give_up(self, partition: PartitionFetchState, error: KafkaError) -> None:
        """Fetch a partition no more whose log is offline, another one later: a full disk may have room again."""
        self._note(partition, error)
        if partition.log.offline:
            self._fail(partition)
        else:
            partition.offset = partition.log.log_end_offset  # some of the batches may be there
            self._delay(partition, self._backoff_s)

    async def _take_row(self, partition: PartitionFetchState, row: PartitionData) -> None:
        """Take a partition's answer. Raises KafkaError."""
        log = partition.log
        if row.error_code:
            await self._take_error(partition, row.error_code)
            return
        if row.diverging_epoch is not None:
            diverging = row.diverging_epoch
            await self._truncate(partition, truncation_offset(log, diverging.epoch, diverging.end_offset))
            return
        records: Any = row.records
        if records:
            append_as_follower(log, records, partition.leader_epoch, row.log_start_offset)
            if self._throttle.applies_to(log):
                self._throttle.record(len(records))
        log.advance_high_watermark(row.high_watermark)
        follow_log_start(log, row.log_start_offset)
        partition.offset = log.log_end_offset
        partition.lag = max(0, row.high_watermark - partition.offset)
        if not partition.is_asked():
            self._to_ask[partition] = None

    async def _truncate(self, partition: PartitionFetchState, offset: int) -> None:
        """Cut the log, and fetch from there. Raises KafkaError."""
        log = partition.log
        await log.flush(log.log_end_offset)  # to truncate blocks the loop: for a shorter time after this
        await in_slices(prepare_truncation(log, offset))
        if partition.is_current:
            if offset < log.high_watermark:
                _log.warning(
                    "truncating below the high watermark",
                    topic=log.topic,
                    partition=log.partition,
                    to=offset,
                    high_watermark=log.high_watermark,
                )
            before = log.log_end_offset, log.latest_epoch
            truncate_to(log, offset)
            self._fetch_anew(partition, before)

    def _fetch_anew(self, partition: PartitionFetchState, before: tuple[int, int]) -> None:
        """Ask from the new end; ``before``: the end and the latest epoch of the log that the leader did not like.
        Raises KafkaError if they are still the same: the leader's answer would be, too.
        """
        if before == (partition.log.log_end_offset, partition.log.latest_epoch):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.offset = partition.log.log_end_offset
        partition.asked_offset = -1  # its last epoch, too, may be another one
        self._to_ask[partition] = None

    # -- errors

    async def _take_error(self, partition: PartitionFetchState, error_code: int) -> None:
        """Do what the error asks for. Raises KafkaError for one that only a delay helps."""
        error = KafkaError(ErrorCode(error_code))
        step = ON_ERROR.get(error.code, Step.DELAY)
        if step is Step.FIND_OFFSET:
            await self._find_offset(partition)
        elif step is Step.FAIL:
            # It was asked in the epoch that this node's metadata have: an answer to an earlier epoch was dropped.
            self._note(partition, error)
            self._fail(partition)
        else:
            raise error

    async def _find_offset(self, partition: PartitionFetchState) -> None:
        """The leader does not have the follower's offset: cut the log to the leader's end, or begin anew at the
        leader's start (Kafka: ``fetchOffsetAndTruncate``). Raises KafkaError.
        """
        log = partition.log
        before = log.log_end_offset, log.latest_epoch
        end_offset = await self._list_offset(partition, LATEST)
        if not partition.is_current:
            return
        if end_offset < log.log_end_offset:
            await self._truncate(partition, end_offset)
            return
        start_offset = await self._list_offset(partition, EARLIEST)
        if not partition.is_current:
            return
        if start_offset > log.log_end_offset:
            _log.warning(
                "beginning anew at the leader's start",
                topic=log.topic,
                partition=log.partition,
                end_offset=log.log_end_offset,
                start_offset=start_offset,
            )
            truncate_fully_and_start_at(log, start_offset)
        self._fetch_anew(partition, before)

    async def _list_offset(self, partition: PartitionFetchState, timestamp: int) -> int:
        """Ask the leader for an offset. Raises KafkaError."""
        log = partition.log
        asked = ListOffsetsPartition(log.partition, partition.leader_epoch, timestamp)
        request = ListOffsetsRequest(self._node_id, 0, [ListOffsetsTopic(log.topic, [asked])])
        try:
            response = await self._link.call(request, LIST_OFFSETS_VERSION)
        except LinkDownError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION) from error
        [topic] = response.topics
        [row] = topic.partitions
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code))
        return row.offset

    def _delay(self, partition: PartitionFetchState, seconds: float) -> None:
        if partition.is_current:
            partition.delayed_until_s = real_time.monotonic() + seconds
            self._delayed[partition] = None
            self._leave_out(partition)

    def _fail(self, partition: PartitionFetchState) -> None:
        if partition.is_current:
            partition.is_failed = True
            self._leave_out(partition)

    def _note(self, partition: PartitionFetchState, error: KafkaError) -> None:
        about = {"topic": partition.log.topic, "partition": partition.log.partition, "error": error.code.name}
        self._lines.write(_log.info, "a follower's fetch failed", about, leader=self._link.target)
