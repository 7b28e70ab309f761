"""Frames written and read, and whole requests and responses in them."""

import random
import struct
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.errors import DecodeError
from oncelog.wire.framing import FrameReader, decode_response, encode_frame, encode_request
from oncelog.wire.header import encode_response_header, has_tagged_response_header, read_request_header
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.schema import Message, Request
from tests.wire.kafka_json import all_messages

REQUESTS: list[type[Request[Message]]] = [cls for cls in all_messages() if issubclass(cls, Request)]


def taken(reader: FrameReader) -> list[bytes]:
    return list(iter(reader.next_frame, None))


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(0, 2**32))
def test_frames_come_back_however_the_bytes_are_cut(payloads: list[bytes], seed: int) -> None:
    stream = b"".join(encode_frame(payload[:3], payload[3:]) for payload in payloads)
    rng, reader, found, at = random.Random(seed), FrameReader(), list[bytes](), 0
    while at < len(stream):
        missing = reader.missing()
        assert missing > 0
        count = rng.randint(1, 12)
        reader.feed(memoryview(stream)[at : at + count])
        assert (reader.missing() == 0) == (count >= missing) or missing <= 4
        at += count
        found += taken(reader)
    assert found == payloads
    assert len(reader) == 0


def test_a_frame_is_a_size_and_its_payload() -> None:
    assert encode_frame(b"ab", bytearray(b"c")) == b"\0\0\0\x03abc"
    assert encode_frame() == bytes(4)
    reader = FrameReader()
    assert (reader.missing(), reader.next_frame()) == (4, None)
    reader.feed(b"\0\0")
    assert (reader.missing(), reader.next_frame()) == (2, None)
    reader.feed(b"\0\x03a")
    assert (reader.missing(), reader.next_frame(), len(reader)) == (2, None, 5)
    reader.feed(b"bc\0")
    assert (reader.next_frame(), reader.next_frame(), len(reader)) == (b"abc", None, 1)


@pytest.mark.parametrize("size", [-1, -(2**31), 101])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    reader = FrameReader(payload_bytes_max=100)
    reader.feed(struct.pack(">i", size))
    for read in (reader.missing, reader.next_frame):
        with pytest.raises(DecodeError, match=f"a frame of {size} bytes"):
            read()


def test_no_frame_is_larger_than_its_size_can_tell() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(ValueError, match="a frame of 2147483648 bytes"):
        encode_frame(Huge())


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_every_request_names_its_response(cls: type[Request[Message]]) -> None:
    response = cls.response_type()
    [base] = cls.__orig_bases__  # type: ignore[attr-defined]
    assert get_args(base)[0].__forward_arg__ == response.__name__
    assert (response.API_KEY, response.KIND) == (cls.API_KEY, "response")
    assert (response.MIN_VERSION, response.MAX_VERSION) == (cls.MIN_VERSION, cls.MAX_VERSION)


def test_every_request_is_one_of_these() -> None:
    assert len(REQUESTS) == sum(cls.KIND == "request" for cls in all_messages()) > 40


@pytest.mark.parametrize("version", [2, 3])
def test_a_request_there_and_its_response_back(version: int) -> None:
    request = EndTxnRequest("id", 7, 1, True)
    reader = FrameReader()
    reader.feed(encode_request(request, version, 33, "me"))
    payload = reader.next_frame()
    assert payload is not None
    header = read_request_header(payload, EndTxnRequest.is_flexible(version))
    assert (header.api_key, header.api_version, header.correlation_id) == (26, version, 33)
    assert header.client_id == "me"
    assert EndTxnRequest.decode(payload, version, header.header_size) == request

    tagged = has_tagged_response_header(26, EndTxnRequest.is_flexible(version))
    response = encode_response_header(33, tagged) + EndTxnResponse(0, 48).encode(version)
    assert decode_response(EndTxnRequest, version, response) == (33, EndTxnResponse(0, 48))
    with pytest.raises(DecodeError):
        decode_response(EndTxnRequest, version, response[:-1])


def test_the_response_to_api_versions_has_no_tagged_header() -> None:
    response = b"\0\0\0\x05" + ApiVersionsResponse(35).encode(4)
    assert decode_response(ApiVersionsRequest, 4, response) == (5, ApiVersionsResponse(35))
