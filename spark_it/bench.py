"""make bench-spark: one Spark session, oncelog and a real Kafka in turn, medians of some rounds; and Spark alone.

What is timed is a whole Spark job. The server's CPU is its process tree's, per GB of records (key, value) that went
through. The sink is compared with the stock sink on the same broker, and its fixed cost per task is measured without
Spark, step by step.
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
# A deleted topic's files go soon, and its space with them.
PROPERTIES = {"log.segment.delete.delay.ms": "1000"}


class Job(NamedTuple):
    """One timed run: seconds, and the server's CPU seconds per GB."""

    seconds: float
    cpu_per_gb: float


class Lab:
    """The session, a broker per target, and a topic of `rows` records on each."""

    def __init__(self, spark: Any, brokers: dict[str, Broker], rows: int, folder: pathlib.Path) -> None:
        self.spark = spark
        self.brokers = brokers
        self.rows = rows
        self.folder = folder
        self._made = 0

    def made(self) -> Any:
        """The rows, from nowhere."""
        value = f"cast(rpad(cast(id as string), {VALUE_BYTES}, 'x') as binary) as value"
        return self.spark.range(self.rows).selectExpr(
            "cast(lpad(cast(id as string), 8, '0') as binary) as key", value
        )

    def read(self, target: str, topic: str, *, stream: bool = False) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.brokers[target].bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def topic(self, target: str, prefix: str = OUT) -> str:
        """A new one."""
        from confluent_kafka.admin import AdminClient, NewTopic

        self._made += 1
        name = f"{prefix}{self._made}"
        admin = AdminClient(client({"bootstrap.servers": self.brokers[target].bootstrap}))
        admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(60)
        return name

    def forget(self, target: str) -> None:
        """Delete what jobs have written: of rounds and rounds of it a disk would fill."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(client({"bootstrap.servers": self.brokers[target].bootstrap}))
        written = [name for name in admin.list_topics(timeout=60).topics if name.startswith(OUT)]
        for future in admin.delete_topics(written).values() if written else ():
            future.result(60)

    def checkpoint(self) -> str:
        self._made += 1
        return str(self.folder / f"checkpoint-{self._made}")

    def stock_write(self, target: str, rows: Any, topic: str) -> Any:
        writer = (
            rows.write
            if not rows.isStreaming
            else rows.writeStream.option("checkpointLocation", self.checkpoint())
        )
        writer = writer.format("kafka").option("kafka.bootstrap.servers", self.brokers[target].bootstrap)
        return writer.option("topic", topic)


def batch_write(lab: Lab, target: str, topic: str) -> None:
    lab.stock_write(target, lab.made(), lab.topic(target)).save()


def batch_read(lab: Lab, target: str, topic: str) -> None:
    lab.read(target, topic).write.format("noop").mode("overwrite").save()


def streaming_read(lab: Lab, target: str, topic: str) -> None:
    stream = lab.read(target, topic, stream=True).writeStream.format("noop")
    _end(stream.option("checkpointLocation", lab.checkpoint()))


def stock_sink(lab: Lab, target: str, topic: str) -> None:
    rows = lab.read(target, topic, stream=True).select("key", "value")
    _end(lab.stock_write(target, rows, lab.topic(target)))


def once_sink(lab: Lab, target: str, topic: str) -> None:
    rows = lab.read(target, topic, stream=True).select("key", "value")
    out = lab.topic(target)
    kafka = {"bootstrap.servers": lab.brokers[target].bootstrap}
    writer = write_once(
        rows, out, kafka=kafka, tasks=TASKS, topic=out, by=["key"], transaction_timeout_ms=600_000
    )
    _end(writer.option("checkpointLocation", lab.checkpoint()))


def _end(writer: Any) -> None:
    assert writer.trigger(availableNow=True).start().awaitTermination(3600)


JOBS: dict[str, Callable[[Lab, str, str], None]] = {
    "batch read": batch_read,
    "streaming read": streaming_read,
    "batch write": batch_write,
    "stock sink": stock_sink,
    "sink": once_sink,
}


def timed(lab: Lab, target: str, job: Callable[[Lab, str, str], None], topic: str) -> Job:
    pid = lab.brokers[target].pid  # type: ignore[attr-defined]
    before, start = cpu_s(pid), time.monotonic()
    job(lab, target, topic)
    seconds = time.monotonic() - start
    cpu = cpu_s(pid) - before
    lab.forget(target)
    return Job(seconds, cpu / (lab.rows * RECORD_BYTES / 1e9))


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def steps_ms(bootstrap: str) -> dict[str, list[float]]:
    """Milliseconds to the end of each step of a task with one row, round by round."""
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
            if batch:  # the first one claims the sink
                found.setdefault(step, []).append((time.monotonic() - start) * 1000)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_it.bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=20, help="no round begins that would end later")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    spark = spark_session("bench", given.master)
    spark.sparkContext.setLogLevel("OFF")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-it-bench-")))
        brokers = {target: stack.enter_context(make_broker(target, PROPERTIES)) for target in TARGETS}
        lab = Lab(spark, brokers, given.rows, folder)
        _report(lab, given.rounds, given.minutes)
        for target, broker in brokers.items():
            steps = steps_ms(broker.bootstrap)
            shown = ", ".join(f"{step} {statistics.median(times):.1f}" for step, times in steps.items())
            print(
                f"a task of one row on {target}: {spread(steps['committed'])} ms; to the end of each step: {shown}"
            )
    spark.stop()
    return 0


def _rounds(lab: Lab, rounds: int, minutes: float) -> tuple[list[float], dict[tuple[str, str], list[Job]]]:
    """Seconds without Kafka, and each job on each target: as many rounds as there are, or as the time is enough for."""
    deadline = time.monotonic() + minutes * 60
    sources = {}
    for target in TARGETS:
        sources[target] = lab.topic(target, "source-")
        lab.stock_write(target, lab.made(), sources[target]).save()  # warms both up, too
    alone: list[float] = []
    found: dict[tuple[str, str], list[Job]] = {}
    for number in range(rounds):
        start = time.monotonic()
        lab.made().write.format("noop").mode("overwrite").save()
        alone.append(time.monotonic() - start)
        for name, job in JOBS.items():
            for target in TARGETS if number % 2 else reversed(TARGETS):
                found.setdefault((name, target), []).append(timed(lab, target, job, sources[target]))
        took = time.monotonic() - start
        print(f"round {number + 1} of {rounds}: {took:.0f} s", file=sys.stderr, flush=True)
        if time.monotonic() + took > deadline:
            break
    return alone, found


def _report(lab: Lab, rounds: int, minutes: float) -> None:
    alone, found = _rounds(lab, rounds, minutes)
    print(f"{lab.rows} rows of {RECORD_BYTES} bytes, {len(alone)} rounds; seconds: median (least-most)")
    print(f"{'without Kafka: rows made':26} {spread(alone)}")
    medians = {which: statistics.median(one.seconds for one in jobs) for which, jobs in found.items()}
    for name in JOBS:
        for target in TARGETS:
            seconds = spread([one.seconds for one in found[name, target]])
            cpu = spread([one.cpu_per_gb for one in found[name, target]])
            rate = lab.rows / medians[name, target]
            print(f"{name:16} {target:9} {seconds} s, {rate:.0f} rows/s, server CPU {cpu} s/GB")
        print(f"{name:16} Kafka's time / ours {medians[name, 'kafka'] / medians[name, 'oncelog']:.2f}")
    for target in TARGETS:
        ratio = medians["sink", target] / medians["stock sink", target]
        print(f"sink / stock sink on {target}: {ratio:.2f} times as long")


if __name__ == "__main__":
    sys.exit(main())
