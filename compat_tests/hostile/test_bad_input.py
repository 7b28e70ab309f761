"""Peers that send something other than Kafka requests: both targets react alike, and go on serving other clients."""

import random
import socket
import struct

import pytest

from compat_tests.differential import Session, produce_request
from oncelog.wire.compiler import put_uvarint
from oncelog.wire.framing import encode_frame
from oncelog.wire.header import encode_request_header
from tests.common.batches import batch, record
from tests.common.frames import Connection

REQUEST_MAX_BYTES = 100 * 1024 * 1024  # socket.request.max.bytes
API_VERSIONS = encode_request_header(18, 0, 7, None, flexible=False)


def serves(bootstrap: str) -> bool:
    with Connection(bootstrap) as connection:
        return bool(connection.call("ApiVersions", 0)["api_keys"])


@pytest.mark.parametrize("size", [-1, -(2**31), REQUEST_MAX_BYTES + 1, 2**31 - 1])
def test_invalid_sizes(bootstrap: str, size: int) -> None:
    with Connection(bootstrap) as connection:
        connection.socket.sendall(struct.pack(">i", size))
        assert connection.receive_frame() is None
    assert serves(bootstrap)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\0\x12",
        API_VERSIONS[:9],
        struct.pack(">hhih", 18, 0, 7, 500),  # a client id longer than the frame
        struct.pack(">hhihi", 3, 1, 7, -1, 1 << 30),  # more topics than a frame can hold
        struct.pack(">hhihih", 3, 1, 7, -1, 1, -1),  # a null name, which is not nullable
        struct.pack(">hhihih", 3, 1, 7, -1, 1, 30) + b"short",
        struct.pack(">hhih", 3, 9, 7, -1) + b"\0\xff\xff\xff\xff\xff\xff",  # a varint without end
        struct.pack(">hhih", 3, 9, 7, -1) + b"\0\x02\x03\xff\xfe\0",  # not UTF-8, and then too short
        struct.pack(">hhih", 0, 9, 7, -1) + b"\0\0\0\1\0\0\0\0\xff\xff\xff\xff\x07",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda payload: payload[:24].hex() or "empty",
)
def test_malformed_requests(bootstrap: str, payload: bytes) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(payload)
        assert connection.receive_frame() is None
    assert serves(bootstrap)


def test_bytes_after_a_request_are_ignored(bootstrap: str) -> None:
    """Kafka reads the fields that it knows, and goes on."""
    with Connection(bootstrap) as connection:
        connection.send_frame(API_VERSIONS + b"trailing bytes")
        frame = connection.receive_frame()
        assert frame is not None
        assert struct.unpack_from(">ih", frame) == (7, 0)
        assert connection.call("ApiVersions", 0)["error_code"] == 0


def test_random_bytes(bootstrap: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    noise = random.Random(seed)
    for _ in range(30):
        with Connection(bootstrap) as connection:
            payload = noise.randbytes(noise.randrange(1, 200))
            # An API key that exists, and then random bytes.
            head = struct.pack(">hh", noise.choice((0, 1, 2, 3, 18, 19, 22)), noise.randrange(0, 14))
            connection.send_frame(head + payload)
            connection.socket.shutdown(socket.SHUT_WR)
            connection.receive_frame()
    assert serves(bootstrap)


def test_a_half_closed_connection(bootstrap: str, name: str) -> None:
    """A peer that half-closes while its Fetch is delayed gets a response in time or none, and then the close."""
    session = Session(bootstrap)
    topic_id = session.topic(name)
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    values = {"max_wait_ms": 300, "min_bytes": 1, "topics": [{"topic_id": topic_id, "partitions": [row]}]}
    with Connection(bootstrap) as connection:
        connection.send("Fetch", 16, values)
        connection.socket.shutdown(socket.SHUT_WR)
        if connection.receive_frame() is not None:
            assert connection.receive_frame() is None
    session.close()


@pytest.mark.parametrize(
    "payload",
    [struct.pack(">hhih", 18, 0, 7, -5), struct.pack(">hhihi", 3, 1, 7, -1, -7)],
    ids=["string", "array"],
)
def test_negative_lengths_below_minus_1(bootstrap: str, target: str, payload: bytes) -> None:
    """For Kafka any negative length of a nullable field is null; for oncelog only -1 is, as the protocol says."""
    with Connection(bootstrap) as connection:
        connection.send_frame(payload)
        assert (connection.receive_frame() is None) == (target == "oncelog")


def test_a_request_byte_by_byte(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_frame(API_VERSIONS):
            connection.socket.sendall(bytes([byte]))
        frame = connection.receive_frame()
        assert frame is not None
        assert struct.unpack_from(">ih", frame) == (7, 0)


def test_a_truncated_request_appends_nothing(bootstrap: str, name: str) -> None:
    session = Session(bootstrap)
    session.topic(name)
    with Connection(bootstrap) as connection:
        body = connection.header(0, 9, flexible=True) + b"\0" * 10
        connection.socket.sendall(struct.pack(">i", 5000) + body)
    row = session.produce(name, batch(1))
    assert (row["error_code"], row["base_offset"]) == (0, 0)
    session.close()


def test_a_peer_that_never_reads(bootstrap: str, name: str) -> None:
    """While a peer does not read its responses, other clients are served; when it reads, it gets them all."""
    session = Session(bootstrap)
    topic_id = session.topic(name)
    for _ in range(4):
        assert session.produce(name, batch([record(b"k", b"x" * 900_000)]))["error_code"] == 0
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 22}
    values = {"max_wait_ms": 0, "max_bytes": 1 << 22, "topics": [{"topic_id": topic_id, "partitions": [row]}]}
    with Connection(bootstrap) as connection:
        sent = [connection.send("Fetch", 16, values) for _ in range(10)]
        assert serves(bootstrap)
        assert session.call_unobserved("Produce", 9, produce_request(name, batch(1)))["responses"]
        for correlation_id in sent:
            response = connection.receive("Fetch", 16, correlation_id)
            assert isinstance(response, dict)
            assert len(response["responses"][0]["partitions"][0]["records"]) > 3_600_000
    session.close()


def test_many_connections(bootstrap: str) -> None:
    connections = [Connection(bootstrap) for _ in range(100)]
    for connection in connections:
        connection.send("ApiVersions", 0, {})
    for connection in connections:
        assert connection.receive("ApiVersions", 0, 1)["api_keys"]  # type: ignore[index]
        connection.close()


ELEMENTS_MAX = {"kafka": 1_000_000, "oncelog": 100_000}
"""Of one array in Kafka, of a whole request in oncelog (docs/differences.md)."""
TAGS_MAX = 10_000


def varint(value: int) -> bytes:
    out = bytearray()
    put_uvarint(out, value)
    return bytes(out)


def tags(count: int) -> bytes:
    """A section of so many empty tagged fields that nobody knows."""
    return varint(count) + b"".join(varint(1000 + tag) + b"\0" for tag in range(count))


@pytest.mark.parametrize("more", [0, 1])
def test_the_elements_of_an_array(bootstrap: str, target: str, more: int) -> None:
    """ListGroups of states without names."""
    count = ELEMENTS_MAX[target] + more
    with Connection(bootstrap) as connection:
        connection.send_frame(
            connection.header(16, 4, flexible=True) + varint(count + 1) + b"\1" * count + b"\0"
        )
        assert (connection.receive_frame() is None) == bool(more)
    assert serves(bootstrap)


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("count", [ELEMENTS_MAX["kafka"] + 1, 2**31 - 2, 2**32 - 2])
def test_a_count_of_elements_that_are_not_there(bootstrap: str, count: int) -> None:
    with Connection(bootstrap) as connection:
        connection.send_frame(connection.header(16, 4, flexible=True) + varint(count + 1) + b"\1\0")
        assert connection.receive_frame() is None
    assert serves(bootstrap)


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("section", ["header", "request", "row", "both"])
def test_the_tagged_fields_of_a_section(bootstrap: str, section: str, more: int) -> None:
    """Each section has its own limit: in the last case a request may have twice as many."""
    many, none = tags(TAGS_MAX + more), b"\0"
    topic = bytes(16) + varint(2) + b"x"  # of Metadata 12: its id and name
    with Connection(bootstrap) as connection:
        header = connection.header(3, 12, flexible=True)
        if section == "header":
            payload = header[:-1] + many + b"\1" + b"\0\0" + none
        elif section == "request":
            payload = header + b"\1" + b"\0\0" + many
        elif section == "row":
            payload = header + b"\2" + topic + many + b"\0\0" + none
        else:
            payload = header[:-1] + tags(TAGS_MAX) + b"\1" + b"\0\0" + many
        connection.send_frame(payload)
        assert (connection.receive_frame() is None) == bool(more)
    assert serves(bootstrap)


@pytest.mark.also_on("proxy")
def test_a_count_of_tagged_fields_that_are_not_there(bootstrap: str) -> None:
    for count in (TAGS_MAX + 1, 2**31 - 1, 2**32 - 1):
        with Connection(bootstrap) as connection:
            connection.send_frame(
                connection.header(3, 12, flexible=True) + b"\1" + b"\0\0" + varint(count) + b"\0\0"
            )
            assert connection.receive_frame() is None
    assert serves(bootstrap)
