"""confluent-kafka as users call it, with a Python object per message."""

import contextlib
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.librdkafka import QUIET

BATCH_MESSAGES = 10_000
FLUSH_TIMEOUT_S = 120
CONSUME_TIMEOUT_S = 60
ARRIVAL_TIMEOUT_S = 30
CONSUMER_CONF = {"group.id": "bench", "enable.auto.commit": "false", "auto.offset.reset": "error"}


def produce(bootstrap: str, topic: str, value: bytes, count: int, conf: Mapping[str, str]) -> float:
    """Seconds from the first `produce_batch` to the end of the flush. One more message is sent before, to connect."""
    producer = Producer({"bootstrap.servers": bootstrap, "delivery.report.only.error": True, **QUIET, **conf})
    producer.produce(topic, value, partition=0)
    producer.flush(FLUSH_TIMEOUT_S)
    batch = [{"value": value}] * BATCH_MESSAGES
    start = time.perf_counter()
    left = count
    while left:
        with contextlib.suppress(BufferError):  # the queue is full
            left -= producer.produce_batch(topic, batch[:left], partition=0)
        producer.poll(0)  # delivery reports fill the queue until they are polled
    if producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError(f"not all of {count} messages were acknowledged in {FLUSH_TIMEOUT_S} s")
    return time.perf_counter() - start


def consume(bootstrap: str, topic: str, end_offset: int, conf: Mapping[str, str]) -> float:
    """Seconds from `assign` until the message before `end_offset` is returned."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER_CONF, **QUIET, **conf})
    try:
        start = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        next_offset = 0
        while next_offset < end_offset:
            # The call waits for as many messages as it is asked for, so never ask for more than are left.
            messages = consumer.consume(min(BATCH_MESSAGES, end_offset - next_offset), timeout=1)
            # Errors are ignored; one from which the client does not recover ends in the timeout below.
            next_offset = max(
                [next_offset, *((one.offset() or 0) + 1 for one in messages[-1:] if not one.error())]
            )
            if time.perf_counter() - start > CONSUME_TIMEOUT_S:
                raise RuntimeError(f"{topic}: only {next_offset} of {end_offset} in {CONSUME_TIMEOUT_S} s")
        return time.perf_counter() - start
    finally:
        consumer.close()


def latencies(bootstrap: str, topic: str, count: int, pace_s: float) -> list[float]:
    """Seconds from `produce` until a consumer returns the record, one record at a time."""
    conf = {"bootstrap.servers": bootstrap, **QUIET}
    producer = Producer({**conf, "linger.ms": 0, "acks": "1", "delivery.report.only.error": True})
    consumer = Consumer({**conf, **CONSUMER_CONF})
    latencies_s = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for number in range(-count // 10, count):  # the first tenth connects and warms up
            start = time.perf_counter()
            producer.produce(topic, b"%100d" % number, partition=0)
            while (message := consumer.poll(ARRIVAL_TIMEOUT_S)) is not None and message.error() is not None:
                pass  # an error such as a missing coordinator, which this consumer does not need
            if message is None:
                raise RuntimeError(f"record {number} did not arrive in {ARRIVAL_TIMEOUT_S} s")
            if number >= 0:
                latencies_s.append(time.perf_counter() - start)
            producer.poll(0)
            time.sleep(pace_s)
    finally:
        consumer.close()
    return latencies_s
