"""Three nodes in one process against one: what replication and its controller cost.

Kafka has no part in it: both sides are oncelog, measured in turn in the same run, and a row is their ratio: of CPU
(user and system) for starts, of rates for records, with the servers' CPU beside it. Starts are measured by a child
process, as in `bench.embedded`: ``python -m bench.nodes COUNT`` prints its figures.
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
from bench.embedded import CHILD_TIMEOUT_S
from bench.experiment import Experiment, Harness, Row, ours_at_least, ours_at_most, temporary_directory
from bench.measure import cpu_s, median, resident_mb
from bench.servers import Kind
from bench.throughput import UNBATCHED, value_of
from compat_tests.oncelog_server import ROOT, Oncelog
from tests.common.frames import Connection

ONE, THREE = 1, 3
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}

START = Row("three nodes: CPU of a start, of one node's", "times", ours_at_most(3))
RESET = Row("three nodes: CPU of a reset, of one node's", "times", ours_at_most(3))
MEMORY = Row("three nodes: idle memory more than one node's", "MB", ours_at_most(3))
RATES = {
    "batched, acks=all": ours_at_least(0.5),
    "one record per request, acks=all": ours_at_least(0.25),
    "one record per request, acks=1": None,
    "one request at a time, acks=all": None,
}

STARTS = 60
RECORDS, BATCHED_RECORDS, REQUESTS = 60_000, 3_000_000, 10_000
SIZE = 100
METADATA_VERSION = 12
POLL_S = 0.02


def broker(nodes: int) -> oncelog.Broker:
    return oncelog.Broker() if nodes == ONE else oncelog.Broker(nodes=nodes)


# -- what the children measure


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


def _starts(harness: Harness, kind: Kind) -> None:
    if kind is not Kind.OURS:
        return
    command = [sys.executable, "-m", "bench.nodes", str(harness.count(STARTS))]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False, cwd=ROOT
    )
    if run.returncode:
        raise RuntimeError(f"starts of nodes: {run.stderr[-2000:]}")
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


def rate_row(name: str) -> str:
    return f"three nodes: rate, {name}"


def cpu_row(name: str) -> str:
    return f"three nodes: records for the server's CPU, {name}"


def produced(server: Oncelog, topic: str, count: int, settings: Mapping[str, str]) -> float:
    """Seconds to produce so many records by librdkafka."""
    return librdkafka.produce(server.bootstrap, topic, librdkafka.Payloads(value_of(SIZE)), count, settings)


def one_at_a_time(server: Oncelog, topic: str, count: int) -> float:
    """Seconds of so many requests, each sent when the one before was answered."""
    fields = {**raw.produce_fields(topic, 0, raw.batch(value_of(SIZE))), "acks": -1}
    frame = raw.request_frame("Produce", raw.PRODUCE_VERSION, fields)
    [connection] = raw.connect(leader_of(server, topic), 1)
    with connection:
        began = time.perf_counter()
        raw.send_windowed([connection], lambda _: frame, count, 1)
        return time.perf_counter() - began


def _records(harness: Harness, kind: Kind) -> None:
    if kind is not Kind.OURS:
        return
    batched, unbatched, requests = map(harness.count, (BATCHED_RECORDS, RECORDS, REQUESTS))
    ways: tuple[Callable[[Oncelog, str], float], ...] = (
        partial(produced, count=batched, settings={"acks": "all"}),
        partial(produced, count=unbatched, settings={**UNBATCHED, "acks": "all"}),
        partial(produced, count=unbatched, settings={**UNBATCHED, "acks": "1"}),
        partial(one_at_a_time, count=requests),
    )
    with servers() as started:
        held = {nodes: resident_mb(server.pid) for nodes, server in started.items()}
        harness.record(MEMORY.name, kind, held[THREE] - held[ONE])
        for name, produce in zip(RATES, ways, strict=True):
            seconds, used = {}, {}
            for nodes, server in started.items():
                topic = harness.name("nodes")
                leader_of(server, topic)
                before = cpu_s(server.pid)
                seconds[nodes] = produce(server, topic)
                used[nodes] = cpu_s(server.pid) - before
            harness.record(rate_row(name), kind, seconds[ONE] / seconds[THREE])
            harness.record(cpu_row(name), kind, used[ONE] / used[THREE])


RECORD_ROWS = (
    *(Row(rate_row(name), "of one node's", target) for name, target in RATES.items()),
    *(Row(cpu_row(name), "of one node's") for name in RATES),
)
EXPERIMENTS = (
    Experiment("starts of three nodes", (START, RESET), _starts),
    Experiment("records of three nodes", (MEMORY, *RECORD_ROWS), _records),
)

if __name__ == "__main__":
    print(json.dumps(measure_starts(int(sys.argv[1]))))
