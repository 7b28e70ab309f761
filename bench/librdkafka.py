"""librdkafka without Python objects per message, so that the client costs as little as possible.

ctypes calls the library in confluent-kafka's wheel, or the system's: it queues whole arrays of messages, and passes
consumed messages to a C function that ignores them. Structures and functions are rdkafka.h's.
"""

import contextlib
import ctypes
import ctypes.util
import functools
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka

PRODUCER, CONSUMER = 0, 1  # rd_kafka_type_t
MSG_F_COPY = 2
OFFSET_BEGINNING = -2
ERROR_BYTES = 512
BATCH_MESSAGES = 1000
FLUSH_TIMEOUT_MS = 120_000
METADATA_TIMEOUT_MS = 20_000
CONSUME_TIMEOUT_S = 60
POLL_MS = 100
RESUME_POLL_S = 0.0002
FILLED_SHARE = 10  # one in ten of all messages may be queued before the measurement starts
QUIET = {"log_level": "2"}  # no warnings about servers that stop

Handle = ctypes.c_void_p


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = [
        ("err", ctypes.c_int),
        ("rkt", Handle),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = [
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    ]


class TopicPartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = [
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(TopicPartition)),
    ]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (Handle, []),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        [Handle, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t],
    ),
    "rd_kafka_new": (Handle, [ctypes.c_int, Handle, ctypes.c_char_p, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [Handle]),
    "rd_kafka_topic_new": (Handle, [Handle, ctypes.c_char_p, Handle]),
    "rd_kafka_topic_destroy": (None, [Handle]),
    "rd_kafka_metadata": (ctypes.c_int, [Handle, ctypes.c_int, Handle, ctypes.POINTER(Handle), ctypes.c_int]),
    "rd_kafka_metadata_destroy": (None, [Handle]),
    "rd_kafka_produce_batch": (ctypes.c_int, [Handle, ctypes.c_int32, ctypes.c_int, Handle, ctypes.c_int]),
    "rd_kafka_poll": (ctypes.c_int, [Handle, ctypes.c_int]),
    "rd_kafka_outq_len": (ctypes.c_int, [Handle]),
    "rd_kafka_flush": (ctypes.c_int, [Handle, ctypes.c_int]),
    "rd_kafka_consume_start": (ctypes.c_int, [Handle, ctypes.c_int32, ctypes.c_int64]),
    "rd_kafka_consume_stop": (ctypes.c_int, [Handle, ctypes.c_int32]),
    "rd_kafka_consume_callback": (
        ctypes.c_int,
        [Handle, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "rd_kafka_topic_partition_list_new": (ctypes.POINTER(TopicPartitionList), [ctypes.c_int]),
    "rd_kafka_topic_partition_list_add": (
        ctypes.c_void_p,
        [ctypes.POINTER(TopicPartitionList), ctypes.c_char_p, ctypes.c_int32],
    ),
    "rd_kafka_topic_partition_list_destroy": (None, [ctypes.POINTER(TopicPartitionList)]),
    "rd_kafka_position": (ctypes.c_int, [Handle, ctypes.POINTER(TopicPartitionList)]),
    "rd_kafka_pause_partitions": (ctypes.c_int, [Handle, ctypes.POINTER(TopicPartitionList)]),
    "rd_kafka_resume_partitions": (ctypes.c_int, [Handle, ctypes.POINTER(TopicPartitionList)]),
    "rd_kafka_version_str": (ctypes.c_char_p, []),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library with the functions' signatures. Raises OSError if there is none."""
    wheel = pathlib.Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    bundled = sorted(wheel.glob("librdkafka-*.so*"))
    path = str(bundled[0]) if bundled else ctypes.util.find_library("rdkafka")
    if path is None:
        raise OSError("no librdkafka: neither in confluent-kafka's wheel nor in the system")
    loaded = ctypes.CDLL(path)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def version() -> str:
    return str(library().rd_kafka_version_str().decode())


class Client:
    """A producer or simple consumer of one topic. The constructor connects and fetches the topic's metadata."""

    def __init__(self, kind: int, bootstrap: str, topic: str, conf: Mapping[str, str]) -> None:
        self.topic = topic.encode()
        error = ctypes.create_string_buffer(ERROR_BYTES)
        native = library().rd_kafka_conf_new()
        for key, value in {"bootstrap.servers": bootstrap, **QUIET, **conf}.items():
            if library().rd_kafka_conf_set(native, key.encode(), value.encode(), error, ERROR_BYTES) != 0:
                raise ValueError(error.value.decode())
        self.handle = library().rd_kafka_new(kind, native, error, ERROR_BYTES)
        if not self.handle:
            raise RuntimeError(error.value.decode())
        self.topic_handle = library().rd_kafka_topic_new(self.handle, self.topic, None)
        metadata = Handle()
        code = library().rd_kafka_metadata(
            self.handle, 0, self.topic_handle, ctypes.byref(metadata), METADATA_TIMEOUT_MS
        )
        if code != 0:
            raise RuntimeError(f"librdkafka: no metadata of {topic}: error {code}")
        library().rd_kafka_metadata_destroy(metadata)

    def close(self) -> None:
        library().rd_kafka_topic_destroy(self.topic_handle)
        library().rd_kafka_destroy(self.handle)

    def position(self, partition: int) -> int:
        """The offset after the last consumed message; negative before the first."""
        with self._partition_list(partition) as partitions:
            library().rd_kafka_position(self.handle, partitions)
            return int(partitions.contents.elements[0].offset)

    def pause(self, partition: int, *, paused: bool = True) -> None:
        """Stop sending queued messages, or with `paused=False` resume."""
        change = library().rd_kafka_pause_partitions if paused else library().rd_kafka_resume_partitions
        with self._partition_list(partition) as partitions:
            if change(self.handle, partitions) != 0:
                raise RuntimeError(f"partition {partition} of {self.topic!r} cannot be paused or resumed")

    @contextlib.contextmanager
    def _partition_list(self, partition: int) -> Iterator[Any]:
        partitions = library().rd_kafka_topic_partition_list_new(1)
        try:
            library().rd_kafka_topic_partition_list_add(partitions, self.topic, partition)
            yield partitions
        finally:
            library().rd_kafka_topic_partition_list_destroy(partitions)


class Payloads:
    """An array of messages that is sent repeatedly: all have the same value, and one of `keys` each."""

    def __init__(self, value: bytes, keys: Sequence[bytes] = ()) -> None:
        self._value = ctypes.create_string_buffer(value, len(value))
        self._keys = [ctypes.create_string_buffer(key, len(key)) for key in keys]
        self.array = (Message * (len(keys) or BATCH_MESSAGES))()
        for message in self.array:
            message.payload, message.len = ctypes.addressof(self._value), len(value)
        for message, key in zip(self.array, self._keys, strict=False):
            message.key, message.key_len = ctypes.addressof(key), len(key)


def _queue(client: Client, payloads: Payloads, start: int, count: int, partition: int) -> int:
    """Queue ``count`` payloads from ``start`` on; returns how many fitted into the queue."""
    messages = ctypes.byref(payloads.array, start * ctypes.sizeof(Message))
    return int(library().rd_kafka_produce_batch(client.topic_handle, partition, MSG_F_COPY, messages, count))


def _fill(client: Client, payloads: Payloads, count: int, partition: int) -> int:
    """Queue up to ``count`` messages, or until the queue is full, without sending any; returns their number."""
    client.pause(partition)
    length = len(payloads.array)
    filled = 0
    while filled < count:
        offered = min(BATCH_MESSAGES, count - filled, length)
        queued = _queue(client, payloads, 0, offered, partition)
        filled += queued
        if queued < offered:
            break
    return filled


def _send(client: Client, payloads: Payloads, count: int, partition: int, filled: int = 0) -> None:
    """Send ``count`` messages, of which ``filled`` are already queued, and wait for all acknowledgements."""
    left, start = count - filled, 0
    length = len(payloads.array)
    while left:
        offered = min(BATCH_MESSAGES, left, length - start)
        queued = _queue(client, payloads, start, offered, partition)
        left -= queued
        start = (start + queued) % length
        if queued < offered:  # the queue is full
            library().rd_kafka_poll(client.handle, 1)
    if library().rd_kafka_flush(client.handle, FLUSH_TIMEOUT_MS) != 0:
        raise RuntimeError(f"not all of {count} messages were acknowledged in {FLUSH_TIMEOUT_MS} ms")


def produce(
    bootstrap: str, topic: str, payloads: Payloads, count: int, conf: Mapping[str, str], partition: int = 0
) -> float:
    """Seconds to produce ``count`` messages, from the first acknowledgements to the end of the flush.

    One more message is sent before, to connect, and the queue is full at the start, as a busy producer's is. An empty
    queue may stay empty: the thread that queues and the thread that sends and frees then contend for a lock at every
    message, and the throughput is half. Chance decides that in the first moments, and a fast server makes it likelier.

    A failed message goes unnoticed: callers compare the partition's end offset.
    """
    client = Client(PRODUCER, bootstrap, topic, {"delivery.report.only.error": "true", **conf})
    try:
        _send(client, payloads, 1, partition)
        filled = _fill(client, payloads, count // FILLED_SHARE, partition)
        client.pause(partition, paused=False)
        while (queued := library().rd_kafka_outq_len(client.handle)) >= filled:
            time.sleep(RESUME_POLL_S)  # the queue's thread may take a second to notice the resumption
        start = time.perf_counter()
        left = count - filled + queued
        _send(client, payloads, count, partition, filled)
        seconds: float = (time.perf_counter() - start) * count / left
        return seconds
    finally:
        client.close()


def produce_together(
    bootstrap: str, topic: str, payloads: Payloads, count: int, conf: Mapping[str, str], producers: int
) -> float:
    """Seconds to produce ``count`` messages in all with several producers, each to its own partition.

    A single producer's thread is slower than either server. Several keep the machine busy, so that a server that needs
    less CPU is faster. (A thread releases the GIL while it is inside the library.)
    """
    clients = [
        Client(PRODUCER, bootstrap, topic, {"delivery.report.only.error": "true", **conf})
        for _ in range(producers)
    ]
    try:
        with ThreadPoolExecutor(producers) as pool:
            partitions = range(producers)
            list(pool.map(lambda partition: _send(clients[partition], payloads, 1, partition), partitions))
            share = count // producers
            start = time.perf_counter()
            list(
                pool.map(lambda partition: _send(clients[partition], payloads, share, partition), partitions)
            )
            return time.perf_counter() - start
    finally:
        for client in clients:
            client.close()


def consume(
    bootstrap: str, topic: str, end_offset: int, conf: Mapping[str, str], partition: int = 0
) -> float:
    """Seconds from the first fetch until the message before `end_offset` is consumed."""
    client = Client(CONSUMER, bootstrap, topic, conf)
    # The consumer's callback: any exported function that takes a message and changes nothing.
    ignore = ctypes.cast(library().rd_kafka_message_status, ctypes.c_void_p)
    served = 0  # messages, and a few events
    try:
        start = time.perf_counter()
        library().rd_kafka_consume_start(client.topic_handle, partition, OFFSET_BEGINNING)
        while served < end_offset or client.position(partition) < end_offset:
            served += library().rd_kafka_consume_callback(
                client.topic_handle, partition, POLL_MS, ignore, None
            )
            if time.perf_counter() - start > CONSUME_TIMEOUT_S:
                raise RuntimeError(f"{topic}: only {served} of {end_offset} in {CONSUME_TIMEOUT_S} s")
        return time.perf_counter() - start
    finally:
        library().rd_kafka_consume_stop(client.topic_handle, partition)
        client.close()
