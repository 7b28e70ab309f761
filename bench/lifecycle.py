"""Start-up, memory, and being back after a kill; every measurement with a server of its own."""

import time

from bench import librdkafka, topics
from bench.experiment import Experiment, FreshServer, Lab, Row, ours_at_most
from bench.measure import resident_mb, resident_peak_mb
from bench.raw import PRODUCE_VERSION, batch, produce_fields, wait_until_listed
from bench.servers import Kind, Server, timed_start
from bench.throughput import CONSUMER
from compat_tests.frames import Connection

PARTITIONS = 100
GIGABYTE_RECORDS = 1_000_000  # of 1,000 bytes
IDLE_S = 2  # after which start-up's garbage is gone, if it ever goes
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


def _start_up(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind) as fresh:
        if kind is Kind.KAFKA:
            lab.record(FORMAT.name, kind, fresh.format_s)
        server = fresh.server
        lab.record(EMPTY.name, kind, timed_start(server))
        topic = lab.name("partitions")
        topics.create(server, topic, partitions=PARTITIONS)
        _write_to_each(server, topic)
        server.stop()
        lab.record(STOPPED.name, kind, timed_start(server))


def _write_to_each(server: Server, topic: str) -> None:
    """A record in every partition: an empty log is cheaper to open."""
    wait_until_listed(server.bootstrap, topic, PARTITIONS)
    with Connection(server.bootstrap) as one:
        records = batch(VALUE)
        for partition in range(PARTITIONS):
            answer = one.call("Produce", PRODUCE_VERSION, produce_fields(topic, partition, records))
            if answer["responses"][0]["partition_responses"][0]["error_code"]:
                raise RuntimeError(f"partition {partition}: {answer}")


def _fill(lab: Lab, fresh: FreshServer) -> tuple[str, int]:
    """A topic with a gigabyte of 1 kB records; its name and end offset."""
    topic, count = lab.name("gigabyte"), lab.count(GIGABYTE_RECORDS)
    topics.create(fresh.server, topic)
    librdkafka.produce(fresh.server.bootstrap, topic, librdkafka.Payloads(VALUE), count, PRODUCER)
    return topic, count + 1


def _memory(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind) as fresh:
        server = fresh.server.start()
        time.sleep(IDLE_S)
        lab.record(IDLE.name, kind, resident_mb(server.pid))
        topic, end = _fill(lab, fresh)
        librdkafka.consume(server.bootstrap, topic, end, CONSUMER)
        lab.record(LOADED.name, kind, resident_mb(server.pid))
        lab.record(PEAK.name, kind, resident_peak_mb(server.pid))


def _killed(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind) as fresh:
        server = fresh.server.start()
        topic, end = _fill(lab, fresh)
        server.kill()
        start = time.perf_counter()
        lab.record(KILLED.name, kind, timed_start(server))
        (found,) = wait_until_listed(server.bootstrap, topic)
        lab.record(SERVING.name, kind, time.perf_counter() - start)
        if found != end:
            raise RuntimeError(
                f"{kind}: {end} records were acknowledged before the kill, {found} are there after"
            )


EXPERIMENTS = (
    Experiment("start-up", (FORMAT, EMPTY, STOPPED), _start_up),
    Experiment("memory", (IDLE, LOADED, PEAK), _memory, rounds_max=2),
    Experiment("kill", (KILLED, SERVING), _killed, rounds_max=2),
)
