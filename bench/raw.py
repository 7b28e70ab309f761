"""Requests that are encoded once and sent many times over plain sockets, with hardly any cost of a client."""

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence

from kafka.record.default_records import DefaultRecordBatchBuilder

from oncelog.wire.framing import encode_frame
from oncelog.wire.header import encode_request_header
from tests.common.definitions import Fields, api_key, encode, is_flexible
from tests.common.frames import Connection, address

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
LATEST = -1
LISTED_TIMEOUT_S = 120
POLL_S = 0.005
SETTLE_S = 0.1  # between bursts of new connections, so that no listen queue overflows
BURST = 100
UNLIKELY_PARTITION = 0x7EFEFEFE
Latencies = Callable[[str, str, int, float], list[float]]
"""Measures latencies in seconds: of a bootstrap address, topic, count and pace in seconds."""


def batch(value: bytes) -> bytes:
    """A record batch with one record, encoded by kafka-python."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=len(value) + 1000,
    )
    builder.append(0, timestamp=int(time.time() * 1000), key=None, value=value, headers=[])
    return bytes(builder.build())


def produce_fields(topic: str, partition: int, records: bytes) -> Fields:
    data = [{"index": partition, "records": records}]
    return {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": data}]}


def fetch_fields(topic: str, partition: int) -> Fields:
    row = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [row]}],
    }


def request_frame(api: str, version: int, fields: Fields) -> bytes:
    """A framed request with correlation id 0."""
    head = encode_request_header(api_key(api), version, 0, "", is_flexible(api, version))
    return encode_frame(head, encode(f"{api}Request", version, fields))


class Template:
    """A framed request in which only the partition changes."""

    def __init__(self, api: str, version: int, fields: Callable[[int], Fields]) -> None:
        first, second = (
            request_frame(api, version, fields(partition)) for partition in (0, UNLIKELY_PARTITION)
        )
        # The frames of two partitions differ where the partition is.
        self._position = next(
            at for at, (one, other) in enumerate(zip(first, second, strict=True)) if one != other
        )
        self._frame = bytearray(first)

    def frame(self, partition: int) -> bytes:
        struct.pack_into(">i", self._frame, self._position, partition)
        return bytes(self._frame)


def connect(bootstrap: str, count: int) -> list[socket.socket]:
    """`count` new connections."""
    opened = []
    for number in range(count):
        opened.append(socket.create_connection(address(bootstrap), timeout=60))
        opened[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if number % BURST == BURST - 1:
            time.sleep(SETTLE_S)
    return opened


def _receive(connection: socket.socket) -> bytes:
    """The next response without its size; there must be only one."""
    response = connection.recv(1 << 16)
    while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
        more = connection.recv(1 << 16)
        if not more:
            raise RuntimeError("the server closed a connection instead of responding")
        response += more
    return response[4:]


def send_windowed(
    connections: Sequence[socket.socket], frames: Callable[[int], bytes], count: int, window: int
) -> bytes:
    """Send `count` requests on the connections in turn, with `window` in flight; returns the last response.

    No connection has two requests in flight, so that the server handles each on its own.
    """
    assert window <= len(connections)
    waiting: deque[socket.socket] = deque()
    response = b""
    for number in range(count):
        if len(waiting) == window:
            response = _receive(waiting.popleft())
        connection = connections[number % len(connections)]
        connection.sendall(frames(number))
        waiting.append(connection)
    while waiting:
        response = _receive(waiting.popleft())
    return response


def paced_latencies(bootstrap: str, frame: bytes, pace_s: float, done: Callable[[], bool]) -> list[float]:
    """Seconds from sending `frame` to its response, one request at a time, until `done`."""
    measured = []
    with socket.create_connection(address(bootstrap), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not done():
            start = time.perf_counter()
            connection.sendall(frame)
            _receive(connection)
            measured.append(time.perf_counter() - start)
            time.sleep(pace_s)
    return measured


def fetch_latencies(bootstrap: str, topic: str, count: int, pace_s: float) -> list[float]:
    """Seconds from sending a Produce of one record until a delayed fetch returns it, one at a time.

    This is the server's time and two wake-ups of this thread, without a client's own threads and queues.
    """
    measured = []
    with Connection(bootstrap) as producer, Connection(bootstrap) as consumer:
        for one in (producer, consumer):
            one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        record = request_frame("Produce", PRODUCE_VERSION, produce_fields(topic, 0, batch(b"x" * 100)))
        for offset in range(count):
            fields = fetch_fields(topic, 0)
            fields["max_wait_ms"], fields["min_bytes"] = 30_000, 1
            fields["topics"][0]["partitions"][0]["fetch_offset"] = offset
            consumer.send("Fetch", FETCH_VERSION, fields)
            time.sleep(pace_s)  # by now the Fetch is delayed
            start = time.perf_counter()
            producer.socket.sendall(record)
            _receive(consumer.socket)
            measured.append(time.perf_counter() - start)
            _receive(producer.socket)
    return measured


def wait_for_offsets(bootstrap: str, topic: str, partitions: int = 1) -> list[int]:
    """The latest offset of each partition; the request is repeated until no partition has an error."""
    rows = [
        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
        for partition in range(partitions)
    ]
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
    deadline = time.monotonic() + LISTED_TIMEOUT_S
    with Connection(bootstrap) as connection:
        while True:
            response = connection.call("ListOffsets", LIST_OFFSETS_VERSION, fields)
            found = response["topics"][0]["partitions"]
            errors = {row["error_code"] for row in found}
            if errors == {0}:
                return [int(row["offset"]) for row in found]
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: still errors {errors} after {LISTED_TIMEOUT_S} s")
            time.sleep(POLL_S)
