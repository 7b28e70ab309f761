"""Incremental fetch sessions (KIP-227): the node remembers a consumer's partitions, so that a request names changes
only.

A node has at most ``max.incremental.fetch.session.cache.slots`` sessions. They are volatile: after a restart the client
begins a new one. Source: ``FetchManager``, ``FetchSession``, ``FetchContext``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.primitives import Uuid

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
NO_REPLICA = -1
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS = 120_000
"""For how long larger sessions do not evict a new one, in milliseconds
(``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``).
"""
SESSION_PARTITIONS_MAX = 250_000
"""How many partitions all sessions together may have, at about 350 bytes each. Beyond that no session begins."""

FetchKey = tuple[str | Uuid, int]
"""The topic's id (from version 13 on) or name, and the partition."""


class FetchItem:
    """A partition to read, and what its reader knows from earlier responses."""

    __slots__ = ("high_watermark", "log_start_offset", "partition", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, partition: FetchPartition) -> None:
        self.topic = topic
        """The name; empty for an unknown topic id."""
        self.topic_id = topic_id
        self.partition = partition
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_news(self, row: PartitionData) -> bool:
        """Whether an incremental response has to hold this partition's row."""
        return (
            len_of(row.records) > 0
            or row.error_code != 0
            or row.diverging_epoch is not None
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.preferred_read_replica != NO_REPLICA
        )

    def must_respond(self, row: PartitionData) -> bool:
        """As `has_news`; remembers what the row says then."""
        must = self.has_news(row)
        self.high_watermark = row.high_watermark
        self.log_start_offset = row.log_start_offset
        if row.error_code != 0:
            self.high_watermark = -1
        return must


class FetchSession:
    """The partitions of a consumer. Those with data move to the end, so that all get their turn."""

    __slots__ = ("created_ms", "epoch", "items", "last_used_ms", "session_id", "uses_topic_ids")

    def __init__(
        self, session_id: int, uses_topic_ids: bool, items: dict[FetchKey, FetchItem], now_ms: int
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.items = items
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms


class FetchContext:
    """The partitions of one request.

    ``session`` is set for an incremental request, ``may_create`` for a full one that asks for a session.
    """

    __slots__ = ("epoch", "items", "may_create", "session", "uses_topic_ids")

    def __init__(
        self,
        items: dict[FetchKey, FetchItem],
        uses_topic_ids: bool,
        session: FetchSession | None = None,
        *,
        may_create: bool = False,
    ) -> None:
        self.items = items
        self.uses_topic_ids = uses_topic_ids
        self.session = session
        self.epoch = session.epoch if session is not None else 0
        self.may_create = may_create


class FetchSessions:
    """The sessions of a node."""

    def __init__(self, slots_max: int, clock: Clock, rng: random.Random) -> None:
        self._slots_max = slots_max
        self._clock = clock
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """The sessions by id, in the order of their last use."""
        self.partitions = 0
        """The number of partitions of all sessions."""
        self.partitions_max = SESSION_PARTITIONS_MAX

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, items: dict[FetchKey, FetchItem], *, uses_topic_ids: bool
    ) -> FetchContext:
        """Return the context of a request with the partitions ``items``.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._end(session_id)
            return FetchContext(items, uses_topic_ids, may_create=epoch == INITIAL_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.items)
        self._update(session, items, _forgotten(request, uses_topic_ids))
        self.partitions += len(session.items) - before
        if not session.items:
            self._end(session_id)
            return FetchContext(items, uses_topic_ids)
        if self.partitions > self.partitions_max:
            self._end(session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.last_used_ms = self._clock.now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return FetchContext(session.items, uses_topic_ids, session)

    def items_of(self, session_id: int) -> list[FetchItem]:
        """Return what a session remembers; nothing if there is no such session."""
        session = self._sessions.get(session_id)
        return list(session.items.values()) if session is not None else []

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.items)

    @staticmethod
    def _update(
        session: FetchSession, asked: dict[FetchKey, FetchItem], forgotten: Iterable[FetchKey]
    ) -> None:
        for key, item in asked.items():
            known = session.items.get(key)
            if known is None:
                session.items[key] = item
            else:
                known.partition = item.partition
        for key in forgotten:
            session.items.pop(key, None)

    def update_session(
        self, context: FetchContext, rows: list[tuple[FetchKey, FetchItem, PartitionData]]
    ) -> tuple[int, list[tuple[FetchKey, FetchItem, PartitionData]]]:
        """Note in the session what the response says. Returns the response's session id, and those of ``rows`` that it
        holds.

        Raises KafkaError (INVALID_FETCH_SESSION_EPOCH) if the session had another request while this one waited.
        """
        session = context.session
        if session is None:
            return (self._create(context, rows) if context.may_create else NO_SESSION), rows
        if session.epoch != context.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        response_rows = []
        for key, item, row in rows:
            if session.items.get(key) is item and item.must_respond(row):
                response_rows.append((key, item, row))
                if len_of(row.records) > 0:
                    session.items[key] = session.items.pop(key)
        return session.session_id, response_rows

    @staticmethod
    def rows_with_news(
        context: FetchContext, rows: list[tuple[FetchKey, FetchItem, PartitionData]]
    ) -> list[tuple[FetchKey, FetchItem, PartitionData]]:
        """Return those of ``rows`` that `update_session` would return, without changing the session."""
        session = context.session
        if session is None:
            return rows
        if session.epoch != context.epoch:
            return []
        return [one for one in rows if session.items.get(one[0]) is one[1] and one[1].has_news(one[2])]

    def _create(self, context: FetchContext, rows: list[tuple[FetchKey, FetchItem, PartitionData]]) -> int:
        """Begin a session. Returns its id, or `NO_SESSION` if there is no room for it."""
        if not self._make_room(len(rows)):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31 - 1)
        for _, item, row in rows:
            item.high_watermark = row.high_watermark
            item.log_start_offset = row.log_start_offset
        items = {key: item for key, item, _ in rows}
        self.partitions += len(items)
        self._sessions[session_id] = FetchSession(
            session_id, context.uses_topic_ids, items, self._clock.now_ms()
        )
        return session_id

    def _make_room(self, size: int) -> bool:
        """Evict sessions as Kafka does: the least recently used one if it is old, else the smallest of the old ones
        if it is smaller than ``size``. Returns whether there is room now.
        """
        sessions = self._sessions
        now_ms = self._clock.now_ms()
        while len(sessions) >= self._slots_max or self.partitions + size > self.partitions_max:
            stalest = next(iter(sessions.values()), None)
            if stalest is None:
                return False
            if now_ms - stalest.last_used_ms > MIN_EVICTION_MS:
                self._end(stalest.session_id)
                continue
            old = [s for s in sessions.values() if now_ms - s.created_ms > MIN_EVICTION_MS]
            smallest = min(old, key=lambda s: len(s.items), default=None)
            if smallest is None or len(smallest.items) > size:
                return False
            if self.partitions - len(smallest.items) + size > self.partitions_max:
                return False
            self._end(smallest.session_id)
        return True


def len_of(records: object) -> int:
    """Return the size in bytes of a records field: None, bytes, or a range of a file."""
    if records is None:
        return 0
    size = getattr(records, "size", None)
    return size if isinstance(size, int) else len(records)  # type: ignore[arg-type]


def _forgotten(request: FetchRequest, uses_topic_ids: bool) -> list[FetchKey]:
    return [
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
