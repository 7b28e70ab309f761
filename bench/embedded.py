"""A broker of its own for each test: what `oncelog.Broker` costs in the process that uses it.

Each experiment is measured by a child process, so that nothing else is in its memory: ``python -m bench.embedded NAME``
prints its figures. A test here makes a topic, produces a record and consumes it as a member of a group.
"""

from __future__ import annotations

import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import oncelog
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.measure import median
from bench.raw import PRODUCE_VERSION, batch, produce_fields
from bench.servers import Kind
from compat_tests.oncelog_server import ROOT
from tests.common.frames import Connection

READY = Row("a broker in the process: ready", "ms", ours_at_most(6))
GONE = Row("a broker in the process: gone", "ms", ours_at_most(3))
FIRST = Row("the first broker in a process, import included", "ms", ours_at_most(250))
RESET = Row("reset of 20 topics", "ms", ours_at_most(3))
MEMORY = Row("memory of one of 100 brokers in a process", "MB", ours_at_most(1))
GROWTH = Row("memory left by 200 brokers, each", "MB", ours_at_most(0.01))
CLIENTS = ("confluent-kafka", "kafka-python")
TESTS = {
    client: (
        Row(f"a test with {client}: one broker for all", "ms"),
        Row(f"a test with {client}: a broker of its own", "ms"),
        Row(f"a test with {client}: what that costs", "ms", ours_at_most(10)),
    )
    for client in CLIENTS
}
KFAKE_READY = Row("kfake (Go, in the process): ready", "ms")
KFAKE_RECORD = Row("a new franz-go client's first record, to kfake", "ms")
OUR_RECORD = Row("a new franz-go client's first record, to a broker in a process", "ms")
KFAKE_SOURCES = pathlib.Path(__file__).with_name("kfake")

STARTS = 200
BROKERS = 100
RESETS = 50
TOPICS = 20
CHILD_TIMEOUT_S = 600
WAIT_S = 20
RECORD = batch(b"value")
FIRST_BROKER = """
import time
before = time.perf_counter()
import oncelog
with oncelog.Broker():
    print((time.perf_counter() - before) * 1000)
"""


# -- what the children measure; durations in milliseconds


def milliseconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return (time.perf_counter() - before) * 1000


def measure_starts(count: int) -> dict[str, float]:
    ready, gone = [], []
    for _ in range(count):
        broker = oncelog.Broker()
        ready.append(milliseconds(broker.start))
        gone.append(milliseconds(broker.close))
    return {READY.name: median(ready[1:] or ready), GONE.name: median(gone[1:] or gone)}


def fill(broker: oncelog.Broker, topics: list[str]) -> None:
    """Create the topics, with a record each."""
    broker.create_topics(topics)
    with Connection(broker.bootstrap_servers) as connection:
        for topic in topics:
            response = connection.call("Produce", PRODUCE_VERSION, produce_fields(topic, 0, RECORD))
            assert response["responses"][0]["partition_responses"][0]["error_code"] == 0


def measure_reset(count: int) -> dict[str, float]:
    topics = [f"topic-{number}" for number in range(TOPICS)]
    resets = []
    with oncelog.Broker() as broker:
        for _ in range(count):
            fill(broker, topics)
            resets.append(milliseconds(broker.reset))
    return {RESET.name: median(resets)}


def own_memory_mb() -> float:
    """Memory that belongs to this process alone, in megabytes."""
    gc.collect()
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024 / 1_000_000
    raise RuntimeError("smaps_rollup has no Private_Dirty")


def measure_memory(count: int) -> dict[str, float]:
    def start() -> oncelog.Broker:
        broker = oncelog.Broker()
        broker.start()
        fill(broker, ["topic"])
        return broker

    for _ in range(count // 2):  # what the first ones leave is the process's
        start().close()
    before = own_memory_mb()
    starts = 2 * count
    for _ in range(starts):
        start().close()
    after = own_memory_mb()
    brokers = [start() for _ in range(count)]
    held = (own_memory_mb() - after) / len(brokers)
    for broker in brokers:
        broker.close()
    return {MEMORY.name: held, GROWTH.name: max(0.0, after - before) / starts}


def confluent_test(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"value")
    producer.flush(WAIT_S)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


def kafka_python_test(bootstrap: str, topic: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its resources
        from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"value").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    assert next(consumer).value == b"value"
    consumer.close()


def measure_tests(client: str, count: int) -> dict[str, float]:
    """The median test on one broker for all, and on a broker of its own, in turn."""
    test = {"confluent-kafka": confluent_test, "kafka-python": kafka_python_test}[client]

    def on_its_own() -> None:
        with oncelog.Broker() as broker:
            test(broker.bootstrap_servers, "topic")

    shared, own = [], []
    with oncelog.Broker() as broker:
        test(broker.bootstrap_servers, "warm-up")
        on_its_own()
        for number in range(count):
            topic = f"topic-{number}"
            shared.append(milliseconds(partial(test, broker.bootstrap_servers, topic)))
            own.append(milliseconds(on_its_own))
    figures = (median(shared), median(own), median(own) - median(shared))
    return {row.name: figure for row, figure in zip(TESTS[client], figures, strict=True)}


MEASURES: dict[str, Callable[[int], dict[str, float]]] = {
    "starts": measure_starts,
    "reset": measure_reset,
    "memory": measure_memory,
    **{client: partial(measure_tests, client) for client in CLIENTS},
}


# -- the experiments


def _child(harness: Harness, kind: Kind, measure: str, count: int) -> None:
    if kind is not Kind.OURS:
        return
    command = [sys.executable, "-m", "bench.embedded", measure, str(harness.count(count))]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False, cwd=ROOT
    )
    if run.returncode:
        raise RuntimeError(f"{measure}: {run.stderr[-2000:]}")
    for name, figure in json.loads(run.stdout.splitlines()[-1]).items():
        harness.record(name, kind, figure)


def _first(harness: Harness, kind: Kind) -> None:
    if kind is Kind.OURS:
        # As pip installs it: with compiled modules, which a development environment may be told not to write.
        folder = harness.root / "compiled"
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-c", FIRST_BROKER]
        runs = [
            subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=CHILD_TIMEOUT_S,
                check=True,
                cwd=ROOT,
            )
            for _ in range(1 + harness.count(10))
        ]
        harness.record(FIRST.name, kind, median([float(run.stdout) for run in runs[1:]]))


def _kfake(harness: Harness, kind: Kind) -> None:
    """The fake broker of Go programs, for comparison: its start, and a first record."""
    go = shutil.which("go")
    if kind is not Kind.OURS:
        return
    if go is None:
        harness.note("kfake not measured: no go on the PATH")
        return
    binary = harness.root / "kfake"
    build = subprocess.run(
        [go, "build", "-o", str(binary), "."], cwd=KFAKE_SOURCES, capture_output=True, text=True, check=False
    )
    if build.returncode:
        harness.note(f"kfake not measured: {build.stderr.strip().splitlines()[-1]}")
        return
    command = [str(binary), str(harness.count(STARTS))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=True)
    for row, figure in zip((KFAKE_READY, KFAKE_RECORD), run.stdout.split(), strict=True):
        harness.record(row.name, kind, float(figure))
    with oncelog.Broker() as broker:
        command.append(broker.bootstrap_servers)
        run = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=True)
        harness.record(OUR_RECORD.name, kind, float(run.stdout))


EXPERIMENTS = (
    Experiment("a broker in the process", (READY, GONE), partial(_child, measure="starts", count=STARTS)),
    Experiment("the first broker", (FIRST,), _first),
    Experiment("reset", (RESET,), partial(_child, measure="reset", count=RESETS)),
    Experiment("memory of brokers", (MEMORY, GROWTH), partial(_child, measure="memory", count=BROKERS)),
    *(
        Experiment(
            f"tests with {client}",
            rows,
            partial(_child, measure=client, count=STARTS),
            rounds_max=1,
        )
        for client, rows in TESTS.items()
    ),
    Experiment("kfake", (KFAKE_READY, KFAKE_RECORD, OUR_RECORD), _kfake),
)

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]))))
