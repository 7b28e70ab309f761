"""Filters for records, in a broker: what they change, refuse and leave out, and what stays as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.loading import install_filters
from oncelog.broker.filters.passing_records import PassingRecord, rewrite
from oncelog.broker.filters.record_filter import RecordFilter
from oncelog.broker.requests.request import NO_RESPONSE, RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.records import iterate_records
from oncelog.wire.steps import finish
from tests.common.batches import GZIP, LZ4, NONE, SNAPPY, TRANSACTIONAL, ZSTD, batch, read_batches, record
from tests.harness.log_lines import lines
from tests.harness.requests import bytes_of, create_topic, fetch, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated, simulated_work
from tests.harness.steps import LongestTurn

__all__ = ["lines"]  # a fixture

OTHER_PRODUCE_VERSIONS = (3, 8, 12, 13)
LINES_PER_RECORD = 3
"""In the same turn: a filter alone has ten times as many."""


class Stamp(RecordFilter):
    def on_produced(self, record: PassingRecord, context: RequestContext) -> None:
        record.headers.append(("via", (context.client_id or "").encode()))


class Even(RecordFilter):
    """Refuses odd values, and leaves records without a key out of what is read."""

    def on_produced(self, record: PassingRecord, context: RequestContext) -> None:
        if int(record.value or b"0") % 2:
            raise ValueError(f"{record.topic}: {record.value!r} is odd")

    def on_fetched(self, record: PassingRecord, context: RequestContext) -> None:
        if record.key is None:
            record.leave_out()


def install(broker: SimBroker, *filters: Interceptor) -> None:
    install_filters(filters, broker.node)


def numbers(*values: bytes) -> bytes:
    return batch([record(b"k", value, offset_delta=at) for at, value in enumerate(values)])


# -- batches


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_only_what_a_filter_changes_is_other(codec: int) -> None:
    original = batch(
        [record(b"k", b"v", [("a", b"1"), ("b", None)], offset_delta=0), record(None, None, offset_delta=1)],
        codec=codec,
        attributes=TRANSACTIONAL,
        producer=(7, 3, 40),
        base_offset=100,
        leader_epoch=5,
        base_timestamp=1_000,
        max_timestamp=1_000,
    )

    def show(passing: PassingRecord) -> None:
        passing.value = b"new"

    changed = finish(rewrite(original, "t", 0, show))
    assert changed is not None
    [before], [after] = list(read_batches(original)), list(read_batches(bytes(changed)))
    same = (
        "base_offset",
        "leader_epoch",
        "attributes",
        "last_offset_delta",
        "base_timestamp",
        "max_timestamp",
    )
    for name in (*same, "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(after, name) == getattr(before, name), name
    records = list(iterate_records(bytes(changed)))
    assert [(one.offset, one.key, one.value, one.headers) for one in records] == [
        (100, b"k", b"new", [(b"a", b"1"), (b"b", None)]),
        (101, None, b"new", []),
    ]


def test_untouched_batches_are_the_same_bytes() -> None:
    first, second = batch(2), batch(2, base_offset=2)
    assert finish(rewrite(first + second, "t", 0, lambda passing: None)) is None

    def show(passing: PassingRecord) -> None:
        if passing.offset == 3:
            passing.key = b"other"

    changed = finish(rewrite(first + second + second[:50], "t", 0, show))
    assert changed is not None
    assert bytes(changed[: len(first)]) == first
    assert bytes(changed[-50:]) == second[:50], "what is cut off passes"
    assert [one.key for one in iterate_records(bytes(changed), offset=len(first))] == [b"k0", b"other"]


def test_control_batches_and_other_magics_pass_unseen() -> None:
    seen: list[PassingRecord] = []
    assert finish(rewrite(batch(1, attributes=32) + batch(1, magic=1), "t", 0, seen.append)) is None
    assert seen == []


def test_a_batch_may_become_empty() -> None:
    changed = finish(rewrite(batch(3, base_offset=5), "t", 0, PassingRecord.leave_out))
    assert changed is not None
    [found] = read_batches(bytes(changed))
    assert (found.base_offset, found.last_offset_delta, found[-1]) == (5, 2, b"")


# -- in a broker


@simulated
async def test_a_header_for_each_record() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        install(broker, Stamp())
        assert (await produce(client, "t", batch(2))).error_code == 0
        row = await fetch(client, "t", 0)
        records = list(iterate_records(bytes_of(row.records)))
        assert [[name for name, _ in one.headers] for one in records] == [[b"via"], [b"via"]]


@pytest.mark.parametrize("version", OTHER_PRODUCE_VERSIONS)
@simulated
async def test_a_refused_record_takes_its_batch_along_and_no_other(version: int) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "t", 3)
        install(broker, Even())
        rows = [
            PartitionProduceData(0, numbers(b"2", b"4")),
            PartitionProduceData(1, numbers(b"2", b"3", b"5")),
            PartitionProduceData(2, numbers(b"6")),
        ]
        topic = (
            TopicProduceData("", topic_id, rows)
            if version >= 13
            else TopicProduceData("t", partition_data=rows)
        )
        response = await client.call(ProduceRequest(None, 1, 1000, [topic]), version, ProduceResponse)
        [found] = response.responses
        by_index = {row.index: row for row in found.partition_responses}
        assert {index: row.error_code for index, row in by_index.items()} == {
            0: 0,
            1: ErrorCode.INVALID_RECORD,
            2: 0,
        }
        assert by_index[1].base_offset == -1
        if version >= 8:
            assert by_index[1].error_message == "t: b'3' is odd"
            assert [one.batch_index for one in by_index[1].record_errors] == [1, 2]
        assert [(await fetch(client, "t", 0, index)).high_watermark for index in range(3)] == [2, 0, 1]


@simulated
async def test_a_request_with_nothing_left_is_not_handled() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        install(broker, Even())
        row = await produce(client, "t", numbers(b"1"))
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert (await fetch(client, "t", 0)).high_watermark == 0
        await client.send(produce_request("t", numbers(b"1"), acks=0), 8)
        with pytest.raises(ConnectionEndedError):
            await client.receive(ProduceResponse, 8)


@simulated
async def test_records_that_are_left_out_take_no_offset_away() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(b"k", b"0"), record(None, b"2", offset_delta=1)]))
        await produce(client, "t", batch([record(b"k", b"4", extra=b"")]))
        install(broker, Even())
        row = await fetch(client, "t", 0)
        data = bytes_of(row.records)
        found = list(read_batches(data))
        assert [one.last_offset_delta for one in found] == [1, 0]
        assert [one.value for one in iterate_records(data)] == [b"0"]
        assert broker.files.held == 0


class Large(RecordFilter):
    def on_fetched(self, record: PassingRecord, context: RequestContext) -> None:
        record.value = b"small"


@simulated
async def test_records_in_a_file_are_seen_too() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        await produce(client, "t", batch([record(None, bytes(20_000))]))
        install(broker, Large())
        row = await fetch(client, "t", 0)
        assert [one.value for one in iterate_records(bytes_of(row.records))] == [b"small"]
        assert broker.files.held == 0


class Failing(Interceptor):
    apis = frozenset(("Produce",))

    async def on_request(self, context: RequestContext) -> Any:
        raise ZeroDivisionError

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        raise ZeroDivisionError


class Refusing(Interceptor):
    async def on_request(self, context: RequestContext) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "no")


@simulated
async def test_an_error_of_a_filter_fails_one_request() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        install(broker, Failing())
        assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await fetch(client, "t", 0)).error_code == 0
        install(broker, Refusing())
        assert (await fetch(client, "t", 0)).error_code in (0, ErrorCode.POLICY_VIOLATION)


class Text(RecordFilter):
    """Forgets that a value is bytes."""

    def on_produced(self, record: PassingRecord, context: RequestContext) -> None:
        record.value = "coffee"  # type: ignore[assignment]


class Forgetful(Interceptor):
    """Forgets to return the response."""

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        return None


@simulated
async def test_text_where_bytes_belong_is_said_in_the_log(lines: list[str]) -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        await create_topic(client, "t")
        install(broker, Text())
        assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    [failed] = [line for line in lines if "a filter failed filter=Text api=Produce" in line]
    assert "the value of a record is bytes or None; the filter made it str" in failed


class NoResponseAtAll(Interceptor):
    """Returns what is no response: of the function whose name it is given."""

    apis = frozenset({"Produce"})

    def __init__(self, function: str) -> None:
        self.function = function

    async def on_request(self, context: RequestContext) -> Any:
        return "hello" if self.function == "on_request" else None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        return "hello" if self.function == "on_response" else response


@pytest.mark.parametrize("function", ["on_request", "on_response"])
def test_what_a_filter_returns_must_be_a_response(function: str, lines: list[str]) -> None:
    @simulated
    async def main() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            install(broker, NoResponseAtAll(function))
            assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert (await fetch(client, "t", 0)).error_code == 0

    main()
    [failed] = [line for line in lines if "a filter failed filter=NoResponseAtAll api=Produce" in line]
    assert f"TypeError: {function} returned str, which is no ProduceResponse" in failed


@simulated
async def test_a_response_that_a_filter_keeps_is_told_once(lines: list[str]) -> None:
    installed: list[Interceptor] = []
    dispatcher = SimpleNamespace(interception=SimpleNamespace(install=installed.append))
    target: Any = SimpleNamespace(dispatcher=dispatcher, known_topics=None)
    install_filters([Forgetful()], target)
    for api in ("Fetch", "Fetch", "Metadata"):
        context: Any = SimpleNamespace(request=object(), api_name=api)
        assert await installed[0].on_response(context, object()) is None
        assert await installed[0].on_response(context, None) is None
    told = [line.partition("returned None: its client gets no response ")[2].rstrip() for line in lines]
    hint = "(if it is meant, return oncelog.NO_RESPONSE)"
    assert told == [f"{hint} filter=Forgetful api={api}" for api in ("Fetch", "Metadata")]


@simulated
async def test_a_response_that_a_filter_keeps_on_purpose_is_not_told(lines: list[str]) -> None:
    class Silent(Interceptor):
        async def on_response(self, context: RequestContext, response: Any) -> Any:
            return NO_RESPONSE

    installed: list[Interceptor] = []
    dispatcher = SimpleNamespace(interception=SimpleNamespace(install=installed.append))
    target: Any = SimpleNamespace(dispatcher=dispatcher, known_topics=None)
    install_filters([Silent()], target)
    context: Any = SimpleNamespace(request=object(), api_name="Fetch")
    assert await installed[0].on_response(context, object()) is NO_RESPONSE
    assert lines == []


def test_a_filter_wants_the_apis_of_the_functions_that_it_defines() -> None:
    assert Stamp.apis == frozenset(("Produce",))
    assert Large.apis == frozenset(("Fetch",))
    assert Even.apis == frozenset(("Produce", "Fetch"))


# -- how long others wait


class Nothing(RecordFilter):
    def on_produced(self, record: PassingRecord, context: RequestContext) -> None:
        pass

    def on_fetched(self, record: PassingRecord, context: RequestContext) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("reads", [False, True], ids=["produced", "fetched"])
def test_a_batch_of_many_records_lets_others_have_their_turn(*, reads: bool) -> None:
    """A few hundred bytes may hold a million empty records."""
    turns: list[LongestTurn] = []

    @simulated_work(steps=2)
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            for number, count in enumerate((500, 1500)):
                await create_topic(client, f"t{number}")
                records = batch([record(None, None, offset_delta=at) for at in range(count)], codec=ZSTD)
                if reads:
                    await produce(client, f"t{number}", records)
                install(broker, Nothing())
                turn = LongestTurn()
                if reads:
                    await fetch(client, f"t{number}")
                else:
                    await produce(client, f"t{number}", records)
                turn.end()
                turns.append(turn)
                for one in [*broker.node.dispatcher.interception.interceptors]:
                    broker.node.dispatcher.interception.remove(one)

    run()
    few, many = turns
    assert many.lines - few.lines < 1000 * LINES_PER_RECORD, many.where.most_common(8)
