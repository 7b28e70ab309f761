"""Reading and acknowledging with a share group, through librdkafka's share consumer and Java's.

Records come in batches of 1 or of 500, and so they are acquired and acknowledged: a batch is read, accepted and stored
before the next one.
"""

import re
import time

from confluent_kafka import ShareConsumer

from bench import topics
from bench.experiment import Experiment, Harness, Row, Used, ratio_at_least
from bench.librdkafka import QUIET
from bench.servers import Kind, Server
from compat_tests.batches import batch, record
from compat_tests.definitions import Fields
from compat_tests.frames import Connection
from compat_tests.real_kafka import TOOL_JVM_OPTIONS, run_tool

VALUE = b"v" * 100
COUNTS = {1: 4_000, 500: 200_000}
WARM_UP = 500
TIMEOUT_S = 120
IN_FLIGHT = 50
PERF_TEST = "org.apache.kafka.tools.ShareConsumerPerformance"
GROUP_RESOURCE = 32
NUMBER_OF_RATE = 3
"""Among the numbers after the times: MB, MB and records a second, records."""


def _fill(server: Server, topic: str, count: int, size: int) -> None:
    """Append ``count`` records in batches of ``size``."""
    records = batch([record(None, VALUE, offset_delta=number) for number in range(size)])
    rows = [{"index": 0, "records": records}]
    fields: Fields = {
        "acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": rows}]
    }  # fmt: skip
    with Connection(server.bootstrap) as connection:
        waiting: list[int] = []
        for _ in range(count // size):
            waiting.append(connection.send("Produce", 9, fields))
            if len(waiting) >= IN_FLIGHT:
                connection.receive("Produce", 9, waiting.pop(0))
        for one in waiting:
            connection.receive("Produce", 9, one)


def _read_from_the_beginning(server: Server, group: str) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]}
    with Connection(server.bootstrap) as connection:
        connection.call("IncrementalAlterConfigs", 1, {"resources": [resource]})


def _librdkafka(size: int) -> Experiment:
    label = f"share group, librdkafka, batches of {size}"
    rate = Row(label, "records/s", ratio_at_least(1))
    server_cpu = Row(f"server CPU: {label}", "us each", is_cost=True)

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("shares")
        topics.create(server, topic)
        count = harness.count(COUNTS[size]) // size * size
        _fill(server, topic, WARM_UP + count, size)
        _read_from_the_beginning(server, topic)
        settings = {
            "bootstrap.servers": server.bootstrap,
            "group.id": topic,
            "max.poll.records": size,
            **QUIET,
        }
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            _read(consumer, WARM_UP)
            with Used(server) as used:
                read = _read(consumer, count)
        harness.record(rate.name, kind, read / used.seconds, used)
        harness.record(server_cpu.name, kind, used.server_s / read * 1e6)
        topics.delete(server, topic)

    return Experiment(label, (rate, server_cpu), run, warm=True)


def _read(consumer: ShareConsumer, count: int) -> int:
    """Read at least ``count`` records, accept each batch before the next; return how many there were."""
    read = 0
    deadline = time.monotonic() + TIMEOUT_S
    while read < count:
        found = len(consumer.poll(1.0))
        read += found
        if found:
            consumer.commit_sync(30.0)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{read} of {count} records after {TIMEOUT_S} s")
    return read


def _java(size: int) -> Experiment:
    label = f"share group, kafka-share-consumer-perf-test, batches of {size}"
    rate = Row(label, "records/s", ratio_at_least(1))

    def run(harness: Harness, kind: Kind) -> None:
        server, topic = harness.warm_server(kind), harness.name("shares")
        topics.create(server, topic)
        count = harness.count(COUNTS[size]) // size * size
        _fill(server, topic, count, size)
        _read_from_the_beginning(server, topic)
        shown = run_tool(
            PERF_TEST, "--bootstrap-server", server.bootstrap, "--topic", topic, "--group", topic,
            "--num-records", str(count), "--timeout", str(TIMEOUT_S * 1000), "--hide-header",
            "--command-property", f"max.poll.records={size}",
            jvm_options=TOOL_JVM_OPTIONS, timeout_s=2 * TIMEOUT_S,
        ).stdout  # fmt: skip
        numbers = [float(one) for one in re.findall(r", (\d+(?:\.\d+)?)", shown)]
        harness.record(rate.name, kind, numbers[NUMBER_OF_RATE])
        topics.delete(server, topic)

    return Experiment(label, (rate,), run, warm=True)


EXPERIMENTS = (*(_librdkafka(size) for size in COUNTS), *(_java(size) for size in COUNTS))
