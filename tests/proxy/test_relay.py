"""The relays, shown their bytes cut at each place, against one that waits for whole frames and decodes all of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest

from oncelog.broker.proxy.relay.in_flight import IN_FLIGHT_MAX, InFlight
from oncelog.broker.proxy.relay.relay import (
    FORWARD,
    FULL,
    INTERCEPT,
    LOST,
    OWN,
    REQUEST_MOVES,
    RESPONSE_MOVES,
    REWRITE,
    WAIT,
    WALK,
    ProtocolError,
    State,
)
from oncelog.broker.proxy.relay.responses import WHOLE_BYTES_MAX
from oncelog.wire.errors import DecodeError
from oncelog.wire.framing import encode_frame, encode_request
from oncelog.wire.header import (
    encode_response_header,
    has_tagged_response_header,
    read_request_header,
    read_response_header,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.produce import NodeEndpoint as ProduceEndpoint
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.schema import Message, Request
from tests.harness.requests import fetch_request, produce_request
from tests.proxy.relays import (
    FRAME_BYTES_MAX,
    INTERCEPTED_REQUESTS,
    INTERCEPTED_RESPONSES,
    Requests,
    Responses,
    advertised,
    plan_of,
    upstream_host,
)

UNKNOWN_KEY = 999
LARGE_BYTES = WHOLE_BYTES_MAX + 1000
LARGE_STEP = 997
"""Inside the records of a large response it is cut at each so-manieth byte only."""


def cuts(places: Iterator[int] | range, data: bytes) -> Iterator[list[bytes]]:
    """Yield ``data`` in two pieces, cut at each of the places, and in others."""
    for place in places:
        yield [data[:place], data[place:]]
    yield [data[place : place + 1] for place in range(len(data))]
    rng = random.Random(1)
    for longest in (20, 200, 5_000):
        pieces, place = [], 0
        while place < len(data):
            pieces.append(data[place : place + rng.randint(1, longest)])
            place += len(pieces[-1])
        yield pieces


def frames_of(data: bytes) -> list[bytes]:
    frames, place = [], 0
    while place < len(data):
        stop = place + 4 + int.from_bytes(data[place : place + 4], "big")
        frames.append(data[place:stop])
        place = stop
    return frames


# -- requests


def tagged(frame: bytes, client_id: str) -> bytes:
    """Return the frame of a flexible version with a tagged field in its header."""
    at = 4 + 8 + 2 + len(client_id)
    payload = frame[4:at] + b"\x01\x63\x03abc" + frame[at + 1 :]
    return len(payload).to_bytes(4, "big") + payload


def transactional(acks: int) -> ProduceRequest:
    request = produce_request("t", b"records", acks=acks)
    request.transactional_id = "a transactional id"
    return request


REQUESTS = b"".join(
    (
        encode_request(produce_request("t", b"records", acks=1), 9, 1, "c"),
        encode_request(ApiVersionsRequest("a", "1"), 3, 2, "c"),
        encode_request(produce_request("t", b"records", acks=0), 8, 3, None),
        encode_request(fetch_request("t", 0), 12, 4, ""),
        tagged(encode_request(transactional(0), 9, 5, "client"), "client"),
        encode_request(produce_request("t", b"records", acks=-1), 3, 6, "c" * 40),
        encode_request(ListGroupsRequest(), 3, 7, "c"),
        encode_request(MetadataRequest([]), 12, 8, "c"),
        encode_frame(struct.pack(">hhi", UNKNOWN_KEY, 0, 9), b"of an API that is unknown"),
        encode_request(transactional(1), 12, 10, "c"),
        encode_frame(struct.pack(">hhi", UNKNOWN_KEY, 1, 11)),
    )
)


def in_flight_of(frames: list[bytes]) -> list[int]:
    """Return the correlation ids of the requests that get a response, each of which is decoded."""
    ids = []
    for frame in frames:
        payload = memoryview(frame)[4:]
        key, version, correlation_id = struct.unpack_from(">hhi", payload)
        if key == ProduceRequest.API_KEY:
            header = read_request_header(payload, ProduceRequest.is_flexible(version))
            if not ProduceRequest.decode(payload, version, header.header_size).acks:
                continue
        ids.append(correlation_id)
    return ids


def key_of(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")


@pytest.mark.parametrize("skips", [False, True])
def test_requests_cut_anywhere_are_forwarded_and_kept_as_by_one_that_decodes_them(skips: bool) -> None:
    frames = frames_of(REQUESTS)
    intercepted = [frame for frame in frames if key_of(frame) in INTERCEPTED_REQUESTS]
    for pieces in cuts(range(len(REQUESTS) + 1), REQUESTS):
        shown = Requests(skips=skips)
        shown.show_all(pieces)
        assert shown.out == REQUESTS, [len(piece) for piece in pieces]
        assert shown.intercepted == intercepted
        assert shown.ids == in_flight_of(frames)
        assert shown.relay.state is WAIT


def test_no_whole_request_waits_for_the_next_one() -> None:
    frames = frames_of(REQUESTS)
    stops = [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]
    for place in range(len(REQUESTS) + 1):
        shown = Requests()
        shown.show(REQUESTS[:place])
        whole = max(count for count, stop in enumerate(stops) if stop <= place)
        assert REQUESTS.startswith(shown.out)
        assert len(shown.out) >= stops[whole]
        assert shown.ids[: len(in_flight_of(frames[:whole]))] == in_flight_of(frames[:whole])


def test_a_request_is_forwarded_before_it_has_come() -> None:
    frame = encode_request(produce_request("t", bytes(100_000), acks=0), 9, 1, "c")
    shown = Requests()
    shown.show(frame[:100])
    assert shown.out == frame[:100]
    assert (shown.relay.state, shown.relay.left) == (FORWARD, len(frame) - 100)
    assert shown.relay.take_forwarded(50) == 50
    assert shown.relay.take_forwarded(10**9) == len(frame) - 150
    assert shown.relay.state is WAIT
    assert not shown.in_flight


def test_with_as_many_requests_in_flight_as_may_be_the_next_one_waits_whole() -> None:
    """Wherever it is cut, and a request that has begun is forwarded to its end."""
    first, second = encode_request(fetch_request("t", 0), 12, 1), encode_request(fetch_request("t", 0), 12, 2)
    for place in range(len(first + second) + 1):
        shown = Requests(IN_FLIGHT_MAX - 1)
        shown.show((first + second)[:place])
        shown.show((first + second)[place:])
        assert shown.out == first
        assert shown.ids[-1] == 1
        assert shown.relay.state is FULL
        shown.show(b"")
        assert shown.out == first, "it has not been told that a response has left"
        shown.in_flight.popleft()
        shown.relay.resume()
        shown.show(b"")
        assert shown.out == first + second
        assert shown.ids[-1] == 2
        assert shown.relay.state is WAIT


def test_a_log_in_takes_all_frames_or_those_that_it_does_not_let_pass() -> None:
    handshake = encode_request(SaslHandshakeRequest("PLAIN"), 1, 1)
    fetch = encode_request(fetch_request("t", 0), 12, 2)
    data = handshake + fetch
    for pieces in cuts(range(len(data) + 1), data):
        everything, some = Requests(), Requests()
        everything.client.authentication_handler = some.client.authentication_handler = object()
        everything.show_all(pieces)
        assert everything.intercepted == [handshake, fetch]
        assert not everything.out
        some.client.needs_no_authentication = lambda key: key == FetchRequest.API_KEY
        some.show_all(pieces)
        assert some.intercepted == [handshake]
        assert some.out == fetch


def test_a_token_without_a_header_is_kept() -> None:
    shown = Requests()
    shown.client.authentication_handler = object()
    shown.show(encode_frame(b"tok")[:4])
    assert shown.relay.state is INTERCEPT
    shown.show(b"tok")
    assert shown.intercepted == [encode_frame(b"tok")]


@pytest.mark.parametrize("size", [-1, 0, 7, FRAME_BYTES_MAX + 1])
def test_a_frame_of_no_possible_size_is_for_the_handler_who_refuses_it(size: int) -> None:
    shown = Requests()
    frame = struct.pack(">ihhi", size, 1, 12, 1)
    for place in range(len(frame)):
        assert shown.relay.advance(memoryview(frame)[:place]) == 0
        assert shown.relay.state is WAIT
    assert shown.relay.advance(memoryview(frame)) == 0
    assert shown.relay.state is INTERCEPT
    assert not shown.in_flight


# -- responses

AWAITED = object()
"""Somebody waits for the response: it does not leave."""


class Exchange:
    """A response with what the client is to get; ``kind`` is None for one of the proxy's own, which is bytes."""

    def __init__(
        self, kind: type[Request[Message]] | None, version: int, response: Message | bytes, to: object = None
    ) -> None:
        self.kind, self.version, self.to = kind, version, to
        self.data = self.wanted = b""
        if kind is None:
            assert isinstance(response, bytes)
            self.wanted = self.to = response
            return
        assert isinstance(response, Message)
        self.data = response_frame(kind, version, response)
        self.wanted = b"" if to is not None else rewritten(self.data, kind, version)

    def in_flight(self, number: int) -> InFlight:
        if self.kind is None:
            return InFlight(0, None, self.to)
        return InFlight(number, plan_of(self.kind.API_KEY, self.version), self.to)

    def numbered(self, data: bytes, number: int) -> bytes:
        return data if self.kind is None or not data else data[:4] + number.to_bytes(4, "big") + data[8:]


def response_frame(kind: type[Request[Message]], version: int, response: Message) -> bytes:
    is_tagged = has_tagged_response_header(kind.API_KEY, kind.is_flexible(version))
    return encode_frame(encode_response_header(0, is_tagged), response.encode(version))


def rewritten(frame: bytes, kind: type[Request[Message]], version: int) -> bytes:
    """Return the response as the client is to get it: it is decoded, changed and encoded."""
    payload = memoryview(frame)[4:]
    is_tagged = has_tagged_response_header(kind.API_KEY, kind.is_flexible(version))
    _, start = read_response_header(payload, is_tagged)
    response = kind.response_type().decode(payload, version, start)
    for node in getattr(response, "node_endpoints", None) or ():
        node.host, node.port = advertised(node)
    return encode_frame(payload[:start], response.encode(version))


def fetched(records: bytes, nodes: int = 0) -> FetchResponse:
    rows = [
        PartitionData(0, records=b"a few", diverging_epoch=EpochEndOffset(1, 2)),
        PartitionData(1, 6, aborted_transactions=[AbortedTransaction(1, 2)] * 3, records=records),
        PartitionData(2, records=None),
    ]
    endpoints = [NodeEndpoint(number, upstream_host(number), 9092, "rack") for number in range(nodes)]
    topics = [FetchableTopicResponse(partitions=rows), FetchableTopicResponse(partitions=[])]
    return FetchResponse(responses=topics, node_endpoints=endpoints)


def produced(nodes: int = 0) -> ProduceResponse:
    return ProduceResponse(
        node_endpoints=[ProduceEndpoint(number, upstream_host(number), 9092) for number in range(nodes)]
    )


LARGE = bytes(LARGE_BYTES)
EXCHANGES = (
    Exchange(ProduceRequest, 9, produced()),
    Exchange(ProduceRequest, 11, produced()),
    Exchange(None, 0, b"the proxy's own"),
    Exchange(ProduceRequest, 11, produced(2)),
    Exchange(FetchRequest, 12, FetchResponse()),
    Exchange(FetchRequest, 17, fetched(b"records")),
    Exchange(FetchRequest, 17, fetched(b"records", 1)),
    Exchange(MetadataRequest, 12, MetadataResponse()),
    Exchange(FetchRequest, 17, fetched(LARGE)),
    Exchange(None, 0, b"after a large one"),
    Exchange(None, 0, b"and another one"),
    Exchange(FetchRequest, 16, fetched(LARGE, 3)),
    Exchange(None, 0, b"after one with endpoints"),
    Exchange(FetchRequest, 12, FetchResponse(), AWAITED),
    Exchange(FetchRequest, 17, fetched(b"records", 1), AWAITED),
    Exchange(ApiVersionsRequest, 3, ApiVersionsResponse()),
    Exchange(None, 0, b"at the end"),
)
SMALL_WITH_ENDPOINTS, LARGE_WITH_ENDPOINTS = {3, 6}, 11
RESPONSES = b"".join(one.numbered(one.data, number) for number, one in enumerate(EXCHANGES))
WANTED = b"".join(one.numbered(one.wanted, number) for number, one in enumerate(EXCHANGES))


def handle(frame: bytes) -> bytes:
    number = int.from_bytes(frame[4:8], "big")
    one = EXCHANGES[number]
    assert one.kind is not None
    return rewritten(frame, one.kind, one.version)


def in_flight() -> list[InFlight]:
    return [one.in_flight(number) for number, one in enumerate(EXCHANGES)]


def places() -> Iterator[int]:
    """Yield each place of the responses, and some of the records of large ones."""
    for place in range(len(RESPONSES) + 1):
        if place % LARGE_STEP == 0 or RESPONSES[max(place - 50, 0) : place + 50].strip(b"\0"):
            yield place


@pytest.mark.parametrize("skips", [False, True])
def test_responses_cut_anywhere_leave_as_from_one_that_decodes_them(skips: bool) -> None:
    intercepted = {
        number
        for number, one in enumerate(EXCHANGES)
        if one.to is AWAITED or (one.kind is not None and one.kind.API_KEY in INTERCEPTED_RESPONSES)
    } | SMALL_WITH_ENDPOINTS
    for pieces in cuts(places(), RESPONSES):
        shown = Responses(in_flight(), handle, skips=skips)
        shown.show_all(pieces)
        assert shown.out == WANTED, [len(piece) for piece in pieces]
        found = {int.from_bytes(frame[4:8], "big") for frame in shown.intercepted}
        assert intercepted <= found <= intercepted | {LARGE_WITH_ENDPOINTS}, (
            "which is intercepted if it was read whole"
        )
        assert not shown.in_flight
        assert shown.relay.state is WAIT


def test_a_large_fetch_response_is_forwarded_before_it_has_come() -> None:
    data = response_frame(FetchRequest, 17, fetched(LARGE, 1))
    for skips in (False, True):
        shown = Responses([InFlight(0, plan_of(FetchRequest.API_KEY, 17))], handle, skips=skips)
        shown.show(data[:1000])
        assert shown.out == data[:1000]
        assert shown.relay.state is FORWARD
        shown.show(data[1000:-1])
        assert len(shown.out) > LARGE_BYTES
        assert shown.relay.state is WALK, "its end waits until it is whole"
        shown.show(data[-1:])
        assert shown.out == rewritten(data, FetchRequest, 17) != data


def test_records_that_look_like_endpoints_are_not_rewritten() -> None:
    like = fetched(b"", 1).encode(17)[-30:]
    for records in (bytes(20_000) + like, LARGE + like):
        data = response_frame(FetchRequest, 17, fetched(records))
        for place in range(len(data) - 200, len(data)):
            shown = Responses([InFlight(0, plan_of(FetchRequest.API_KEY, 17))], bytes)
            shown.show_all((data[:place], data[place:]))
            assert shown.out == data


@pytest.mark.parametrize(
    ("frame", "expected", "why"),
    [
        (struct.pack(">ii", 10, 8), [7], "with correlation id 8, which is not the next"),
        (struct.pack(">ii", 3, 7), [7], "is no Kafka: a frame of 3 bytes"),
        (struct.pack(">ii", -5, 7), [], "is no Kafka: a frame of -5 bytes"),
        (struct.pack(">ii", 10, 7), [], "has sent a response to no request"),
    ],
)
def test_what_breaks_the_protocol_is_an_error_and_nothing_of_it_leaves(
    frame: bytes, expected: list[int], why: str
) -> None:
    before = response_frame(ProduceRequest, 9, ProduceResponse())
    numbers = [0, *expected]
    for place in range(len(before + frame)):
        shown = Responses([InFlight(number, plan_of(0, 9)) for number in numbers], bytes)
        shown.show((before + frame)[:place])
        assert (before + frame[:0]).startswith(shown.out)
        with pytest.raises(ProtocolError, match=f"^upstream kafka:9092 .*{why}$"):
            shown.show((before + frame)[place:])


@pytest.mark.parametrize("seed", range(50))
def test_a_malformed_large_fetch_response_is_an_error_or_leaves_as_it_is(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(response_frame(FetchRequest, 17, fetched(LARGE, 1)))
    for _ in range(3):
        data[rng.choice((rng.randrange(8, 200), rng.randrange(len(data) - 60, len(data))))] = rng.randrange(
            256
        )
    shown = Responses([InFlight(0, plan_of(FetchRequest.API_KEY, 17))], bytes)
    try:
        shown.show_all(bytes(data[place : place + 500]) for place in range(0, len(data), 500))
    except DecodeError:
        assert shown.out == data[: len(shown.out)]
    else:
        assert shown.out[:-60] == data[: len(shown.out) - 60]


# -- the states


def reach(state: State) -> Requests | Responses:
    """Return a relay that has been brought into a state."""
    large, fetch = response_frame(FetchRequest, 17, fetched(LARGE, 1)), InFlight(0, plan_of(1, 17))
    request = encode_request(fetch_request("t", 0), 12, 1)
    ways: dict[State, Callable[[], tuple[Requests | Responses, bytes, bytes]]] = {
        WAIT: lambda: (Requests(), request[:10], b""),
        FORWARD: lambda: (Requests(), request[:-1], b""),
        INTERCEPT: lambda: (Requests(), encode_request(ListGroupsRequest(), 3, 1)[:-1], b""),
        FULL: lambda: (Requests(IN_FLIGHT_MAX), request, b""),
        WALK: lambda: (Responses([fetch], bytes), large[:-1], b""),
        REWRITE: lambda: (Responses([fetch], bytes), large[:-1], large[-1:]),
        OWN: lambda: (Responses([InFlight(0, None, b"own")], bytes), b"", b""),
    }
    shown, data, more = ways[state]()
    count = shown.relay.advance(memoryview(data))
    if more:
        shown.relay.advance(memoryview(data[count:] + more))
    return shown


@pytest.mark.parametrize("state", [WAIT, FORWARD, INTERCEPT, FULL, WALK, REWRITE, OWN], ids=repr)
def test_after_a_loss_in_any_state_nothing_is_forwarded(state: State) -> None:
    shown = reach(state)
    relay = shown.relay
    assert relay.state is state
    before = len(shown.in_flight)
    for _ in range(2):
        relay.lose()
        assert relay.state is LOST
        relay.resume()
        assert relay.take_forwarded(10) == 0
        assert relay.advance(memoryview(bytearray(REQUESTS))) == 0
        assert relay.state is LOST
    assert len(shown.in_flight) == before, "whoever lost the connection tells those who wait"


def test_each_state_can_be_reached_and_left_and_only_a_loss_is_final() -> None:
    for moves in (REQUEST_MOVES, RESPONSE_MOVES):
        reached = {WAIT}
        while more := {after for state in reached for after in moves[state]} - reached:
            reached |= more
        assert reached == set(moves)
        for state, after in moves.items():
            assert (LOST in after) == (state is not LOST)
            back = {state}
            while more := {one for step in back for one in moves[step]} - back:
                back |= more
            assert state is LOST or WAIT in back
