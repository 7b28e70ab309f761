"""Start-up, memory, and recovery after a kill; each measurement has its own server."""

import time

from bench import librdkafka, topics
from bench.experiment import Experiment, FreshServer, Harness, Row, ours_at_most
from bench.measure import resident_mb, resident_peak_mb
from bench.raw import PRODUCE_VERSION, batch, produce_fields, wait_for_offsets
from bench.servers import Kind, Server, timed_start
from bench.throughput import CONSUMER
from tests.common.frames import Connection

PARTITIONS = 100
GIGABYTE_RECORDS = 1_000_000  # of 1,000 bytes
IDLE_S = 2  # enough for a server to free the memory of its start-up
VALUE = b"v" * 1000
PRODUCER = {"acks": "1", "queue.buffering.max.messages": "1000000"}

FORMAT = Row("format (Kafka's users do it once)", "s")
EMPTY = Row("ready, empty directory", "s", ours_at_most(0.25))
STOPPED = Row(f"ready, {PARTITIONS} partitions after a clean stop", "s", ours_at_most(0.25))
IDLE = Row("resident memory idle", "MB", ours_at_most(45))
LOADED = Row("resident memory after 1 GB produced and consumed", "MB", ours_at_most(120))
PEAK = Row("resident memory peak", "MB")
KILLED = Row("ready after SIGKILL with 1 GB unflushed", "s")
SERVING = Row("its partition readable again after SIGKILL", "s")


def _start_up(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind) as fresh:
        if kind is Kind.KAFKA:
            harness.record(FORMAT.name, kind, fresh.format_s)
        server = fresh.server
        harness.record(EMPTY.name, kind, timed_start(server))
        topic = harness.name("partitions")
        topics.create(server, topic, partitions=PARTITIONS)
        _write_to_each(server, topic)
        server.stop()
        harness.record(STOPPED.name, kind, timed_start(server))


def _write_to_each(server: Server, topic: str) -> None:
    """Produce a record to every partition: an empty log would be cheaper to open."""
    wait_for_offsets(server.bootstrap, topic, PARTITIONS)
    with Connection(server.bootstrap) as connection:
        records = batch(VALUE)
        for partition in range(PARTITIONS):
            response = connection.call("Produce", PRODUCE_VERSION, produce_fields(topic, partition, records))
            if response["responses"][0]["partition_responses"][0]["error_code"]:
                raise RuntimeError(f"partition {partition}: {response}")


def _fill(harness: Harness, fresh: FreshServer) -> tuple[str, int]:
    """Create a topic with a gigabyte of 1 kB records; its name and end offset."""
    topic, count = harness.name("gigabyte"), harness.count(GIGABYTE_RECORDS)
    topics.create(fresh.server, topic)
    librdkafka.produce(fresh.server.bootstrap, topic, librdkafka.Payloads(VALUE), count, PRODUCER)
    return topic, count + 1


def _memory(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind) as fresh:
        server = fresh.server.start()
        time.sleep(IDLE_S)
        harness.record(IDLE.name, kind, resident_mb(server.pid))
        topic, end = _fill(harness, fresh)
        librdkafka.consume(server.bootstrap, topic, end, CONSUMER)
        harness.record(LOADED.name, kind, resident_mb(server.pid))
        harness.record(PEAK.name, kind, resident_peak_mb(server.pid))


def _killed(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind) as fresh:
        server = fresh.server.start()
        topic, end = _fill(harness, fresh)
        server.kill()
        start = time.perf_counter()
        harness.record(KILLED.name, kind, timed_start(server))
        (end_after_kill,) = wait_for_offsets(server.bootstrap, topic)
        harness.record(SERVING.name, kind, time.perf_counter() - start)
        if end_after_kill != end:
            raise RuntimeError(f"{kind}: end offset {end} before the kill, {end_after_kill} after it")


EXPERIMENTS = (
    Experiment("start-up", (FORMAT, EMPTY, STOPPED), _start_up),
    Experiment("memory", (IDLE, LOADED, PEAK), _memory, rounds_max=2),
    Experiment("kill", (KILLED, SERVING), _killed, rounds_max=2),
)
