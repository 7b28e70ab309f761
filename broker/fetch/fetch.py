"""`Fetch`: one Fetch request. It reads its partitions, once or several times, until the response is ready.

Many records stay on disk: a row holds a range of a log file, which the connection sends from the page cache.
(Kafka: ``ReplicaManager.readFromLog``, ``Partition.readRecords``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from oncelog.broker.cluster.cluster import Cluster
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.fetch.sessions import FetchContext, FetchItem, FetchKey, FetchSessions, len_of
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.results import FileRange
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.header import FETCH_KEY, SHARE_FETCH_KEY
from oncelog.wire.messages.fetch import (
    FETCH_TOPIC_ID_VERSION,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import Steps

STORAGE_ERROR_VERSION = 6
"""The first version whose clients know KAFKA_STORAGE_ERROR; older ones are told NOT_LEADER_OR_FOLLOWER."""
REPLICA_STATE_VERSION = 15
LEADER_HINT_VERSION = 16
READ_COMMITTED = 1
EMPTY = b""
INLINE_BYTES_MAX = 16 * 1024
"""Up to so many bytes of records are copied into the response."""

PARTITIONS_A_STEP = 50
"""Of a Fetch that is read in parts."""

Row = tuple[FetchKey, FetchItem, PartitionData]
T = TypeVar("T")


class Fetch:
    """One request: its limits, its partitions, and the rows of the last read."""

    __slots__ = (
        "_cluster",
        "_limit",
        "_missing_before",
        "_sessions",
        "_unknown",
        "_unknown_ids",
        "context",
        "is_committed",
        "is_replica",
        "max_bytes",
        "may_read",
        "min_bytes",
        "ready",
        "rows",
        "size",
        "throttle_ms",
        "version",
    )

    def __init__(
        self,
        cluster: Cluster,
        sessions: FetchSessions,
        config: BrokerConfig,
        request: FetchRequest,
        version: int,
        context: FetchContext,
    ) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self.version = version
        self.context = context
        self.is_committed = request.isolation_level == READ_COMMITTED
        state = request.replica_state
        replica_id = (
            request.replica_id if version < REPLICA_STATE_VERSION or state is None else state.replica_id
        )
        self.is_replica = replica_id >= 0
        self.may_read: Callable[[str], bool] | None = None
        """Whether the client may read a topic; None: every one. It decides once about each: a change of rights holds
        for the next request (Kafka, too).
        """
        self.throttle_ms: Callable[[FetchResponse], int] | None = None
        """Returns for how many milliseconds a response throttles its client, who then gets an empty one. None: there
        was no quota when the request was read.
        """
        self.max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.rows: list[Row] = []
        self.size = 0
        self.ready = False
        self._missing_before = len(context.items)

    def read(self) -> bool:
        """Read every partition anew; return whether the response is ready."""
        self._begin_read()
        self._read_part(self.context.items.items())
        return self._end_read()

    def read_in_parts(self) -> Steps[bool]:
        """As `read`, some partitions at each step."""
        self._begin_read()
        for part in parts_of([*self.context.items.items()]):
            self._read_part(part)
            yield
        return self._end_read()

    def _begin_read(self) -> None:
        self.release()
        self._limit = self.max_bytes
        self.size, self.ready = 0, False
        self._unknown_ids: list[Row] = []
        self._unknown: list[Row] = []

    def _read_part(self, items: Iterable[tuple[FetchKey, FetchItem]]) -> None:
        for key, item in items:
            code = self._error_if_missing(item)
            if code is not ErrorCode.NONE:
                rows = self._unknown_ids if code is ErrorCode.UNKNOWN_TOPIC_ID else self._unknown
                rows.append((key, item, self._error_row(item, code, aborted=[])))
                continue
            row = self._read_one(item, self._limit, minimum_one=self.size == 0)
            size = len_of(row.records)
            self.size += size
            self._limit = max(0, self._limit - size)
            if row.error_code or row.diverging_epoch is not None:
                self.ready = True
            self.rows.append((key, item, row))

    def _end_read(self) -> bool:
        # Partitions that do not exist do not end the wait for the others, and follow them (Kafka:
        # ``handleFetchRequest``).
        missing = len(self._unknown_ids) + len(self._unknown)
        self.ready = (
            self.ready or self.size >= self.min_bytes or not self.rows or missing > self._missing_before
        )
        self._missing_before = missing
        self.rows += self._unknown_ids
        self.rows += self._unknown
        return self.ready

    def take(self, log: PartitionLog, base_offset: int, records: bytes) -> bool:
        """As `read`, but take ``records``, the last in ``log``, instead of reading the only partition from its file."""
        [(_, item, row)] = self.rows
        asked = item.partition
        size = len(records)
        if (
            asked.fetch_offset != base_offset
            or row.error_code
            or not self.min_bytes <= size <= min(asked.partition_max_bytes, self.max_bytes)
            or (log.last_stable_offset if self.is_committed else log.high_watermark) < log.log_end_offset
        ):
            return self.read()
        row.high_watermark = log.high_watermark
        row.last_stable_offset = log.last_stable_offset
        row.log_start_offset = log.log_start_offset
        if self.is_committed:
            row.aborted_transactions = _aborted(log, base_offset, log.log_end_offset)
        row.records = records
        self.size, self.ready = size, True
        return True

    def _error_if_missing(self, item: FetchItem) -> ErrorCode:
        """Return the error for a partition that does not exist or may not be read, or NONE; sets the item's topic name
        from its id.
        """
        topic_id = item.topic_id
        if topic_id != ZERO_UUID or self.version >= FETCH_TOPIC_ID_VERSION:
            by_id = self._cluster.topic_by_id(topic_id)
            if by_id is not None:
                item.topic = by_id.name
            elif not item.topic:
                if self.is_replica and self.may_read is not None:
                    return ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return ErrorCode.UNKNOWN_TOPIC_ID
        if self.may_read is not None and not self.may_read(item.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._cluster.topic(item.topic)
        if topic is None or not 0 <= item.partition.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _read_one(self, item: FetchItem, limit: int, *, minimum_one: bool) -> PartitionData:
        asked = item.partition
        try:
            leader = self._cluster.leader_partition(item.topic, asked.partition)
            if item.topic_id != ZERO_UUID and item.topic_id != leader.log.topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            # Any negative epoch means none here (elsewhere only -1 does).
            epoch = max(-1, asked.current_leader_epoch)
            log = leader.log_at(epoch)
            if self.is_replica:  # nobody replicates this node's partitions
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
                )
            if asked.last_fetched_epoch >= 0:
                diverging = self._diverging(log, asked.last_fetched_epoch, asked.fetch_offset)
                if diverging is not None:
                    return diverging
            return self._read_log(
                log, asked.partition, asked.fetch_offset, min(asked.partition_max_bytes, limit), minimum_one
            )
        except KafkaError as error:
            return self._error_row(item, error.code)

    def _read_log(
        self, log: PartitionLog, partition: int, offset: int, max_bytes: int, minimum_one: bool
    ) -> PartitionData:
        bound = log.last_stable_offset if self.is_committed else log.high_watermark
        read = log.read(offset, max_bytes, minimum_one=minimum_one, up_to=bound)
        try:
            records = _in_memory_if_small(read.records)
        except OSError as error:
            raise log.storage_error(error) from error
        aborted = _aborted(log, offset, read.next_offset) if self.is_committed else None
        return PartitionData(
            partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    @staticmethod
    def _diverging(log: PartitionLog, epoch: int, offset: int) -> PartitionData | None:
        """The row for a reader whose last epoch ended before its offset (Kafka: ``Partition.readRecords``)."""
        end_epoch, end_offset = log.end_offset_for_epoch(epoch)
        if end_epoch < 0 or end_offset < 0 or offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end_epoch >= epoch and end_offset >= offset:
            return None
        return PartitionData(
            log.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            diverging_epoch=EpochEndOffset(end_epoch, end_offset),
            aborted_transactions=None,
            records=EMPTY,
        )

    def _error_row(
        self, item: FetchItem, code: ErrorCode, aborted: list[AbortedTransaction] | None = None
    ) -> PartitionData:
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        row = PartitionData(
            item.partition.partition, code, -1, -1, -1, aborted_transactions=aborted, records=EMPTY
        )
        if self.version >= LEADER_HINT_VERSION and code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            topic = self._cluster.topic(item.topic)
            if topic is not None and item.partition.partition < len(topic.partitions):
                state = topic.partitions[item.partition.partition]
                row.current_leader = LeaderIdAndEpoch(state.leader, state.leader_epoch)
        return row

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs to watch: those that were just read."""
        for _, item, row in self.rows:
            if not row.error_code:
                yield self._cluster.leader_partition(item.topic, item.partition.partition).log

    def release(self) -> None:
        """Drop the rows, which will not be sent, and release their files."""
        for _, _, row in self.rows:
            release = getattr(row.records, "release", None)
            if release is not None:
                release()
        self.rows = []

    def row_for_template(self) -> PartitionData | None:
        """Return the only row, having noted in the session that it is sent. Returns None if a template is not enough:
        there are several rows, or it says more than offsets and records.
        """
        if len(self.rows) != 1:
            return None
        row = self.rows[0][2]
        if (
            type(row.records) is not bytes
            or not row.records
            or row.error_code
            or row.aborted_transactions
            or row.diverging_epoch is not None
        ):
            return None
        if self.context.session is not None:
            try:
                if not self._sessions.update_session(self.context, self.rows)[1]:
                    return None
            except KafkaError:  # `respond` meets it again
                return None
        return row

    def respond(self) -> FetchResponse:
        """Return the response, with the files of its rows; an empty one to a client that has used its quota."""
        if self.throttle_ms is not None:
            rows = self._sessions.rows_with_news(self.context, self.rows)
            if self.throttle_ms(FetchResponse(responses=_by_topic(rows))):
                return self._throttled()
        try:
            session_id, rows = self._sessions.update_session(self.context, self.rows)
        except KafkaError as error:
            return self._refused(error)
        if self.context.session is None and len(rows) == 1:
            _, item, row = rows[0]
            return FetchResponse(0, 0, session_id, [FetchableTopicResponse(item.topic, item.topic_id, [row])])
        return FetchResponse(0, 0, session_id, _by_topic(rows))

    def respond_in_parts(self) -> Steps[FetchResponse]:
        """As `respond`, some partitions at each step."""
        if self.throttle_ms is not None or self.context.session is None:
            return self.respond()
        topics: list[FetchableTopicResponse] = []
        for part in parts_of(self.rows):
            try:
                session_id, rows = self._sessions.update_session(self.context, part)
            except KafkaError as error:
                return self._refused(error)
            for topic in _by_topic(rows):
                if topics and (topics[-1].topic, topics[-1].topic_id) == (topic.topic, topic.topic_id):
                    topics[-1].partitions += topic.partitions
                else:
                    topics.append(topic)
            yield
        return FetchResponse(0, 0, session_id, topics)

    def _refused(self, error: KafkaError) -> FetchResponse:
        self.release()
        session = self.context.session
        return FetchResponse(0, error.code, session.session_id if session is not None else 0)

    def _throttled(self) -> FetchResponse:
        """Return an empty response, which changes nothing in the session (Kafka: ``getThrottledResponse``)."""
        self.release()
        session = self.context.session
        if session is None:
            return FetchResponse()
        code = (
            ErrorCode.NONE if session.epoch == self.context.epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        )
        return FetchResponse(0, code, session.session_id)


def parts_of(items: list[T]) -> Iterator[list[T]]:
    """Yield a list in parts."""
    for at in range(0, len(items), PARTITIONS_A_STEP):
        yield items[at : at + PARTITIONS_A_STEP]


def file_ranges(response: Any) -> list[FileRange]:
    """Return the ranges of files in a response to a Fetch or ShareFetch, each of which has to be released."""
    if getattr(response, "API_KEY", None) not in (
        FETCH_KEY,
        SHARE_FETCH_KEY,
    ):  # an interceptor may give anything
        return []
    rows = [row for topic in response.responses for row in topic.partitions]
    return [row.records for row in rows if isinstance(row.records, FileRange)]


def _aborted(log: PartitionLog, start: int, end: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(entry.producer_id, entry.first_offset)
        for entry in log.aborted_transactions(start, end)
    ]


def _in_memory_if_small(records: FileRange | bytes) -> FileRange | bytes:
    """Return a few records as bytes: to copy them takes one system call, to send them from the file takes three."""
    if isinstance(records, bytes) or records.size > INLINE_BYTES_MAX:
        return records
    try:
        data = records.file.pread_cached(records.size, records.position)
    except OSError:
        records.release()
        raise
    if data is None:
        return records
    records.release()
    return data


def _by_topic(rows: list[Row]) -> list[FetchableTopicResponse]:
    """Rows of one topic that follow each other share an entry, as in Kafka's ``FetchResponse.toMessage``."""
    topics: list[FetchableTopicResponse] = []
    last: tuple[str, bytes] | None = None
    for _, item, row in rows:
        here = (item.topic, item.topic_id)
        if here != last:
            topics.append(FetchableTopicResponse(item.topic, item.topic_id, []))
            last = here
        topics[-1].partitions.append(row)
    return topics
