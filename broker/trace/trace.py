"""`Trace`: an interceptor that tells of each request and each response in a line.

    2026-11-22T16:20:05.120Z #7 > app 127.0.0.1:50312 Produce v12 231 B: acks=-1 topic_data=[{name=orders ...}]
    2026-11-22T16:20:05.122Z #7 < app 127.0.0.1:50312 Produce v12 64 B 1.9 ms (upstream 1.7 ms): responses=[...]

The number says which response belongs to which request. It stands outermost, so it tells of a request as its client
sent it, and of a response as the client gets it. Secrets are hidden, as in the journal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.control.journal import CLAIM_CHARS_KEPT
from oncelog.broker.control.messages import errors_and_rows
from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.table import GROUP, HANDLERS, TOPIC
from oncelog.broker.refusal.rows import rows_of_request
from oncelog.broker.requests.request import CloseConnection, RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.failed_authentication import FailedAuthentication
from oncelog.broker.trace.rendering import Shown, message_text, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.host.served import Served
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.security.sasl.authenticator import LoginExchange


class Selection(NamedTuple):
    """A filter for requests: one of each kind that is given must match, and may have the wildcards ``*`` and ``?``."""

    clients: tuple[str, ...] = ()
    """Client ids."""
    apis: tuple[str, ...] = ()
    """Kafka's names."""
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def takes(self, client_id: str | None, api: str) -> bool:
        """Whether a client and an API are selected."""
        return _matches(self.clients, [client_id or ""]) and _matches(self.apis, [api])

    def takes_names(self, topics: list[str], groups: list[str]) -> bool:
        """Whether what a request names is selected."""
        return _matches(self.topics, topics) and _matches(self.groups, groups)


EVERYTHING = Selection()


def _matches(patterns: tuple[str, ...], names: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


class _Told:
    """A request that has no response yet."""

    __slots__ = ("began", "errors", "is_selected", "number", "text")

    def __init__(self, number: int, is_selected: bool) -> None:
        self.number = number
        self.is_selected = is_selected
        self.began = real_time.monotonic()
        self.text = ""
        self.errors: tuple[str, ...] = ()


class Trace(Interceptor):
    """``write`` gets each line, without its end. ``place``: what takes the time of a request, such as ``upstream``."""

    only_reads = True

    def __init__(
        self,
        write: Callable[[str], None],
        selection: Selection = EVERYTHING,
        *,
        with_records: bool = False,
        place: str = "handler",
    ) -> None:
        self._write = write
        self._selection = selection
        self._place = place
        self._shown = Shown(self.topic_name, with_records)
        self._number = 0
        self._open: dict[RequestContext, _Told] = {}
        self._now_ms: Callable[[], int] = real_time.now_ms
        self.apis = (
            frozenset(selection.apis) if selection.apis and not _has_wildcard(selection.apis) else None
        )

    def attach(self, source: Served, node_id: int | None = None) -> None:
        """Tell of the requests to a node, or through a proxy. Call it before anything else but the journal is
        installed. ``node_id``: which one of several nodes it is.
        """
        for context in [one for one in self._open if node_id in (None, one.connection.node_id)]:
            del self._open[context]
        self._now_ms = source.host.clock.now_ms
        self.known_topics = source.known_topics
        source.dispatcher.interception.install(self)
        source.host.login_observers.append(self.on_login)

    # -- what passes

    async def on_request(self, context: RequestContext) -> Any:
        self._number += 1
        if not self._selection.takes(context.client_id, context.api_name):
            return
        topics, groups = self._names(context)
        told = self._open[context] = _Told(self._number, self._selection.takes_names(topics, groups))
        if told.is_selected:
            body = "" if context.request is None else self._text(context.request, context.api_version)
            size = f" {len(context.frame) + 4} B" if context.frame is not None else ""
            self._tell(told.number, ">", context, f"{size}: {body}")

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        told = self._open.get(context)
        if told is not None:
            if not told.is_selected:
                # A Fetch in a session names its topics only where something is new.
                told.is_selected = self._selection.takes_names(*self._names_in_response(context, response))
            if told.is_selected:
                told.errors, _ = errors_and_rows(response)
                told.text = self._text(response, context.api_version)
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        told = self._open.pop(context, None)
        if told is None or not told.is_selected:
            return
        times = f" {(real_time.monotonic() - told.began) * 1000:.1f} ms"
        if context.handled_s is not None:
            times += f" ({self._place} {context.handled_s * 1000:.1f} ms)"
        if response is not None:
            size = f" {context.response_bytes} B" if context.response_bytes is not None else ""
            errors = f" {','.join(told.errors)}" if told.errors else ""
            self._tell(told.number, "<", context, f"{size}{times}{errors}: {told.text}")
            return
        outcome = "no response"
        if isinstance(failure, CloseConnection):
            outcome = f"connection closed: {failure}"
        elif failure is not None:
            outcome = "connection lost"
        elif context.api_name != "Produce" or context.request.acks != 0:
            outcome = "response dropped"
        self._tell(told.number, "<", context, f"{times}: {outcome}")

    def on_login(self, connection: BaseConnection, exchange: LoginExchange | FailedAuthentication) -> None:
        """A connection that logs in has sent a request, and gets its response; or it is turned away."""
        if isinstance(exchange, FailedAuthentication):
            if self._selection == EVERYTHING:
                reason = quoted(exchange.reason)
                self._number += 1
                peer = connection.transport.peer
                self._write(f"{self._time()} #{self._number} ! {peer} {exchange.step} failed: {reason}")
            return
        api = Api(HANDLERS[exchange.api_key], is_handled=False)
        self._number += 1
        if not self._selection.takes(exchange.client_id, api.kafka_name) or not self._selection.takes_names(
            [], []
        ):
            return
        context = RequestContext(
            api, exchange.version, exchange.correlation_id, exchange.client_id, connection, exchange.request
        )
        about = f" mechanism={quoted(exchange.mechanism[:CLAIM_CHARS_KEPT])}"
        if exchange.user:
            about += f" user={quoted(exchange.user[:CLAIM_CHARS_KEPT])}"
        self._tell(self._number, ">", context, f"{about}: {self._text(exchange.request, exchange.version)}")
        if exchange.response is None:
            self._tell(self._number, "<", context, f": {'refused' if exchange.is_refused else 'a token'}")
        else:
            errors, _ = errors_and_rows(exchange.response)
            text = self._text(exchange.response, exchange.version)
            self._tell(self._number, "<", context, f"{' ' if errors else ''}{','.join(errors)}: {text}")

    # -- its text

    def _names(self, context: RequestContext) -> tuple[list[str], list[str]]:
        """Return the topics and groups that a request names, if somebody has asked for some."""
        if context.request is None or not (self._selection.topics or self._selection.groups):
            return [], []
        rows = rows_of_request(context.api.row.name, context.request, context.api_version, self.topic_name)
        leaves = list(rows.whole.leaves())
        topics, groups = (
            [str(row.facts[fact]) for row in leaves if row.facts.get(fact)] for fact in (TOPIC, GROUP)
        )
        return topics, groups

    def _names_in_response(self, context: RequestContext, response: Any) -> tuple[list[str], list[str]]:
        if context.api_name != "Fetch":
            return [], []
        return [row.topic or self.topic_name(row.topic_id) or "" for row in response.responses], []

    def _text(self, message: Any, version: int) -> str:
        return message_text(message, version, self._shown)

    def _tell(self, number: int, direction: str, context: RequestContext, rest: str) -> None:
        client, connection = quoted(context.client_id or ""), context.connection
        node = "" if connection.node_id is None else f" node={connection.node_id}"
        api = f"{context.api_name} v{context.api_version}"
        self._write(
            f"{self._time()} #{number} {direction} {client} {connection.transport.peer}{node} {api}{rest}"
        )

    def _time(self) -> str:
        milliseconds = self._now_ms()
        second = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{second}.{milliseconds % 1000:03d}Z"


def _has_wildcard(patterns: tuple[str, ...]) -> bool:
    return any(mark in pattern for pattern in patterns for mark in "*?[")
