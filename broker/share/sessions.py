"""Share sessions (KIP-932): the node remembers a member's partitions, so that a request names changes only.

A node has at most ``group.share.max.share.sessions`` sessions. They are volatile, and end with the member's connection.
Source: ``ShareSessionCache``, ``ShareSession``, ``SharePartitionManager.newContext``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.wire.schema import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
SESSION_PARTITIONS_MAX = 250_000
"""How many partitions all sessions together may have, at about 300 bytes each. Beyond that no session begins or
grows."""

PartitionKey = tuple["Uuid", int]
"""A topic's id, and a partition."""
SessionKey = tuple[str, str]
"""A group and a member."""


class SessionPartition:
    """A partition of a session."""

    __slots__ = ("must_respond", "topic")

    def __init__(self, topic: str | None, *, must_respond: bool) -> None:
        self.topic = topic
        """The name; None for an unknown topic id."""
        self.must_respond = must_respond
        """Whether the next response has a row for it, whatever the row says."""


class ShareSession:
    """The partitions of a member. ShareFetch moves those with records to the end, so that all get their turn."""

    __slots__ = ("connection", "epoch", "partitions")

    def __init__(self, partitions: dict[PartitionKey, SessionPartition], connection: object) -> None:
        self.partitions = partitions
        self.connection = connection
        self.epoch = 1


class ShareFetchContext(NamedTuple):
    """The partitions of one ShareFetch. ``session`` is set for an incremental one."""

    epoch: int
    partitions: dict[PartitionKey, str | None]
    """The name of each topic, None for an unknown one."""
    session: ShareSession | None = None

    def is_current(self) -> bool:
        """Whether the session had no other request while this one waited."""
        return self.session is None or self.session.epoch == next_epoch(self.epoch)


class ShareSessions:
    """The sessions of a node."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._per_group: dict[str, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        key: SessionKey,
        epoch: int,
        asked: dict[PartitionKey, str | None],
        forgotten: Iterable[PartitionKey],
        connection: object,
        *,
        has_acknowledgements: bool,
    ) -> ShareFetchContext:
        """Return the context of a ShareFetch.

        Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, and
        INVALID_REQUEST for acknowledgements before the session has begun.
        """
        if epoch == FINAL_EPOCH:
            self._find(key)
            return ShareFetchContext(epoch, {})
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self.end(key)
            if (
                len(self._sessions) >= self._sessions_max
                or self._partitions + len(asked) > SESSION_PARTITIONS_MAX
            ):
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            partitions = {one: SessionPartition(name, must_respond=False) for one, name in asked.items()}
            self._sessions[key] = ShareSession(partitions, connection)
            self._partitions += len(partitions)
            self._per_group[key[0]] = self._per_group.get(key[0], 0) + 1
            return ShareFetchContext(epoch, asked)
        session = self._find(key, epoch)
        known = session.partitions
        before = len(known)
        for one, name in asked.items():
            if one not in known:
                known[one] = SessionPartition(name, must_respond=True)
        for one in forgotten:
            known.pop(one, None)
        self._partitions += len(known) - before
        if self._partitions > SESSION_PARTITIONS_MAX:
            self.end(key)
            # The client begins a new session, which is told of the limit.
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        session.epoch = next_epoch(epoch)
        return ShareFetchContext(epoch, {one: it.topic for one, it in known.items()}, session)

    def check_epoch(self, key: SessionKey, epoch: int) -> None:
        """Check the session epoch of a ShareAcknowledge, and raise it. Raises KafkaError: SHARE_SESSION_NOT_FOUND,
        INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            self._find(key)
        else:
            self._find(key, epoch).epoch = next_epoch(epoch)

    def _find(self, key: SessionKey, epoch: int | None = None) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch is not None and session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def end(self, key: SessionKey) -> ShareSession | None:
        """End a session and return it; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            left = self._per_group[key[0]] - 1
            if left:
                self._per_group[key[0]] = left
            else:
                del self._per_group[key[0]]
        return session

    def partitions_of(self, key: SessionKey) -> list[PartitionKey]:
        """Return the partitions of a session; none if there is no such session."""
        session = self._sessions.get(key)
        return list(session.partitions) if session is not None else []

    def of_connection(self, connection: object) -> list[SessionKey]:
        """Return the sessions that began on a connection."""
        return [key for key, session in self._sessions.items() if session.connection is connection]

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._per_group

    def clear(self) -> None:
        """End all sessions."""
        self._sessions.clear()
        self._per_group.clear()
        self._partitions = 0


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request (``ShareRequestMetadata.nextEpoch``)."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1
