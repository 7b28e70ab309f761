"""`RecordFilter`: an interceptor that sees records, one by one, in Produce requests and Fetch responses."""

from __future__ import annotations

from functools import partial
from typing import Any, Self, TypeAlias

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.passing_records import PassingRecord, rewrite
from oncelog.broker.log.results import FileRange
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.request import CloseConnection, RequestContext
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from oncelog.wire.schema import ZERO_UUID, Uuid
from oncelog.wire.steps import Steps

RECORD_ERRORS_MAX = 100
"""How many records of a batch are named that were refused."""

_Place: TypeAlias = "tuple[str, Uuid, int]"
"""The name and id of a topic, as the request has it, and the partition."""

log = get_logger(__name__)


class RecordFilter(Interceptor):
    """Define `on_produced`, `on_fetched` or both.

    A record that `on_produced` refuses is not written, nor are the others of its batch: the client is told of it as of
    one that a broker refuses. Partitions without such a record are written.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "apis" not in cls.__dict__:
            produces = cls.on_produced is not RecordFilter.on_produced
            fetches = cls.on_fetched is not RecordFilter.on_fetched
            cls.apis = frozenset(name for name, sees in (("Produce", produces), ("Fetch", fetches)) if sees)

    def on_produced(self, record: PassingRecord, context: RequestContext) -> None:
        """Look at a record that a client writes, or change it. To refuse it raise ValueError, whose text the client is
        told (INVALID_RECORD), or KafkaError with another error.
        """

    def on_fetched(self, record: PassingRecord, context: RequestContext) -> None:
        """Look at a record that a client reads, change it, or let it `leave_out`."""

    # -- as an interceptor

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Make one whose own ``__init__`` need not call that of this class."""
        made = super().__new__(cls)
        made._refused_rows = {}
        return made

    _refused_rows: dict[RequestContext, dict[_Place, PartitionProduceResponse]]
    """The rows of responses that are not there yet."""

    async def on_request(self, context: RequestContext) -> Any:
        if context.api_name != "Produce" or type(self).on_produced is RecordFilter.on_produced:
            return None
        request: ProduceRequest = context.request
        refused = await in_slices(self._refused(request, context))
        if not refused:
            return None
        if request.acks == 0:
            raise CloseConnection("a filter refuses records of a Produce with acks=0")
        remaining = []
        for topic in request.topic_data:
            topic.partition_data = [
                row for row in topic.partition_data if (topic.name, topic.topic_id, row.index) not in refused
            ]
            if topic.partition_data:
                remaining.append(topic)
        request.topic_data = remaining
        self._refused_rows[context] = refused
        return None if remaining else ProduceResponse()

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        if context.api_name == "Produce":
            for (name, topic_id, _), row in self._refused_rows.pop(context, {}).items():
                _topic_of(response, name, topic_id).partition_responses.append(row)
        elif context.api_name == "Fetch" and type(self).on_fetched is not RecordFilter.on_fetched:
            await in_slices(self._show_fetched(context, response))
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self._refused_rows.pop(context, None)

    # -- records

    def _refused(
        self, request: ProduceRequest, context: RequestContext
    ) -> Steps[dict[_Place, PartitionProduceResponse]]:
        """Show the records of the request, one at each step; return the rows of the response for those that are
        refused.
        """
        refused = {}
        for topic in request.topic_data:
            for row in topic.partition_data:
                if row.records is None:  # handled before the installation
                    continue
                errors: list[tuple[int, KafkaError]] = []
                try:
                    changed = yield from rewrite(
                        row.records,
                        self._name_of(topic),
                        row.index,
                        partial(self._show_produced, context, errors),
                    )
                except DecodeError as error:
                    errors = [(0, KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)))]
                if errors:
                    refused[topic.name, topic.topic_id, row.index] = _error_row(row.index, errors)
                elif changed is not None:
                    row.records = changed
        return refused

    def _show_produced(
        self, context: RequestContext, errors: list[tuple[int, KafkaError]], record: PassingRecord
    ) -> None:
        try:
            self.on_produced(record, context)
            if record.is_left_out:
                raise ValueError("a record that is produced cannot be left out, only refused")
        except KafkaError as error:
            errors.append((record.offset, error))
        except ValueError as error:
            errors.append((record.offset, KafkaError(ErrorCode.INVALID_RECORD, str(error))))

    def _show_fetched(self, context: RequestContext, response: Any) -> Steps[None]:
        def show(record: PassingRecord) -> None:
            self.on_fetched(record, context)

        for topic in response.responses:
            name = self._name_of(topic)
            for row in topic.partitions:
                records = row.records
                if isinstance(records, FileRange):
                    try:
                        records = records.read()
                    except OSError as error:
                        raise CloseConnection(f"a log file cannot be read: {error}") from error
                try:
                    changed = yield from rewrite(records or b"", name, row.partition_index, show)
                except DecodeError as error:  # a filter that hides something must not let it pass
                    log.warning(
                        "a filter cannot read records",
                        partition=f"{name}-{row.partition_index}",
                        reason=error,
                    )
                    row.error_code, changed = ErrorCode.CORRUPT_MESSAGE, b""
                if changed is not None:
                    row.records = changed

    def _name_of(self, topic: Any) -> str:
        """Return the name of a topic in a Produce or a Fetch response; empty where only its unknown id is there."""
        name: str = topic.name if isinstance(topic, TopicProduceData) else topic.topic
        return name or self.topic_name(topic.topic_id) or ""


def _topic_of(response: Any, name: str, topic_id: Uuid) -> Any:
    """Return the topic of a Produce response; it is added if it is not there."""
    for topic in response.responses:
        if topic.topic_id == topic_id if topic_id != ZERO_UUID else topic.name == name:
            return topic
    topic = TopicProduceResponse(name, topic_id)
    response.responses.append(topic)
    return topic


def _error_row(index: int, errors: list[tuple[int, KafkaError]]) -> PartitionProduceResponse:
    """Return the row of a batch with refused records, as a broker has it that refuses them (KIP-467)."""
    _, first = errors[0]
    named = [BatchIndexAndErrorMessage(at, error.message) for at, error in errors[:RECORD_ERRORS_MAX]]
    return PartitionProduceResponse(index, first.code, -1, record_errors=named, error_message=first.message)
