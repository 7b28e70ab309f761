"""`Journal`: keeps the latest requests of clients with their responses, and wakes those who wait for one.

It has the outermost interceptor of each node, or of the proxy: it sees a request as the client sent it, and a response
as it left. It keeps the bytes of a request, which the dispatcher copied for it, and decodes them when somebody reads
the request. Log-ins, which no interceptor sees, come by `Host.login_observers`. It hides secrets.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.broker.control.changes import Changes
from oncelog.broker.control.messages import errors_and_rows, hide_secrets, name_topics
from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.requests.request import CloseConnection, RequestContext
from oncelog.broker.security.failed_authentication import FailedAuthentication
from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import FETCH_KEY, PRODUCE_KEY, SHARE_FETCH_KEY, read_request_header
from oncelog.wire.schema import deep_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.control.request_types import FailedLogin, Outcome, Request
    from oncelog.broker.dispatch.interfaces import KnownTopic
    from oncelog.broker.host.served import Served
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.wire.schema import Message, Uuid

BYTES_KEPT: Final = 32 * 1024 * 1024
"""Bytes of all requests in the journal."""
RESPONSE_ROWS_KEPT: Final = 1000
"""Rows of the largest response that is kept; of a larger one the journal keeps the errors."""

CLAIM_CHARS_KEPT: Final = 200
"""Characters that are kept of a user name or mechanism that a client claims before its log-in."""

TOLD_BY_LOGS: Final = frozenset((PRODUCE_KEY, FETCH_KEY))
"""Requests that come by the thousand, and change nothing that a log does not tell its waiters."""


class Entry:
    """One request in the journal."""

    __slots__ = (
        "api",
        "client_id",
        "correlation_id",
        "errors",
        "facts",
        "frame",
        "listener",
        "login",
        "mechanism",
        "node_id",
        "number",
        "outcome",
        "peer",
        "principal",
        "response",
        "timestamp",
        "version",
    )

    def __init__(self, number: int, context: RequestContext, timestamp: int) -> None:
        connection = context.connection
        self.number = number
        self.api = context.api
        self.version = context.api_version
        self.client_id = context.client_id or ""
        self.correlation_id = context.correlation_id
        self.peer = connection.transport.peer
        self.principal = connection.principal
        self.mechanism: str | None = None
        self.listener = connection.listener_name
        self.node_id = connection.node_id
        self.timestamp = timestamp
        self.frame = context.frame if context.request is not None else None
        self.login: Message | None = None
        """The request, if it is one of a log-in; it has no frame then."""
        self.outcome: Outcome = "pending"
        self.errors: tuple[str, ...] = ()
        self.response: Any = None
        self.facts: dict[str, tuple[str, ...]] | None = None
        """The topics, groups and transactional ids that the request names, once somebody has asked."""

    @property
    def size(self) -> int:
        """Bytes of the request."""
        return len(self.frame) if self.frame is not None else 0

    def body(self) -> Any:
        """Return the request, decoded anew; None if its bytes are not there."""
        if self.frame is None:
            return self.login
        header = read_request_header(self.frame, self.api.flexible[self.version])
        return self.api.request.decode(self.frame, self.version, header.header_size)


class Observer(Protocol):
    """Watches requests and log-ins, as the journal does."""

    def attach(self, source: Served, node_id: int | None = None) -> None:
        """Watch the requests to ``source``, whose dispatcher is there; ``node_id``: which of several it is."""


class Journal:
    """Keeps the latest ``kept`` requests of each API; none for 0. It outlives nodes: `attach` it to each."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._entries: dict[int, deque[Entry]] = {}
        """By API key, the newest last."""
        self._bytes: dict[int, int] = {}
        """Bytes of those entries, by API key."""
        self._bytes_left = BYTES_KEPT
        self._number = 0
        self._login_apis: dict[int, Api] = {}
        self._watches: dict[int | None, _Watch] = {}
        """Of the nodes, or the proxy, that run."""
        self._names: dict[Uuid, str] = {}
        """The names of topics that were deleted, or existed when the last node ended."""
        self.changes = Changes()
        """Noted when a request (except `TOLD_BY_LOGS`) comes and when it is done, when a connection ends, when topics
        change, when a node is loaded or ends, and after each operation."""
        self.failed_logins: deque[FailedLogin] = deque(maxlen=kept)
        """The latest peers that were turned away, the newest last."""
        self.listeners: dict[RequestListener, None] = {}
        """Told of each request that is done."""

    # -- the node behind it

    def attach(self, source: Served, node_id: int | None = None) -> None:
        """Journal the requests to ``source``, whose dispatcher is there. Call it before anything else is installed.
        ``node_id``: which one of several nodes it is.
        """
        watch = self._watches[node_id] = _Watch(self, source)
        source.watch_metadata(self._on_metadata)
        source.host.disconnect_observers.append(self.changes.note)
        if self._kept:
            source.dispatcher.interception.install(watch)
            source.host.login_observers.append(watch.on_login)
        self.changes.note()

    def detach(self, node_id: int | None = None) -> None:
        """The node has ended."""
        watch = self._watches.pop(node_id, None)
        if watch is not None:
            watch.lose_open()
            topics = watch.source.known_topics.topics_by_id.values()
            self._names.update({row.topic_id: row.name for row in topics})
        self.changes.note()

    def clear(self) -> None:
        """Forget all requests. The numbers go on."""
        self._entries.clear()
        self._bytes.clear()
        self._bytes_left = BYTES_KEPT
        self._names.clear()
        self.failed_logins.clear()

    def _on_metadata(self, deleted: KnownTopic | None) -> None:
        if deleted is not None:
            self._names[deleted.topic_id] = deleted.name
        self.changes.note()

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic, also of one that was deleted; None for an unknown id."""
        for watch in self._watches.values():
            topic = watch.source.known_topics.topics_by_id.get(topic_id)
            if topic is not None:
                return topic.name
        return self._names.get(topic_id)

    # -- what passes

    def begin(self, context: RequestContext, now_ms: int) -> Entry:
        """Keep a request that has come."""
        self._number += 1
        entry = Entry(self._number, context, now_ms)
        self._keep(entry)
        # Whom it wakes runs after the handler: a JoinGroup changes its group long before its response.
        if context.api.row.api_key not in TOLD_BY_LOGS:
            self.changes.note()
        return entry

    def add_login(self, connection: BaseConnection, exchange: LoginExchange, now_ms: int) -> None:
        """Keep a request of a log-in, with its response."""
        api = self._login_apis.get(exchange.api_key)
        if api is None:
            api = self._login_apis[exchange.api_key] = Api(HANDLERS[exchange.api_key])
        context = RequestContext(
            api, exchange.version, exchange.correlation_id, exchange.client_id, connection, exchange.request
        )
        self._number += 1
        entry = Entry(self._number, context, now_ms)
        entry.mechanism = exchange.mechanism[:CLAIM_CHARS_KEPT]
        if exchange.user:
            entry.principal = f"User:{exchange.user[:CLAIM_CHARS_KEPT]}"
        entry.login, entry.response = exchange.request, exchange.response
        hide_secrets(entry.login)
        if entry.response is None:
            entry.outcome = "closed" if exchange.is_refused else "responded"
            entry.errors = (ErrorCode.SASL_AUTHENTICATION_FAILED.name,) if exchange.is_refused else ()
        else:
            entry.outcome = "responded"
            hide_secrets(entry.response)
            entry.errors, _ = errors_and_rows(entry.response)
        self._keep(entry)
        self._tell(entry)

    def add_failed_login(self, connection: BaseConnection, failed: FailedAuthentication, now_ms: int) -> None:
        """Keep that a peer was turned away."""
        from oncelog.broker.control.request_types import FailedLogin

        self._number += 1
        self.failed_logins.append(
            FailedLogin(
                number=self._number,
                step="TLS" if failed.step == "TLS" else "SASL",
                reason=failed.reason,
                peer=connection.transport.peer,
                listener=connection.listener_name,
                timestamp=now_ms,
                node=connection.node_id,
                principal=f"User:{failed.user[:CLAIM_CHARS_KEPT]}" if failed.user else None,
                mechanism=failed.mechanism[:CLAIM_CHARS_KEPT] or None,
            )
        )
        self.changes.note()

    def _keep(self, entry: Entry) -> None:
        key = entry.api.row.api_key
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = deque()
            self._bytes[key] = 0
        if len(entries) >= self._kept:
            self._drop_oldest(key)
        entries.append(entry)
        size = entry.size
        self._bytes[key] += size
        self._bytes_left -= size
        while self._bytes_left < 0 and len(entries) > 1:
            self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))

    def _drop_oldest(self, key: int) -> None:
        size = self._entries[key].popleft().size
        self._bytes[key] -= size
        self._bytes_left += size

    def end(
        self, entry: Entry, context: RequestContext, response: Any, failure: BaseException | None
    ) -> None:
        """The request is done: see `Interceptor.on_done`."""
        if response is not None:
            entry.outcome = "responded"
            if context.api.row.api_key in (FETCH_KEY, SHARE_FETCH_KEY):
                entry.facts = None
                _drop_records(response)
            entry.errors, rows = errors_and_rows(response)
            if rows <= RESPONSE_ROWS_KEPT:
                entry.response = response
        elif failure is not None:
            entry.outcome = "closed" if isinstance(failure, CloseConnection) else "lost"
        elif context.api.row.api_key == PRODUCE_KEY and context.request.acks == 0:
            entry.outcome = "no response"
        else:
            entry.outcome = "dropped"
        self._tell(entry)

    def _tell(self, entry: Entry) -> None:
        """The request is done."""
        for listener in tuple(self.listeners):
            listener.on_entry(entry)
        if entry.api.row.api_key not in TOLD_BY_LOGS:
            self.changes.note()

    # -- what it knows

    def entries(self, api_key: int | None = None) -> Iterator[Entry]:
        """Yield the requests of an API, or all, the oldest first."""
        if api_key is not None:
            yield from self._entries.get(api_key, ())
            return
        yield from sorted((one for row in self._entries.values() for one in row), key=lambda one: one.number)

    @property
    def is_kept(self) -> bool:
        """Whether requests are kept."""
        return self._kept > 0

    @property
    def last_number(self) -> int:
        """The number of the latest request; 0 before the first."""
        return self._number

    def facts(self, entry: Entry) -> dict[str, tuple[str, ...]]:
        """Return the topics, groups and transactional ids that a request names."""
        from oncelog.broker.handlers.table import GROUP, TOPIC, TRANSACTIONAL_ID
        from oncelog.broker.refusal.rows import rows_of_request

        if entry.facts is None:
            facts: dict[str, dict[str, None]] = {TOPIC: {}, GROUP: {}, TRANSACTIONAL_ID: {}}
            body = entry.body()
            if body is not None:
                rows = rows_of_request(entry.api.row.name, body, entry.version, self.topic_name)
                for row in rows.whole.leaves():
                    for fact, names in facts.items():
                        if isinstance(name := row.facts.get(fact), str):
                            names[name] = None
            if entry.api.row.api_key == FETCH_KEY and entry.response is not None:
                for topic in entry.response.responses:
                    if name := topic.topic or self.topic_name(topic.topic_id):
                        facts[TOPIC][name] = None
            entry.facts = {fact: tuple(names) for fact, names in facts.items()}
        return entry.facts

    def request(self, entry: Entry) -> Request:
        """Return the request as users see it: with decoded messages that nobody else has."""
        from oncelog.broker.control.request_types import Request
        from oncelog.broker.handlers.table import GROUP, TOPIC, TRANSACTIONAL_ID

        facts = self.facts(entry)
        body = entry.body()
        if body is not None:
            name_topics(body, self.topic_name)
            hide_secrets(body)
        response = deep_copy(entry.response, bytes)
        if response is not None:
            name_topics(response, self.topic_name)
            hide_secrets(response)
        return Request(
            number=entry.number,
            api=api_name(entry.api.row.name),
            version=entry.version,
            client_id=entry.client_id,
            peer=entry.peer,
            listener=entry.listener,
            correlation_id=entry.correlation_id,
            timestamp=entry.timestamp,
            topics=facts[TOPIC],
            groups=facts[GROUP],
            transactional_ids=facts[TRANSACTIONAL_ID],
            outcome=entry.outcome,
            errors=entry.errors,
            body=deep_copy(body, bytes),
            response=response,
            principal=entry.principal,
            mechanism=entry.mechanism,
            node=entry.node_id,
        )


class _Watch(Interceptor):
    """What a journal sees of one node, or of a proxy."""

    only_reads = True

    def __init__(self, journal: Journal, source: Served) -> None:
        self.source = source
        self._journal = journal
        self._clock = source.host.clock
        self._open: dict[RequestContext, Entry] = {}
        """The requests that are not done."""

    def lose_open(self) -> None:
        """The node has ended."""
        for entry in self._open.values():
            entry.outcome = "lost"
        self._open.clear()

    async def on_request(self, context: RequestContext) -> Any:
        self._open[context] = self._journal.begin(context, self._clock.now_ms())

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        entry = self._open.pop(context, None)
        if entry is not None:
            self._journal.end(entry, context, response, failure)

    def on_login(self, connection: BaseConnection, exchange: LoginExchange | FailedAuthentication) -> None:
        """A connection that logs in has sent a request, and gets its response; or it is turned away."""
        if isinstance(exchange, FailedAuthentication):
            self._journal.add_failed_login(connection, exchange, self._clock.now_ms())
        else:
            self._journal.add_login(connection, exchange, self._clock.now_ms())


class RequestListener:
    """Observes each request once it is done."""

    def on_entry(self, entry: Entry) -> None:
        """``entry`` is done. Must not raise."""


def _drop_records(response: Any) -> None:
    """Take the records out of a Fetch response, which was encoded: they may be ranges of files that are released."""
    for topic in response.responses:
        for row in topic.partitions:
            row.records = None
