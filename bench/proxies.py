"""The cost of a proxy: one Kafka is measured directly, through oncelog and through Kroxylicious.

The three ways are measured in turn, with the same client and the same Kafka. CPU and memory are the proxy's alone.
"""

from collections.abc import Mapping

from bench import binding, librdkafka, raw, topics
from bench.experiment import Experiment, Harness, Row, ours_at_most, ratio_at_least, ratio_at_most
from bench.measure import resident_mb
from bench.servers import PATHS, Kind
from bench.throughput import (
    CONSUMER,
    READ_RECORDS_MIN,
    UNBATCHED,
    check_end,
    cpu_row,
    latency,
    measure,
    value_of,
)

NAME = "proxy: "
NOT_BEHIND = ratio_at_least(1), ratio_at_most(0.5)
"""The targets of a rate and of the CPU for it, beside Kroxylicious."""
CONNECTIONS = 1_000
CONNECTED = Row(f"{NAME}memory with {CONNECTIONS:,} connections", "MB", ours_at_most(60))
VALUE = b"v" * 100


def _stream(label: str, size: int, full_count: int, conf: Mapping[str, str]) -> Experiment:
    """Produce with acks=1, and consume."""
    produced, consumed = f"{NAME}produce {label}", f"{NAME}consume {label}"
    value = value_of(size)

    def run(harness: Harness, kind: Kind) -> None:
        server, count, topic = harness.warm_server(kind), harness.count(full_count), harness.name("stream")
        reads = max(1, READ_RECORDS_MIN // full_count)
        topics.create(server, topic)

        def produce() -> float:
            payloads = librdkafka.Payloads(value)
            return librdkafka.produce(server.bootstrap, topic, payloads, count, {**conf, "acks": "1"})

        def consume() -> float:
            return sum(librdkafka.consume(server.bootstrap, topic, count + 1, CONSUMER) for _ in range(reads))

        measure(harness, server, kind, produced, count, size, produce)
        check_end(server, topic, count + 1)
        measure(harness, server, kind, consumed, reads * count, size, consume)
        topics.delete(server, topic)

    rate, cost = NOT_BEHIND
    rows = (
        Row(produced, "records/s", rate),
        Row(consumed, "records/s", rate),
        Row(cpu_row(produced), "s/GB", cost, is_cost=True),
        Row(cpu_row(consumed), "s/GB", cost, is_cost=True),
    )
    return Experiment(f"{NAME}{label}", rows, run, warm=True, kinds=PATHS)


def _connections(harness: Harness, kind: Kind) -> None:
    """The proxy's memory with many clients, each of which has sent a Produce and a Fetch."""
    if kind is Kind.DIRECT:
        return
    server, topic = harness.warm_server(kind), harness.name("connections")
    topics.create(server, topic)
    raw.wait_for_offsets(server.bootstrap, topic)
    produce = raw.request_frame(
        "Produce", raw.PRODUCE_VERSION, raw.produce_fields(topic, 0, raw.batch(VALUE))
    )
    fetch = raw.request_frame("Fetch", raw.FETCH_VERSION, raw.fetch_fields(topic, 0))
    opened = raw.connect(server.bootstrap, harness.count(CONNECTIONS))
    try:
        for frame in (produce, fetch):
            raw.send_windowed(opened, lambda _, frame=frame: frame, len(opened), 1)  # type: ignore[misc]
        harness.record(CONNECTED.name, kind, resident_mb(server.pid))
    finally:
        for connection in opened:
            connection.close()
    topics.delete(server, topic)


def _latency(what: str, label: str, measure_s: raw.Latencies) -> Experiment:
    targets = ratio_at_most(1), ratio_at_most(1)
    return latency(f"{NAME}{what}", f"{NAME}{label}", measure_s, targets, PATHS)


EXPERIMENTS = (
    _stream("100 B", 100, 3_000_000, {}),
    _stream("1 kB", 1000, 600_000, {}),
    _stream("100 B, one per request", 100, 30_000, UNBATCHED),
    _latency("latency", "produce-to-consume latency", binding.latencies),
    _latency("latency by sockets", "produce-to-fetch latency by plain sockets,", raw.fetch_latencies),
    Experiment(f"{NAME}connections", (CONNECTED,), _connections, warm=True, kinds=PATHS),
)
