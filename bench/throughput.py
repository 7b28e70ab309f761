"""Records per second and server CPU per gigabyte, one partition; produce-to-consume latency."""

from collections.abc import Callable, Mapping

from bench import binding, librdkafka, raw, topics
from bench.experiment import (
    Experiment,
    Harness,
    Row,
    Target,
    Used,
    ratio_at_least,
    ratio_at_most,
    ratio_beside,
)
from bench.listeners import PLAINTEXT, SSL
from bench.measure import percentile
from bench.servers import COMPARED, Kind, Server

GIGABYTE = 1_000_000_000
TEXT = b'{"id": 1040, "event": "page_view", "path": "/cart/items", "ms": 31.5, "user": "u-57110"},'

# By default librdkafka sends batches of 10,000 records or 1 MB, after at most 5 ms.
UNBATCHED = {"batch.num.messages": "1", "linger.ms": "0", "queue.buffering.max.messages": "1000000"}
LZ4 = {"compression.codec": "lz4"}
# Let the client keep prefetched records; by default it pauses for a second when it has many.
CONSUMER = {"queued.min.messages": "10000000", "queued.max.messages.kbytes": "2097151"}
BINDING_PRODUCER = {"queue.buffering.max.messages": "1000000", "linger.ms": "20"}

READ_RECORDS_MIN = 600_000  # smaller topics are read several times
PRODUCERS = 2
LISTENERS = (PLAINTEXT, SSL)
OVER_TLS = ", over TLS"
TLS_LOSS = 0.1
"""By how much the ratio to Kafka may be smaller over TLS."""
LATENCY_RECORDS = 1500
LATENCY_PACE_S = 0.002


def measure(
    harness: Harness, server: Server, kind: Kind, row: str, count: int, size: int, call: Callable[[], float]
) -> None:
    """Run `call`, which returns its seconds, and record its rate and the CPU of server and client."""
    with Used(server) as used:
        seconds = call()
    used.seconds = seconds  # without the preparation, which uses next to no CPU
    harness.record(row, kind, count / seconds, used)
    gigabytes = count * size / GIGABYTE
    if kind is not Kind.DIRECT:
        harness.record(cpu_row(row), kind, used.server_s / gigabytes)


def value_of(size: int) -> bytes:
    return (TEXT * (size // len(TEXT) + 1))[:size]


def cpu_row(row: str) -> str:
    """The name of the row with the CPU that goes with a row of rates."""
    return f"server CPU: {row}"


def check_end(server: Server, topic: str, expected: int) -> None:
    found = topics.end_offset(server, topic)
    if found != expected:
        raise RuntimeError(f"{topic}: {expected} records were sent, its end offset is {found}")


def _rows(names_and_ratios: Mapping[str, float], listener: str) -> tuple[Row, ...]:
    """Rows of rates, then those of the server's CPU. Over TLS a rate is compared with the plaintext row's."""

    def target(name: str, ratio: float) -> Target:
        return ratio_at_least(ratio) if listener == PLAINTEXT else ratio_beside(_plaintext(name), -TLS_LOSS)

    cpu_target = None if listener == PLAINTEXT else ratio_at_most(1)
    rows = [Row(name, "records/s", target(name, ratio)) for name, ratio in names_and_ratios.items()]
    return (*rows, *(Row(cpu_row(row.name), "s/GB", cpu_target, is_cost=True) for row in rows))


def _over(listener: str, label: str) -> str:
    return label if listener == PLAINTEXT else label + OVER_TLS


def _plaintext(row: str) -> str:
    return row.replace(OVER_TLS, "")


def _stream(
    label: str,
    size: int,
    full_count: int,
    produce_ratio: float,
    conf: Mapping[str, str],
    listener: str = PLAINTEXT,
) -> Experiment:
    """Produce with acks=1 and acks=all to separate topics, and consume the first."""
    label = _over(listener, label)
    produced = {acks: f"produce {label}, acks={acks}" for acks in ("1", "all")}
    consumed = f"consume {label}"
    value = value_of(size)

    def run(harness: Harness, kind: Kind) -> None:
        server, count = harness.warm_server(kind), harness.count(full_count)
        to = harness.client(kind, listener)
        reads = max(1, READ_RECORDS_MIN // full_count)
        for acks, row in produced.items():
            topic = harness.name("stream")
            topics.create(server, topic)

            def produce(topic: str = topic, acks: str = acks) -> float:
                payloads = librdkafka.Payloads(value)
                settings = {**conf, **to, "acks": acks}
                return librdkafka.produce(server.bootstrap, topic, payloads, count, settings)

            def consume(topic: str = topic) -> float:
                settings = {**CONSUMER, **to}
                return sum(
                    librdkafka.consume(server.bootstrap, topic, count + 1, settings) for _ in range(reads)
                )

            measure(harness, server, kind, row, count, size, produce)
            check_end(server, topic, count + 1)
            if acks == "1":
                measure(harness, server, kind, consumed, reads * count, size, consume)
            topics.delete(server, topic)

    rows = _rows({**dict.fromkeys(produced.values(), produce_ratio), consumed: 1}, listener)
    return Experiment(label, rows, run, warm=True, ceiling=True)


def _together(
    label: str, size: int, full_count: int, conf: Mapping[str, str], listener: str = PLAINTEXT
) -> Experiment:
    """Produce with enough producers to keep the machine busy."""
    label = _over(listener, f"{label}, {PRODUCERS} producers")
    produced = {acks: f"produce {label}, acks={acks}" for acks in ("1", "all")}
    value = value_of(size)

    def run(harness: Harness, kind: Kind) -> None:
        server, count = harness.warm_server(kind), harness.count(full_count)
        for acks, row in produced.items():
            topic = harness.name("together")
            topics.create(server, topic, PRODUCERS)

            def produce(topic: str = topic, acks: str = acks) -> float:
                payloads = librdkafka.Payloads(value)
                settings = {**conf, **harness.client(kind, listener), "acks": acks}
                return librdkafka.produce_together(
                    server.bootstrap, topic, payloads, count, settings, PRODUCERS
                )

            measure(harness, server, kind, row, count, size, produce)
            ends = raw.wait_for_offsets(server.bootstrap, topic, PRODUCERS)
            if ends != [count // PRODUCERS + 1] * PRODUCERS:
                raise RuntimeError(f"{topic}: {count} records were sent, its end offsets are {ends}")
            topics.delete(server, topic)

    rows = _rows(dict.fromkeys(produced.values(), 1.25), listener)
    return Experiment(label, rows, run, warm=True, ceiling=True)


def _binding(size: int, full_count: int) -> Experiment:
    """Produce and consume through confluent-kafka's Python objects, which cost more than either server."""
    label = f"{size} B by the Python binding"
    produced, consumed = f"produce {label}, acks=1", f"consume {label}"
    value = value_of(size)

    def run(harness: Harness, kind: Kind) -> None:
        server, count, topic = harness.warm_server(kind), harness.count(full_count), harness.name("binding")
        topics.create(server, topic)

        def produce() -> float:
            conf = {**BINDING_PRODUCER, "acks": "1"}
            return binding.produce(server.bootstrap, topic, value, count, conf)

        def consume() -> float:
            return binding.consume(server.bootstrap, topic, count + 1, CONSUMER)

        measure(harness, server, kind, produced, count, size, produce)
        check_end(server, topic, count + 1)
        measure(harness, server, kind, consumed, count, size, consume)
        topics.delete(server, topic)

    rows = (Row(produced, "records/s"), Row(consumed, "records/s"))
    return Experiment(label, rows, run, warm=True, ceiling=True)


def latency(
    name: str,
    label: str,
    measure_s: raw.Latencies,
    targets: tuple[Target | None, Target | None] = (ratio_at_most(0.5), None),
    kinds: tuple[Kind, ...] = COMPARED,
) -> Experiment:
    """Latencies from `measure_s`; the targets are those of p50 and p99."""
    rows = tuple(
        Row(f"{label} p{percent}", "ms", target) for percent, target in zip((50, 99), targets, strict=True)
    )

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("latency")
        topics.create(server, topic)
        raw.wait_for_offsets(server.bootstrap, topic)
        with Used(server) as used:
            seconds = measure_s(server.bootstrap, topic, harness.count(LATENCY_RECORDS), LATENCY_PACE_S)
        for row, percent in zip(rows, (50, 99), strict=True):
            harness.record(row.name, kind, 1000 * percentile(seconds, percent), used)
        topics.delete(server, topic)

    return Experiment(name, rows, run, warm=True, ceiling=kinds == COMPARED, kinds=kinds)


EXPERIMENTS = (
    *(_stream("100 B", 100, 3_000_000, 1.25, {}, listener) for listener in LISTENERS),
    *(_stream("1 kB", 1000, 600_000, 1.25, {}, listener) for listener in LISTENERS),
    *(_stream("100 B lz4", 100, 3_000_000, 1.25, LZ4, listener) for listener in LISTENERS),
    *(_stream("100 B, one per request", 100, 60_000, 3.5, UNBATCHED, listener) for listener in LISTENERS),
    *(_together("100 B", 100, 4_000_000, {}, listener) for listener in LISTENERS),
    *(_together("100 B lz4", 100, 4_000_000, LZ4, listener) for listener in LISTENERS),
    _binding(100, 1_500_000),
    _binding(1000, 300_000),
    latency("latency", "produce-to-consume latency", binding.latencies),
    latency("latency of the server", "produce-to-fetch latency by plain sockets,", raw.fetch_latencies),
)
