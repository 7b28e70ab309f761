"""How long a paced Produce waits for its answer while the server has something else to do."""

import threading
import time
from functools import partial

from bench import librdkafka, topics
from bench.experiment import Experiment, Lab, Row
from bench.measure import drop_page_cache, log_bytes, percentile
from bench.raw import PRODUCE_VERSION, Template, batch, paced_latencies, produce_fields
from bench.servers import Kind, Server
from bench.throughput import CONSUMER
from compat_tests.frames import Connection

PACE_S = 0.002
QUIET_S = 5
COMPACTION_MAX_S = 30
COMPACTED_SHARE = 0.5  # of the bytes before: then the cleaner has been through most of it
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


def _probe(server: Server, topic: str) -> bytes:
    with Connection(server.bootstrap) as maker:
        records = batch(b"p" * 100)
        return Template(
            maker, "Produce", PRODUCE_VERSION, lambda one: produce_fields(topic, one, records)
        ).frame(0)


def _alone(lab: Lab, kind: Kind, server: Server, frame: bytes) -> None:
    end = time.monotonic() + QUIET_S * min(1, lab.scale * 4)
    measured = paced_latencies(server.bootstrap, frame, PACE_S, lambda: time.monotonic() > end)
    lab.record(ALONE.name, kind, 1000 * percentile(measured, 99))


def _compacting(lab: Lab, kind: Kind, server: Server, frame: bytes) -> None:
    topic = lab.name("compacted")
    segment_bytes = max(SEGMENT_BYTES_MIN, lab.count(SEGMENT_BYTES))
    config = {"segment.bytes": str(segment_bytes), "min.cleanable.dirty.ratio": "0.01"}
    topics.create(server, topic, config=config)
    payloads = librdkafka.Payloads(VALUE, [b"key-%d" % number for number in range(lab.count(KEYS))])
    librdkafka.produce(server.bootstrap, topic, payloads, lab.count(COMPACTED_RECORDS), PRODUCER)
    full = log_bytes(server.data_dir, topic)
    topics.alter(server, topic, "cleanup.policy", "compact")
    began = time.monotonic()

    def done() -> bool:
        cleaned = log_bytes(server.data_dir, topic) < full * COMPACTED_SHARE
        return cleaned or time.monotonic() - began > COMPACTION_MAX_S

    measured = paced_latencies(server.bootstrap, frame, PACE_S, done)
    lab.record(COMPACTING.name, kind, 1000 * percentile(measured, 99))
    left = log_bytes(server.data_dir, topic)
    took = time.monotonic() - began
    lab.note(f"{kind} compacted {full >> 20} MiB to {left >> 20} MiB in {took:.1f} s, {len(measured)} probes")
    topics.delete(server, topic)


def _read(server: Server, topic: str, end_offset: int, times: list[float]) -> None:
    times.append(librdkafka.consume(server.bootstrap, topic, end_offset, CONSUMER))


def _cold(lab: Lab, kind: Kind, server: Server, frame: bytes) -> None:
    topic, count = lab.name("cold"), lab.count(COLD_RECORDS)
    topics.create(server, topic)
    librdkafka.produce(server.bootstrap, topic, librdkafka.Payloads(VALUE), count, PRODUCER)
    measured, seconds, cold = [], 0.0, []
    for _ in range(COLD_READS):
        cold.append(drop_page_cache(server.data_dir, topic))
        times: list[float] = []
        reader = threading.Thread(target=_read, args=(server, topic, count + 1, times))
        reader.start()
        measured += paced_latencies(server.bootstrap, frame, PACE_S, partial(_is_over, reader))
        reader.join()
        if not times:
            raise RuntimeError(f"{topic} could not be read while it was cold")
        seconds += times[0]
    lab.record(COLD.name, kind, 1000 * percentile(measured, 99))
    lab.record(COLD_RATE.name, kind, COLD_READS * count / seconds)
    lab.note(
        f"{kind}: {min(cold):.0%} or more of the topic was out of the page cache, {len(measured)} probes"
    )


def _run(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind, PROPERTIES) as fresh:
        server = fresh.server.start()
        topics.create(server, "probed")
        frame = _probe(server, "probed")
        paced_latencies(server.bootstrap, frame, 0, _after(lab.count(5_000)))  # the JVM compiles
        _alone(lab, kind, server, frame)
        _compacting(lab, kind, server, frame)
        _cold(lab, kind, server, frame)


class _after:  # noqa: N801 - used as a function
    """True from the call after `count` calls on."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


EXPERIMENTS = (Experiment("disturbed", (ALONE, COMPACTING, COLD, COLD_RATE), _run, rounds_max=2),)


def _is_over(thread: threading.Thread) -> bool:
    return not thread.is_alive()
