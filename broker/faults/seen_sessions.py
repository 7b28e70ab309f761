"""`SeenSessions`: what the fetch sessions of an upstream cluster remember, as far as a proxy has seen them begin."""

from __future__ import annotations

from typing import Any

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchItem, FetchKey
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import ZERO_UUID, deep_copy

SESSIONS_MAX = 1_000
"""How many sessions are remembered, as ``max.incremental.fetch.session.cache.slots`` has it by default. The oldest is
forgotten first: its client begins another one."""


class SeenSessions(Interceptor):
    """Installed while rules look at Fetches, behind them.

    A session that began before the installation is not known: `items_of` refuses it like a broker that has evicted it,
    and the client sends all its partitions again.
    """

    apis = frozenset(("Fetch",))
    only_reads = True

    def __init__(self) -> None:
        self._sessions: dict[int, dict[FetchKey, FetchItem]] = {}

    def items_of(self, session_id: int) -> list[FetchItem]:
        """Return the partitions of a session. Raises KafkaError (FETCH_SESSION_ID_NOT_FOUND) for an unknown one."""
        items = self._sessions.get(session_id)
        if items is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session_id} is not known")
        return list(items.values())

    def clear(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """If the broker has accepted the session epoch, change the session here as the broker did."""
        request = context.request
        if response.error_code or request is None:
            return response
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            items: dict[FetchKey, FetchItem] | None = {} if response.session_id != NO_SESSION else None
        else:
            items = self._sessions.pop(request.session_id, None)
        if items is not None:
            _update(items, request)
            self._sessions[response.session_id] = items  # the latest stands last
            if len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
        return response


def _update(items: dict[FetchKey, FetchItem], request: Any) -> None:
    for topic in request.topics:
        name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
        for partition in topic.partitions:
            item = FetchItem(topic.topic, topic.topic_id, deep_copy(partition, bytes))
            items[name, partition.partition] = item
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
        for index in topic.partitions:
            items.pop((name, index), None)
