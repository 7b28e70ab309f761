"""How long a paced Produce waits for its response while the server has something else to do."""

import threading
import time
from functools import partial

from bench import librdkafka, topics
from bench.experiment import Experiment, Harness, Row
from bench.measure import drop_page_cache, log_bytes, percentile
from bench.raw import PRODUCE_VERSION, batch, paced_latencies, produce_fields, request_frame
from bench.servers import Kind, Server
from bench.throughput import CONSUMER

PACE_S = 0.002
QUIET_S = 5
COMPACTION_MAX_S = 30
COMPACTED_SHARE = 0.5  # of the bytes before: when so few are left, the cleaner has read most of the log
COLD_READS = 4
KEYS = 10_000
COMPACTED_RECORDS = 400_000
COLD_RECORDS = 1_000_000
VALUE = b"v" * 1000
PRODUCER = {"acks": "1", "queue.buffering.max.messages": "1000000"}
PROPERTIES = {"log.cleaner.backoff.ms": "200"}
SEGMENT_BYTES, SEGMENT_BYTES_MIN = 16 << 20, 1 << 20

ALONE = Row("produce p99, nothing else", "ms")
COMPACTING = Row("produce p99 while compacting", "ms")
COLD = Row("produce p99 while a cold topic is read", "ms")
COLD_RATE = Row("consume 1 kB, cold, beside a paced producer", "records/s")


def _probe_frame(server: Server, topic: str) -> bytes:
    """The frame of the paced Produce."""
    return request_frame("Produce", PRODUCE_VERSION, produce_fields(topic, 0, batch(b"p" * 100)))


def _alone(harness: Harness, kind: Kind, server: Server, frame: bytes) -> None:
    end = time.monotonic() + QUIET_S * min(1, harness.scale * 4)
    measured = paced_latencies(server.bootstrap, frame, PACE_S, lambda: time.monotonic() > end)
    harness.record(ALONE.name, kind, 1000 * percentile(measured, 99))


def _compacting(harness: Harness, kind: Kind, server: Server, frame: bytes) -> None:
    topic = harness.name("compacted")
    segment_bytes = max(SEGMENT_BYTES_MIN, harness.count(SEGMENT_BYTES))
    config = {"segment.bytes": str(segment_bytes), "min.cleanable.dirty.ratio": "0.01"}
    topics.create(server, topic, config=config)
    payloads = librdkafka.Payloads(VALUE, [b"key-%d" % number for number in range(harness.count(KEYS))])
    librdkafka.produce(server.bootstrap, topic, payloads, harness.count(COMPACTED_RECORDS), PRODUCER)
    full = log_bytes(server.data_dir, topic)
    topics.alter(server, topic, "cleanup.policy", "compact")
    began = time.monotonic()

    def done() -> bool:
        cleaned = log_bytes(server.data_dir, topic) < full * COMPACTED_SHARE
        return cleaned or time.monotonic() - began > COMPACTION_MAX_S

    measured = paced_latencies(server.bootstrap, frame, PACE_S, done)
    harness.record(COMPACTING.name, kind, 1000 * percentile(measured, 99))
    left = log_bytes(server.data_dir, topic)
    took = time.monotonic() - began
    harness.note(
        f"{kind} compacted {full >> 20} MiB to {left >> 20} MiB in {took:.1f} s, {len(measured)} probes"
    )
    topics.delete(server, topic)


def _read(server: Server, topic: str, end_offset: int, times: list[float]) -> None:
    times.append(librdkafka.consume(server.bootstrap, topic, end_offset, CONSUMER))


def _cold(harness: Harness, kind: Kind, server: Server, frame: bytes) -> None:
    topic, count = harness.name("cold"), harness.count(COLD_RECORDS)
    topics.create(server, topic)
    librdkafka.produce(server.bootstrap, topic, librdkafka.Payloads(VALUE), count, PRODUCER)
    measured, seconds, cold_shares = [], 0.0, []
    for _ in range(COLD_READS):
        cold_shares.append(drop_page_cache(server.data_dir, topic))
        times: list[float] = []
        reader = threading.Thread(target=_read, args=(server, topic, count + 1, times))
        reader.start()
        measured += paced_latencies(server.bootstrap, frame, PACE_S, partial(_is_over, reader))
        reader.join()
        if not times:
            raise RuntimeError(f"the cold topic {topic} could not be read")
        seconds += times[0]
    harness.record(COLD.name, kind, 1000 * percentile(measured, 99))
    harness.record(COLD_RATE.name, kind, COLD_READS * count / seconds)
    harness.note(
        f"{kind}: at least {min(cold_shares):.0%} of the topic was not in the page cache, {len(measured)} probes"
    )


def _run(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind, PROPERTIES) as fresh:
        server = fresh.server.start()
        topics.create(server, "probed")
        frame = _probe_frame(server, "probed")
        paced_latencies(server.bootstrap, frame, 0, CallLimit(harness.count(5_000)))  # warms up the JVM
        _alone(harness, kind, server, frame)
        _compacting(harness, kind, server, frame)
        _cold(harness, kind, server, frame)


class CallLimit:
    """False when called for the first `count` times, then True."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


EXPERIMENTS = (Experiment("disturbed", (ALONE, COMPACTING, COLD, COLD_RATE), _run, rounds_max=2),)


def _is_over(thread: threading.Thread) -> bool:
    return not thread.is_alive()
