"""`FollowerSessions`: the fetches of followers, as the leader answers them.

A follower has one session with each of its leaders (KIP-227), so a request names the partitions that have changed for
the follower, and a response those that have something new. The session watches the logs of all its partitions: a round
costs as much as there is to say, however many partitions are idle.

A partition of a session is in one of these states. `CachedPartition.notify` and the next request move it.

=========  ===========================================  ========================  =====================
state      what it means                                in the next response      ends the wait
=========  ===========================================  ========================  =====================
idle       the follower has all, and knows the          no                        no
           watermark
due        the watermark has moved                      yes                       no, as in Kafka
due        there are records, the log start has moved,  yes                       yes
           the logs diverge, or there is an error
unsettled  this node's metadata do not know what the    its error, when the time  no
           follower's know: the topic, or the epoch     is over
=========  ===========================================  ========================  =====================

A fetch says that the follower has all below its offset, and may move the watermark (`ReplicatedPartition.note_fetch`).
Source: Kafka's ``ReplicaManager.fetchMessages``, ``Partition.fetchRecords``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from oncelog.broker.log.results import FileRange
from oncelog.broker.replication.replicated_partition import ReplicatedPartition
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from random import Random

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.replication.throttle import ReplicationThrottle
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.fetch import FetchPartition, FetchRequest
    from oncelog.wire.schema import Uuid

    SessionKey = tuple[Uuid, int]

FULL_EPOCHS = (0, -1)
"""The session epochs of a request that names all its partitions; with -1 no session follows."""
FINAL_EPOCH = -1
UNSETTLED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
)
"""Errors that a node's metadata may be about to end: the follower's are newer."""


class CachedPartition:
    """A partition in the session of a follower, and what the follower asked for last."""

    __slots__ = (
        "_was_idle",
        "asked",
        "code",
        "diverging",
        "leader",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic_id",
    )

    def __init__(self, session: FollowerSession, topic_id: Uuid, asked: FetchPartition) -> None:
        self.session = session
        self.topic_id = topic_id
        self.asked = asked
        self.leader: ReplicatedPartition | None = None
        """The partition whose log it watches."""
        self.code = ErrorCode.NONE
        self.diverging: EpochEndOffset | None = None
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self._was_idle = False

    def watch(self, leader: ReplicatedPartition) -> None:
        """Be told of changes of the leader's log from now on."""
        if self.leader is not leader:
            self.unwatch()
            self.leader = leader
            # Waiters are told when the watermark has moved, end waiters when records were appended or flushed.
            leader.log.waiters.add(self)
            leader.log.add_end_waiter(self)

    def unwatch(self) -> None:
        if self.leader is not None:
            self.leader.log.waiters.discard(self)
            self.leader.log.discard_end_waiter(self)
            self.leader = None

    def notify(self, log: PartitionLog) -> None:
        """The log or its leader has changed (`LogWaiter`)."""
        leader, session = self.leader, self.session
        has_more = log.log_end_offset > self.asked.fetch_offset
        if has_more and self._was_idle and leader is not None:
            self._was_idle = False
            follower = leader.followers.get(session.node_id)
            if follower is not None:
                follower.note_idle(session.requested_s)
        session.due[self] = None
        if (
            has_more
            or log.log_start_offset != self.sent_log_start
            or log.log_end_offset < self.asked.fetch_offset
            or log.offline
            or log.deleted
            or leader is None
            or not leader.is_current
        ):
            session.event.set()

    def note_state(self) -> None:
        """The follower has just asked: find out whether there is anything for it."""
        assert self.leader is not None
        log = self.leader.log
        self._was_idle = log.log_end_offset == self.asked.fetch_offset
        if not self._was_idle or log.log_start_offset != self.sent_log_start:
            self.session.due[self] = None
            self.session.event.set()
        elif log.high_watermark != self.sent_high_watermark:
            self.session.due[self] = None


class FollowerSession:
    """The partitions that one follower fetches."""

    __slots__ = (
        "broker_epoch",
        "due",
        "epoch",
        "event",
        "is_closed",
        "node_id",
        "partitions",
        "requested_s",
        "session_id",
        "unsettled",
    )

    def __init__(self, node_id: int, session_id: int) -> None:
        self.node_id = node_id
        self.session_id = session_id
        self.broker_epoch = -1
        """The epoch of the follower's registration, as its last request names it."""
        self.epoch = 1
        """Of the next request."""
        self.partitions: dict[SessionKey, CachedPartition] = {}
        self.due: dict[CachedPartition, None] = {}
        """In the order in which they became due, so that all get their turn."""
        self.unsettled: dict[CachedPartition, None] = {}
        self.event = trio.Event()
        """Set when the follower needs a response."""
        self.requested_s = -math.inf
        """When its last request came."""
        self.is_closed = False

    def remove(self, key: SessionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.unwatch()
            self.due.pop(partition, None)
            self.unsettled.pop(partition, None)

    def close(self) -> None:
        """The follower has begun another one; the request that waits, if any, ends."""
        for key in list(self.partitions):
            self.remove(key)
        self.is_closed = True
        self.event.set()


class FollowerFetch:
    """A follower's request that waits until something urgent is due (`WaitingFetch`)."""

    __slots__ = ("_request", "_session", "_sessions")

    def __init__(self, sessions: FollowerSessions, session: FollowerSession, request: FetchRequest) -> None:
        self._sessions = sessions
        self._session = session
        self._request = request

    @property
    def event(self) -> trio.Event:
        """See `WaitingFetch`."""
        return self._session.event

    @property
    def timeout_s(self) -> float:
        """See `WaitingFetch`."""
        return self._request.max_wait_ms / 1000

    def respond(self, *, is_over: bool) -> FetchResponse | None:
        """See `WaitingFetch`."""
        session = self._session
        if session.is_closed:
            return FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        if is_over or self._sessions.has_urgent(session):
            return self._sessions.respond(session, self._request)
        session.event = trio.Event()
        return None

    async def wait(self) -> FetchResponse:
        """Wait for the response, and return it."""
        with real_time.move_on_after(self.timeout_s):
            while True:
                await self.event.wait()
                response = self.respond(is_over=False)
                if response is not None:
                    return response
        response = self.respond(is_over=True)
        assert response is not None
        return response


class FollowerSessions:
    """The sessions of all followers of one node's partitions."""

    def __init__(self, cluster: Cluster, clock: Clock, random: Random, throttle: ReplicationThrottle) -> None:
        self._cluster = cluster
        self._throttle = throttle
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FollowerSession] = {}

    def on_change(self) -> None:
        """The metadata have changed: look at what was unsettled again."""
        for session in self._sessions.values():
            unsettled, session.unsettled = session.unsettled, {}
            for partition in unsettled:
                self._begin(session, partition)

    def forget(self, node_id: int) -> None:
        """The node has registered anew, or is gone: its session is over."""
        session = self._sessions.pop(node_id, None)
        if session is not None:
            session.close()

    def credit(self, node_ids: set[int], jump_s: float) -> None:
        """Time was moved ahead by ``jump_s``, while these nodes fetched."""
        for node_id in node_ids & self._sessions.keys():
            self._sessions[node_id].requested_s += jump_s

    def answer(self, request: FetchRequest) -> FetchResponse | FollowerFetch:
        """See `AnswerFetch`."""
        follower = request.replica_state
        assert follower is not None
        return self.fetch(request, follower.replica_id, follower.replica_epoch)

    def fetch(self, request: FetchRequest, node_id: int, broker_epoch: int) -> FetchResponse | FollowerFetch:
        """Return the response to a follower's fetch, or one that waits until there is something to say."""
        is_full = request.session_epoch in FULL_EPOCHS
        session = self._open(request, node_id)
        if isinstance(session, ErrorCode):
            return FetchResponse(0, session, 0)
        session.requested_s = self._clock.monotonic()
        session.broker_epoch = broker_epoch
        self._ask(session, request)
        fetch = FollowerFetch(self, session, request)
        # A full request is answered at once if anything is due, even if only a watermark has moved.
        return fetch.respond(is_over=is_full and bool(session.due)) or fetch

    def has_urgent(self, session: FollowerSession) -> bool:
        """Whether anything that is due ends the wait of a session's request."""
        return any(map(self._is_urgent, session.due))

    def respond(self, session: FollowerSession, request: FetchRequest) -> FetchResponse:
        """Return what is due, as the response to a session's request."""
        session.due.update(session.unsettled)
        session.unsettled.clear()
        topics = self._read(session, request.max_bytes)
        if request.session_epoch == FINAL_EPOCH:
            self.forget(session.node_id)
        return FetchResponse(0, 0, session.session_id, topics)

    def _open(self, request: FetchRequest, node_id: int) -> FollowerSession | ErrorCode:
        """Return the session of a request, or why there is none."""
        if request.session_epoch in FULL_EPOCHS:
            self.forget(node_id)
            session_id = 0 if request.session_epoch == FINAL_EPOCH else self._random.randrange(1, 2**31 - 1)
            session = self._sessions[node_id] = FollowerSession(node_id, session_id)
            return session
        found = self._sessions.get(node_id)
        if found is None or found.session_id != request.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if found.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        found.epoch = 1 if found.epoch == 2**31 - 1 else found.epoch + 1
        return found

    def _ask(self, session: FollowerSession, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                session.remove((forgotten.topic_id, number))
        for topic in request.topics:
            for asked in topic.partitions:
                key = topic.topic_id, asked.partition
                partition = session.partitions.get(key)
                if partition is None:
                    partition = session.partitions[key] = CachedPartition(session, topic.topic_id, asked)
                else:
                    partition.asked = asked
                    session.due.pop(partition, None)
                    session.unsettled.pop(partition, None)
                self._begin(session, partition)

    def _begin(self, session: FollowerSession, partition: CachedPartition) -> None:
        """Check what a follower asks for, and note how far it is."""
        asked = partition.asked
        partition.code, partition.diverging = ErrorCode.NONE, None
        try:
            leader = self._find(session, partition)
            log = leader.log
            partition.diverging = _diverging(log, asked)
            if partition.diverging is None:
                if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
                leader.note_fetch(
                    session.node_id, asked.fetch_offset, asked.log_start_offset, session.broker_epoch
                )
        except KafkaError as error:
            partition.unwatch()
            partition.code = error.code
            if error.code in UNSETTLED:
                session.unsettled[partition] = None
            else:
                session.due[partition] = None
                session.event.set()
            return
        if partition.diverging is not None:
            partition.unwatch()
            session.due[partition] = None
            session.event.set()
        else:
            partition.watch(leader)
            partition.note_state()

    def _find(self, session: FollowerSession, partition: CachedPartition) -> ReplicatedPartition:
        """Return the partition, which this node leads and the follower may fetch. Raises KafkaError."""
        asked = partition.asked
        topic = self._cluster.topic_by_id(partition.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        epoch = max(-1, asked.current_leader_epoch)
        log = self._cluster.log(topic.name, asked.partition, epoch)
        if log.topic_id != partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        leader = self._cluster.leader_partition(topic.name, asked.partition)
        leader.check_follower(session.node_id, epoch)
        assert isinstance(leader, ReplicatedPartition), leader
        return leader

    def _read(self, session: FollowerSession, max_bytes: int) -> list[FetchableTopicResponse]:
        """Return the rows of what is due, with up to ``max_bytes`` of records, and more if the first batch is
        larger.
        """
        topics: dict[Uuid, FetchableTopicResponse] = {}
        size = 0
        due, session.due = session.due, {}
        for partition in due:
            if self._is_throttled(partition):
                session.due[partition] = None
                continue
            row = self._row(session, partition, max(0, max_bytes - size), minimum_one=not size)
            size += len(row.records or b"")  # type: ignore[arg-type]
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = FetchableTopicResponse("", partition.topic_id)
            topic.partitions.append(row)
        return list(topics.values())

    def _is_urgent(self, partition: CachedPartition) -> bool:
        """Whether what is due ends the wait: anything but a watermark that has moved."""
        leader = partition.leader
        if leader is None or not leader.is_current:
            return True
        log = leader.log
        if log.offline or log.deleted:
            return True
        return not self._is_throttled(partition) and (
            log.log_end_offset != partition.asked.fetch_offset
            or log.log_start_offset != partition.sent_log_start
        )

    def _is_throttled(self, partition: CachedPartition) -> bool:
        """Whether the follower gets no records of a partition for now. The next request asks again."""
        leader = partition.leader
        return (
            leader is not None
            and partition.session.node_id not in leader.isr.committed
            and self._throttle.applies_to(leader.log)
            and self._throttle.delay_s() > 0
        )

    def _row(
        self, session: FollowerSession, partition: CachedPartition, limit: int, *, minimum_one: bool
    ) -> PartitionData:
        asked = partition.asked
        leader = partition.leader
        try:
            if partition.code:
                raise KafkaError(partition.code)
            if leader is None or not leader.is_current:
                leader = self._find(session, partition)
            log = leader.log
            records = b""
            diverging = partition.diverging or _diverging(log, asked)
            if diverging is None:
                up_to = log.log_end_offset
                read = log.read(
                    asked.fetch_offset,
                    min(limit, asked.partition_max_bytes),
                    minimum_one=minimum_one,
                    up_to=up_to,
                )
                records = _bytes_of(log, read.records)
                if records and self._throttle.applies_to(log):
                    self._throttle.record(len(records))
                if not records and up_to > asked.fetch_offset:  # the response is full
                    session.due[partition] = None
        except KafkaError as error:
            return PartitionData(asked.partition, error.code, -1, -1, -1, records=b"")
        if diverging is None:  # otherwise the follower cuts its log, and takes nothing else
            partition.sent_high_watermark = log.high_watermark
            partition.sent_log_start = log.log_start_offset
        return PartitionData(
            asked.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=None,
            records=records,
        )


def _diverging(log: PartitionLog, asked: FetchPartition) -> EpochEndOffset | None:
    """Return where the leader's log parts from the follower's, if it ends an epoch before the follower's does
    (KIP-595).

    Raises KafkaError (OFFSET_OUT_OF_RANGE) if the follower's epoch is not known here.
    """
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or asked.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
        return None
    return EpochEndOffset(epoch, end_offset)


def _bytes_of(log: PartitionLog, records: FileRange | bytes) -> bytes:
    if isinstance(records, bytes):
        return records
    try:
        return records.read()
    except OSError as error:
        raise log.storage_error(error) from error
    finally:
        records.release()
