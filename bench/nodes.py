"""Three nodes in one process against one: what replication and its controller cost.

Kafka has no part in it: both sides are oncelog, measured in turn in the same run, and a row is their ratio. It is one
of CPU, user and system, since that is what a busy machine leaves as it is. Starts and memory are measured by a child
process, as in `bench.embedded`: ``python -m bench.nodes NAME COUNT`` prints its figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import oncelog
from bench import librdkafka, raw
from bench.embedded import CHILD_TIMEOUT_S, own_memory_mb
from bench.experiment import Experiment, Harness, Row, ours_at_least, ours_at_most, temporary_directory
from bench.measure import cpu_s, median
from bench.servers import Kind
from bench.throughput import UNBATCHED, value_of
from compat_tests.frames import Connection
from compat_tests.oncelog_server import ROOT, Oncelog

ONE, THREE = 1, 3
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}

START = Row("three nodes: CPU of a start, of one node's", "times", ours_at_most(3))
RESET = Row("three nodes: CPU of a reset, of one node's", "times", ours_at_most(3))
MEMORY = Row("three nodes: memory more than one node's", "MB", ours_at_most(3))
BATCHED = Row("three nodes: batched records for the CPU, acks=all", "of one node's", ours_at_least(0.5))
UNBATCHED_ALL = Row("three nodes: one record per request, acks=all", "of one node's", ours_at_least(0.25))
UNBATCHED_1 = Row("three nodes: one record per request, acks=1", "of one node's")
ONE_AT_A_TIME = Row("three nodes: one request at a time, acks=all", "of one node's")

STARTS, CLUSTERS = 60, 20
RECORDS, BATCHED_RECORDS, REQUESTS = 60_000, 3_000_000, 10_000
SIZE = 100
METADATA_VERSION = 12
POLL_S = 0.02
TOPIC = "topic"


def broker(nodes: int) -> oncelog.Broker:
    return oncelog.Broker() if nodes == ONE else oncelog.Broker(nodes=nodes)


# -- what the children measure


def fill(started: oncelog.Broker) -> None:
    """A topic with a record."""
    started.create_topics([TOPIC])
    started.produce(TOPIC, b"value")


def spent(call: Callable[[], object]) -> float:
    """CPU seconds of this process while ``call`` runs."""
    before = time.process_time()
    call()
    return time.process_time() - before


def measure_starts(count: int) -> dict[str, float]:
    starts: dict[int, list[float]] = {ONE: [], THREE: []}
    resets: dict[int, list[float]] = {ONE: [], THREE: []}
    for number in range(count + 1):  # the first imports
        for nodes in (ONE, THREE):
            started = broker(nodes)
            start = spent(started.start)
            reset = spent(started.reset)
            started.close()
            if number:
                starts[nodes].append(start)
                resets[nodes].append(reset)
    return {
        row.name: median(figures[THREE]) / median(figures[ONE])
        for row, figures in ((START, starts), (RESET, resets))
    }


def measure_memory(count: int) -> dict[str, float]:
    held = {}
    for nodes in (ONE, THREE):
        for _ in range(2):  # what the first ones leave is the process's
            with broker(nodes) as started:
                fill(started)
        before = own_memory_mb()
        brokers = [broker(nodes) for _ in range(count)]
        for started in brokers:
            started.start()
            fill(started)
        held[nodes] = (own_memory_mb() - before) / count
        for started in brokers:
            started.close()
    return {MEMORY.name: held[THREE] - held[ONE]}


MEASURES: Mapping[str, Callable[[int], dict[str, float]]] = {
    "starts": measure_starts,
    "memory": measure_memory,
}


def _child(harness: Harness, kind: Kind, measure: str, count: int) -> None:
    if kind is not Kind.OURS:
        return
    command = [sys.executable, "-m", "bench.nodes", measure, str(harness.count(count))]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False, cwd=ROOT
    )
    if run.returncode:
        raise RuntimeError(f"{measure}: {run.stderr[-2000:]}")
    for name, figure in json.loads(run.stdout.splitlines()[-1]).items():
        harness.record(name, kind, figure)


# -- records


@contextmanager
def servers() -> Iterator[dict[int, Oncelog]]:
    """One node, and three that replicate, each in a process."""
    with ExitStack() as stack:
        root = stack.enter_context(temporary_directory())
        started = {
            ONE: Oncelog(data_dir=root / "one"),
            THREE: Oncelog(REPLICATED, root / "three", ("--nodes", str(THREE))),
        }
        for server in started.values():
            stack.callback(server.stop)
            server.start()
        yield started


def leader_of(server: Oncelog, topic: str) -> str:
    """Create a topic; return the address of the leader of its only partition."""
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    with Connection(server.bootstrap) as connection:
        while True:
            response = connection.call("Metadata", METADATA_VERSION, fields)
            [row] = response["topics"]
            if not row["error_code"]:
                [partition] = row["partitions"]
                for node in response["brokers"]:
                    if node["node_id"] == partition["leader_id"]:
                        return f"{node['host']}:{node['port']}"
            time.sleep(POLL_S)


def produced(server: Oncelog, topic: str, count: int, settings: Mapping[str, str]) -> None:
    leader_of(server, topic)
    librdkafka.produce(server.bootstrap, topic, librdkafka.Payloads(value_of(SIZE)), count, settings)


def one_at_a_time(server: Oncelog, topic: str, count: int) -> None:
    fields = {**raw.produce_fields(topic, 0, raw.batch(value_of(SIZE))), "acks": -1}
    frame = raw.request_frame("Produce", raw.PRODUCE_VERSION, fields)
    [connection] = raw.connect(leader_of(server, topic), 1)
    with connection:
        raw.send_windowed([connection], lambda _: frame, count, 1)


def _records(harness: Harness, kind: Kind) -> None:
    if kind is not Kind.OURS:
        return
    batched, unbatched, requests = map(harness.count, (BATCHED_RECORDS, RECORDS, REQUESTS))
    with servers() as started:
        for row, produce in (
            (BATCHED, partial(produced, count=batched, settings={"acks": "all"})),
            (UNBATCHED_ALL, partial(produced, count=unbatched, settings={**UNBATCHED, "acks": "all"})),
            (UNBATCHED_1, partial(produced, count=unbatched, settings={**UNBATCHED, "acks": "1"})),
            (ONE_AT_A_TIME, partial(one_at_a_time, count=requests)),
        ):
            used = {}
            for nodes, server in started.items():
                topic = harness.name("nodes")
                before = cpu_s(server.pid)
                produce(server, topic)
                used[nodes] = cpu_s(server.pid) - before
            harness.record(row.name, kind, used[ONE] / used[THREE])


EXPERIMENTS = (
    Experiment("starts of three nodes", (START, RESET), partial(_child, measure="starts", count=STARTS)),
    Experiment("memory of three nodes", (MEMORY,), partial(_child, measure="memory", count=CLUSTERS)),
    Experiment("records of three nodes", (BATCHED, UNBATCHED_ALL, UNBATCHED_1, ONE_AT_A_TIME), _records),
)

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]))))
