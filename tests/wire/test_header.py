"""Request and response headers, both ways, against kafka-python's and kio's."""

import io
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.serial import entity_reader, entity_writer

from oncelog.wire.compiler import put_uvarint
from oncelog.wire.errors import DecodeError
from oncelog.wire.header import (
    encode_request_header,
    encode_response_header,
    has_tagged_response_header,
    read_request_header,
    read_response_header,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its resources
    from kafka.protocol.api_header import RequestHeader, ResponseHeader

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def encoded(key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool) -> bytes:
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    found: bytes = header.encode(flexible=flexible)
    return found


@settings(deadline=None, max_examples=50)
@given(INT16, INT16, INT32, st.none() | st.text(max_size=20), st.booleans(), st.integers(0, 3))
def test_as_kafka_python_writes_it(
    key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool, offset: int
) -> None:
    header = encoded(key, version, correlation_id, client_id, flexible)
    assert encode_request_header(key, version, correlation_id, client_id, flexible) == header
    for kind in (bytes, bytearray, memoryview):
        frame = kind(bytes(offset) + header + b"body")
        read = read_request_header(frame, flexible, offset)
        assert (read.api_key, read.api_version, read.correlation_id) == (key, version, correlation_id)
        assert read.client_id == (client_id or "")
        assert read.header_size == len(header)


@pytest.mark.parametrize("flexible", [False, True])
def test_every_truncation_is_refused(flexible: bool) -> None:
    header = encoded(0, 9, 1, "client", flexible)
    for size in range(len(header)):
        with pytest.raises(DecodeError):
            read_request_header(header[:size], flexible)


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff", b"\x00\x05"])
def test_a_client_id_of_impossible_length(length: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request_header(b"\0\0\0\x09\0\0\0\x01" + length + b"abcd", False)


def test_a_client_id_that_is_not_utf8() -> None:
    with pytest.raises(DecodeError):
        read_request_header(b"\0\0\0\x09\0\0\0\x01\0\x02\xff\xfe", False)


def test_unknown_tagged_fields_are_passed_over() -> None:
    plain = encoded(0, 9, 1, "c", True)
    tagged = plain[:-1] + b"\x02\x05\x03abc\x81\x01\x00"
    assert read_request_header(tagged + b"body", True).header_size == len(tagged)
    for size in range(len(plain), len(tagged)):
        with pytest.raises(DecodeError):
            read_request_header(tagged[:size], True)


@pytest.mark.parametrize("tagged", [False, True])
def test_response_headers_as_kafka_python_writes_them(tagged: bool) -> None:
    header = ResponseHeader(correlation_id=-7)
    assert encode_response_header(-7, tagged) == header.encode(flexible=tagged)


def test_an_api_versions_response_never_has_a_tagged_header() -> None:
    assert not has_tagged_response_header(18, flexible=True)
    assert has_tagged_response_header(0, flexible=True)
    assert not has_tagged_response_header(0, flexible=False)


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@settings(deadline=None, max_examples=50)
@given(INT16, INT16, INT32, st.none() | st.text(max_size=20), st.booleans())
def test_a_request_header_as_kio_writes_it(
    key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> None:
    kind: Any = KioRequestHeaderV2 if flexible else KioRequestHeaderV1
    header = kind(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    assert encode_request_header(key, version, correlation_id, client_id, flexible) == kio_bytes(header)


@settings(deadline=None, max_examples=50)
@given(INT32, st.booleans(), st.integers(0, 3))
def test_a_response_header_is_read_as_kio_reads_it(correlation_id: int, tagged: bool, offset: int) -> None:
    kind: Any = KioResponseHeaderV1 if tagged else KioResponseHeaderV0
    written = kio_bytes(kind(correlation_id=correlation_id))
    assert encode_response_header(correlation_id, tagged) == written
    frame = bytes(offset) + written + b"body"
    assert read_response_header(frame, tagged, offset) == (correlation_id, len(written))
    entity, _ = entity_reader(kind)(written, 0)
    assert entity.correlation_id == correlation_id


def test_a_response_header_may_have_tagged_fields() -> None:
    header = b"\0\0\0\x07" + b"\x01\x05\x03abc"
    assert read_response_header(header + b"body", True) == (7, len(header))
    assert read_response_header(header, False) == (7, 4)
    for size in range(len(header)):
        with pytest.raises(DecodeError):
            read_response_header(header[:size], True)


@pytest.mark.parametrize("client_id", ["x" * 32_768, "é" * 16_384])
def test_a_client_id_that_no_header_can_hold(client_id: str) -> None:
    with pytest.raises(ValueError, match="request header"):
        encode_request_header(0, 9, 1, client_id, True)
    for numbers in ((2**15, 0, 0), (0, 2**15, 0), (0, 0, 2**31)):
        with pytest.raises(ValueError, match="request header"):
            encode_request_header(*numbers, "c", False)


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_a_header_has_a_largest_number_of_tagged_fields(count: int) -> None:
    section = bytearray()
    put_uvarint(section, count)
    for tag in range(count):
        put_uvarint(section, tag)
        section.append(0)
    request = encode_request_header(3, 12, 7, "c", flexible=True)[:-1] + section
    response = encode_response_header(7, tagged=False) + section
    if count == 10_000:
        assert read_request_header(request, flexible=True).header_size == len(request)
        assert read_response_header(response, tagged=True) == (7, len(response))
        return
    with pytest.raises(DecodeError, match="10001 tags"):
        read_request_header(request, flexible=True)
    with pytest.raises(DecodeError, match="10001 tags"):
        read_response_header(response, tagged=True)
