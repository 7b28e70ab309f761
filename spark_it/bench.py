"""make bench-spark: Spark jobs in one session with oncelog and a real Kafka in turn, and without Kafka; medians.

A measurement is a whole Spark job. The server's CPU is that of its process tree, per GB of keys and values. The sink is
compared with the stock sink on the same broker, and its fixed cost per task is measured without Spark, step by step.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.measure import cpu_s
from compat_tests.brokers import TARGETS, Broker, make_broker
from oncelog.spark import write_once
from oncelog.spark.clients import client
from oncelog.spark.control import Settings, make_control_topic
from oncelog.spark.rows import SinkRow
from oncelog.spark.task import Batch, TaskWrite
from spark_it.session import spark_session

PARTITIONS = 4
VALUE_BYTES = 92  # and 8 of a key
RECORD_BYTES = 100
TASKS = 2
STEP_ROUNDS = 20
OUT = "out-"  # topics that are deleted after the job that wrote them
# The files of deleted topics are removed soon, so that the disk does not fill.
PROPERTIES = {"log.segment.delete.delay.ms": "1000"}


class Job(NamedTuple):
    """A job's seconds, and the server's CPU seconds per GB."""

    seconds: float
    cpu_per_gb: float


class Harness:
    """The Spark session, a broker per target, and new names. `rows` is the number of records per job."""

    def __init__(self, spark: Any, brokers: dict[str, Broker], rows: int, folder: pathlib.Path) -> None:
        self.spark = spark
        self.brokers = brokers
        self.rows = rows
        self.folder = folder
        self._names = 0

    def generated(self) -> Any:
        """Generated rows."""
        value = f"cast(rpad(cast(id as string), {VALUE_BYTES}, 'x') as binary) as value"
        return self.spark.range(self.rows).selectExpr(
            "cast(lpad(cast(id as string), 8, '0') as binary) as key", value
        )

    def read(self, target: str, topic: str, *, stream: bool = False) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.brokers[target].bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def topic(self, target: str, prefix: str = OUT) -> str:
        """Create a topic; its name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        self._names += 1
        name = f"{prefix}{self._names}"
        admin = AdminClient(client({"bootstrap.servers": self.brokers[target].bootstrap}))
        admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(60)
        return name

    def delete_outputs(self, target: str) -> None:
        """Delete the topics that jobs have written, which would fill the disk after some rounds."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(client({"bootstrap.servers": self.brokers[target].bootstrap}))
        written = [name for name in admin.list_topics(timeout=60).topics if name.startswith(OUT)]
        for future in admin.delete_topics(written).values() if written else ():
            future.result(60)

    def checkpoint(self) -> str:
        self._names += 1
        return str(self.folder / f"checkpoint-{self._names}")

    def stock_write(self, target: str, rows: Any, topic: str) -> Any:
        writer = (
            rows.write
            if not rows.isStreaming
            else rows.writeStream.option("checkpointLocation", self.checkpoint())
        )
        writer = writer.format("kafka").option("kafka.bootstrap.servers", self.brokers[target].bootstrap)
        return writer.option("topic", topic)


def batch_write(harness: Harness, target: str, topic: str) -> None:
    harness.stock_write(target, harness.generated(), harness.topic(target)).save()


def batch_read(harness: Harness, target: str, topic: str) -> None:
    harness.read(target, topic).write.format("noop").mode("overwrite").save()


def streaming_read(harness: Harness, target: str, topic: str) -> None:
    stream = harness.read(target, topic, stream=True).writeStream.format("noop")
    _run_to_end(stream.option("checkpointLocation", harness.checkpoint()))


def stock_sink(harness: Harness, target: str, topic: str) -> None:
    rows = harness.read(target, topic, stream=True).select("key", "value")
    _run_to_end(harness.stock_write(target, rows, harness.topic(target)))


def once_sink(harness: Harness, target: str, topic: str) -> None:
    rows = harness.read(target, topic, stream=True).select("key", "value")
    out = harness.topic(target)
    kafka = {"bootstrap.servers": harness.brokers[target].bootstrap}
    writer = write_once(
        rows, out, kafka=kafka, tasks=TASKS, topic=out, by=["key"], transaction_timeout_ms=600_000
    )
    _run_to_end(writer.option("checkpointLocation", harness.checkpoint()))


def _run_to_end(writer: Any) -> None:
    assert writer.trigger(availableNow=True).start().awaitTermination(3600)


JOBS: dict[str, Callable[[Harness, str, str], None]] = {
    "batch read": batch_read,
    "streaming read": streaming_read,
    "batch write": batch_write,
    "stock sink": stock_sink,
    "sink": once_sink,
}


def timed(harness: Harness, target: str, job: Callable[[Harness, str, str], None], topic: str) -> Job:
    pid = harness.brokers[target].pid  # type: ignore[attr-defined]
    before, start = cpu_s(pid), time.monotonic()
    job(harness, target, topic)
    seconds = time.monotonic() - start
    cpu = cpu_s(pid) - before
    harness.delete_outputs(target)
    return Job(seconds, cpu / (harness.rows * RECORD_BYTES / 1e9))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def steps_ms(bootstrap: str) -> dict[str, list[float]]:
    """By step of a task with one row: milliseconds to its end, in each round."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(client({"bootstrap.servers": bootstrap}))
    admin.create_topics([NewTopic("steps", 1)])["steps"].result(60)
    settings = Settings("steps", 1, ("key",), {"bootstrap.servers": bootstrap}, token="bench", driver="bench")
    make_control_topic(settings)
    found: dict[str, list[float]] = {}
    for batch in range(STEP_ROUNDS + 1):
        start = time.monotonic()
        for step in TaskWrite(settings, Batch("bench", batch, 0)).steps(
            [SinkRow(0, b"k", b"v", None, "steps", 0)]
        ):
            if batch:  # not the first batch, which claims the sink
                found.setdefault(step, []).append((time.monotonic() - start) * 1000)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_it.bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=20, help="start no round that would end later")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    spark = spark_session("bench", options.master)
    spark.sparkContext.setLogLevel("OFF")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-it-bench-")))
        brokers = {target: stack.enter_context(make_broker(target, PROPERTIES)) for target in TARGETS}
        harness = Harness(spark, brokers, options.rows, folder)
        _report(harness, options.rounds, options.minutes)
        for target, broker in brokers.items():
            steps = steps_ms(broker.bootstrap)
            shown = ", ".join(f"{step} {statistics.median(times):.1f}" for step, times in steps.items())
            print(
                f"a task of one row on {target}: {spread(steps['committed'])} ms; to the end of each step: {shown}"
            )
    spark.stop()
    return 0


def _rounds(
    harness: Harness, rounds: int, minutes: float
) -> tuple[list[float], dict[tuple[str, str], list[Job]]]:
    """Seconds of rows without Kafka, and the jobs by name and target; at most `rounds` rounds or `minutes`."""
    deadline = time.monotonic() + minutes * 60
    sources = {}
    for target in TARGETS:
        sources[target] = harness.topic(target, "source-")
        harness.stock_write(target, harness.generated(), sources[target]).save()  # also warms up both servers
    alone: list[float] = []
    found: dict[tuple[str, str], list[Job]] = {}
    for number in range(rounds):
        start = time.monotonic()
        harness.generated().write.format("noop").mode("overwrite").save()
        alone.append(time.monotonic() - start)
        for name, job in JOBS.items():
            for target in TARGETS if number % 2 else reversed(TARGETS):
                found.setdefault((name, target), []).append(timed(harness, target, job, sources[target]))
        took = time.monotonic() - start
        print(f"round {number + 1} of {rounds}: {took:.0f} s", file=sys.stderr, flush=True)
        if time.monotonic() + took > deadline:
            break
    return alone, found


def _report(harness: Harness, rounds: int, minutes: float) -> None:
    alone, found = _rounds(harness, rounds, minutes)
    print(f"{harness.rows} rows of {RECORD_BYTES} bytes, {len(alone)} rounds; seconds: median (least-most)")
    print(f"{'without Kafka: rows generated':26} {spread(alone)}")
    medians = {which: statistics.median(one.seconds for one in jobs) for which, jobs in found.items()}
    for name in JOBS:
        for target in TARGETS:
            seconds = spread([one.seconds for one in found[name, target]])
            cpu = spread([one.cpu_per_gb for one in found[name, target]])
            rate = harness.rows / medians[name, target]
            print(f"{name:16} {target:9} {seconds} s, {rate:.0f} rows/s, server CPU {cpu} s/GB")
        print(f"{name:16} Kafka's time / ours {medians[name, 'kafka'] / medians[name, 'oncelog']:.2f}")
    for target in TARGETS:
        ratio = medians["sink", target] / medians["stock sink", target]
        print(f"sink / stock sink on {target}: {ratio:.2f} times as long")


if __name__ == "__main__":
    sys.exit(main())
