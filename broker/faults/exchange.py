"""One request for which rules are due, from its arrival to its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.broker.dispatch.interfaces import RequestPath
from oncelog.broker.faults.active_rule import ActiveRule
from oncelog.broker.faults.fetched import damage_crc, records_of, truncate
from oncelog.broker.faults.rule import RECORD_ACTIONS
from oncelog.broker.faults.words import CLOSE
from oncelog.broker.fetch.fetch import file_ranges
from oncelog.broker.handlers.table import GROUP, PARTITION, TOPIC, api_name
from oncelog.broker.refusal.row_refusal import Refusal, copy_of
from oncelog.broker.refusal.rows import RequestRows, Row
from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection, RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import KafkaError
from oncelog.wire.schema import Uuid


class Exchange:
    """``rows_of`` gives the rows of a request, ``due`` are the rules that act on this one, in their order."""

    def __init__(
        self,
        dispatcher: RequestPath,
        context: RequestContext,
        due: list[ActiveRule],
        rows_of: Callable[[RequestContext], RequestRows],
        topic_name: Callable[[Uuid], str | None],
    ) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._due = due
        self._rows_of = rows_of
        self._topic_name = topic_name
        self._request = context.request
        for active in due:
            active.node_id = context.connection.node_id

    async def run(self) -> Any:
        """Do what the rules say. Returns None if the request goes on to its handler, else the response or
        `NO_RESPONSE`.

        Raises CloseConnection and ConnectionLost where it gets none.
        """
        for active in self._due:
            if not active.is_removed:
                await self._before(active)
        for active in self._of("duplicate"):
            active.fire()
            await self._handle(copy_of(self._request))
        refusals = self._of("error")
        changes = self._of("throttle_ms", "drop_response", *RECORD_ACTIONS)
        if is_without_response(self._context):
            # throttle_ms only: `FaultRules.on_request` leaves drop_response out, and a Produce fetches no records.
            for active in changes:
                self._throttle(active, None)
            if not refusals:
                return None
            response = await self._respond(refusals)
            return NO_RESPONSE if response is None else response
        if not refusals and not changes:
            return None
        response = await self._respond(refusals)
        changes = [active for active in changes if not active.is_removed]
        dropping = next((active for active in changes if active.rule.action == "drop_response"), None)
        if dropping is not None:
            release_files(response)
            await self._drop(dropping, dropping.rule.value)
        try:
            for active in changes:
                self._change(active, response)
        except OSError as error:
            release_files(response)
            raise CloseConnection(f"a log file cannot be read: {error}") from error
        return response

    def _of(self, *actions: str) -> list[ActiveRule]:
        return [active for active in self._due if active.rule.action in actions and not active.is_removed]

    async def _before(self, active: ActiveRule) -> None:
        """Perform the actions that come before the handler."""
        rule = active.rule
        match rule.action:
            case "delay_ms":
                active.fire()
                await real_time.sleep(rule.value / 1000)
            case "hold" | "pause":
                connection = self._context.connection
                connection.is_cut_off = True
                try:
                    await active.hold()
                finally:
                    connection.is_cut_off = False
            case "drop_request":
                await self._drop(active, rule.value)
            case "close":
                await self._drop(active, CLOSE)

    async def _drop(self, active: ActiveRule, ending: str) -> None:
        active.fire()
        if ending == CLOSE:
            raise CloseConnection(f"fault {active}")
        await self._context.connection.be_silent()

    async def _handle(self, request: Any) -> Any:
        context = self._context
        context.request = request
        try:
            response = await self._dispatcher.handle_behind_interceptors(context)
            return None if response is NO_RESPONSE else response
        finally:
            context.request = self._request

    async def _respond(self, refusals: list[ActiveRule]) -> Any:
        """Refuse what the rules refuse of the context's request, the first rule first; handle the rest."""
        context = self._context
        request = context.request
        if not refusals:
            return await self._handle(request)
        active = refusals[0]
        rows = self._rows_of(context)
        if not active.matches_any_row(rows):  # what it is about was refused already
            return await self._respond(refusals[1:])
        refusal = Refusal(context.api, context.api_version, rows, active, KafkaError(active.rule.value))
        handled = None
        if not refusal.leaves_nothing:
            context.request = refusal.remaining()
            try:
                handled = await self._respond(refusals[1:])
            finally:
                context.request = request
        files = file_ranges(handled)
        response = refusal.response(handled)
        sent = file_ranges(response)
        for file_range in files:
            if file_range not in sent:
                file_range.release()
        if refusal.is_placed or refusal.leaves_nothing:
            active.fire()
        if not refusal.is_placed:
            name = f"{api_name(context.api.row.name)} version {context.api_version}"
            active.note(f"a response of {name} had no place for the error")
        return response

    def _change(self, active: ActiveRule, response: Any) -> None:
        """Change the response. Raises OSError where its records cannot be read."""
        rule = active.rule
        match rule.action:
            case "throttle_ms":
                self._throttle(active, response)
            case "truncate":
                self._change_records(active, response, truncate)
            case "damage_crc":
                self._change_records(active, response, damage_crc)

    def _throttle(self, active: ActiveRule, response: Any) -> None:
        """As the dispatcher does for a client over its quota (KIP-219)."""
        active.fire()
        connection = self._context.connection
        milliseconds = active.rule.value
        if self._context.api.has_throttle_time and response is not None:
            response.throttle_time_ms = max(response.throttle_time_ms, int(milliseconds))
        connection.mute(milliseconds)

    def _change_records(self, active: ActiveRule, response: Any, change: Callable[[bytes], bytes]) -> None:
        """Change the records of all rows that the rule names, if there are any and the rule fires for them."""
        rows = []
        group = {GROUP: self._request.group_id} if hasattr(self._request, "group_id") else {}
        for topic in response.responses:
            # A Fetch names topics or has their ids, a ShareFetch has ids only.
            name = getattr(topic, "topic", "") or self._topic_name(topic.topic_id)
            for row in topic.partitions:
                facts = {**group, TOPIC: name, PARTITION: row.partition_index}
                if row.records is not None and active.matches_row(Row(row, {}, facts)) and has_records(row):
                    rows.append(row)
        if rows and active.count():
            for row in rows:
                row.records = change(records_of(row))
            active.fire()


def release_files(response: Any) -> None:
    """Release the files of a response that is not sent."""
    for file_range in file_ranges(response):
        file_range.release()


def has_records(row: Any) -> bool:
    """Whether a row of a Fetch response has records, in memory or in a file."""
    return bool(getattr(row.records, "size", None) or len(row.records))


def is_without_response(context: RequestContext) -> bool:
    """Whether the request is a Produce with acks=0, which gets no response."""
    return context.api.row.name == "produce" and context.request.acks == 0
