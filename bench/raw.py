"""Requests made once and sent many times over plain sockets: what a server costs, and little of a client."""

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence

from kafka.record.default_records import DefaultRecordBatchBuilder

from compat_tests.definitions import Fields
from compat_tests.frames import Connection, address
from oncelog.wire.framing import SIZE_BYTES, encode_frame

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
LATEST = -1
LISTED_TIMEOUT_S = 120
POLL_S = 0.005
SETTLE_S = 0.1  # between bursts of new connections, so that no listen queue runs over
BURST = 100


def batch(value: bytes) -> bytes:
    """A record batch with one record, by kafka-python."""
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
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }


class Template:
    """A framed request in which only the partition changes from one sending to the next."""

    def __init__(
        self, connection: Connection, api: str, version: int, fields: Callable[[int], Fields]
    ) -> None:
        from compat_tests.definitions import api_key, encode, is_flexible

        head = connection.header(api_key(api), version, flexible=is_flexible(api, version))
        # Where the partition stands is where the encodings of two partitions differ.
        one, other = (encode(f"{api}Request", version, fields(partition)) for partition in (0, 0x7EFEFEFE))
        position = next(
            place for place, (left, right) in enumerate(zip(one, other, strict=True)) if left != right
        )
        self._frame = bytearray(encode_frame(head, one))
        self._position = SIZE_BYTES + len(head) + position

    def frame(self, partition: int) -> bytes:
        struct.pack_into(">i", self._frame, self._position, partition)
        return bytes(self._frame)


def connect(bootstrap: str, count: int) -> list[socket.socket]:
    """`count` connections that the server has accepted and answers on."""
    opened = []
    for number in range(count):
        opened.append(socket.create_connection(address(bootstrap), timeout=60))
        opened[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if number % BURST == BURST - 1:
            time.sleep(SETTLE_S)
    return opened


def _receive(one: socket.socket) -> bytes:
    answer = one.recv(1 << 16)
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        more = one.recv(1 << 16)
        if not more:
            raise RuntimeError("the server closed a connection instead of answering")
        answer += more
    return answer[4:]


def slide(
    connections: Sequence[socket.socket], frames: Callable[[int], bytes], count: int, window: int
) -> bytes:
    """Send `count` requests over the connections in turn, `window` of them unanswered at a time; the last answer.

    No connection ever has two unanswered ones: what a request costs is not shared with a neighbour.
    """
    assert window <= len(connections)
    waiting: deque[socket.socket] = deque()
    answer = b""
    for number in range(count):
        if len(waiting) == window:
            answer = _receive(waiting.popleft())
        one = connections[number % len(connections)]
        one.sendall(frames(number))
        waiting.append(one)
    while waiting:
        answer = _receive(waiting.popleft())
    return answer


def paced_latencies(bootstrap: str, frame: bytes, pace_s: float, done: Callable[[], bool]) -> list[float]:
    """Seconds from sending `frame` to its answer, one at a time, until `done`."""
    measured = []
    with socket.create_connection(address(bootstrap), timeout=60) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not done():
            start = time.perf_counter()
            one.sendall(frame)
            _receive(one)
            measured.append(time.perf_counter() - start)
            time.sleep(pace_s)
    return measured


def poll_latencies(bootstrap: str, topic: str, count: int, pace_s: float) -> list[float]:
    """Seconds from sending a Produce of one record until a waiting Fetch was answered with it, one at a time.

    What the server takes, and two wake-ups of one thread of ours: no client's own threads and queues.
    """
    measured = []
    with Connection(bootstrap) as producer, Connection(bootstrap) as consumer:
        for one in (producer, consumer):
            one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        record = Template(
            producer,
            "Produce",
            PRODUCE_VERSION,
            lambda partition: produce_fields(topic, partition, batch(b"x" * 100)),
        ).frame(0)
        for offset in range(count):
            fields = fetch_fields(topic, 0)
            fields["max_wait_ms"], fields["min_bytes"] = 30_000, 1
            fields["topics"][0]["partitions"][0]["fetch_offset"] = offset
            consumer.send("Fetch", FETCH_VERSION, fields)
            time.sleep(pace_s)  # the Fetch waits by now
            start = time.perf_counter()
            producer.socket.sendall(record)
            _receive(consumer.socket)
            measured.append(time.perf_counter() - start)
            _receive(producer.socket)
    return measured


def wait_until_listed(bootstrap: str, topic: str, partitions: int = 1) -> list[int]:
    """The latest offset of each partition, asked again until the server gives them all without an error."""
    wanted = [
        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
        for partition in range(partitions)
    ]
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": wanted}]}
    deadline = time.monotonic() + LISTED_TIMEOUT_S
    with Connection(bootstrap) as connection:
        while True:
            answer = connection.call("ListOffsets", LIST_OFFSETS_VERSION, fields)
            found = answer["topics"][0]["partitions"]
            errors = {one["error_code"] for one in found}
            if errors == {0}:
                return [int(one["offset"]) for one in found]
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: still errors {errors} after {LISTED_TIMEOUT_S} s")
            time.sleep(POLL_S)
