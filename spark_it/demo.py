"""demo: the whole pipeline with its own broker; the driver and the broker are killed in the middle."""

import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from compat_tests.brokers import Broker, make_broker
from oncelog.spark.clients import client
from spark_it.pipeline.errors import PipelineError
from spark_it.session import ROOT, spark_java_home

PARTITIONS = 4
USERS = 20
COUNTRIES = ("at", "be", "ch", "de", "fr")
START_MS = 1_790_000_000_000
EVENT_EVERY_MS = 200
LATE_MS_MAX = 10_000  # less than the pipeline's lateness
CLOSING = "closing"  # the id of an event with a timestamp so late that every earlier window closes
SLOW_EVERY, SLOW_S = 100, 0.1  # a pause after so many events, so that the kill comes during their production
TIMEOUT_S = 600.0
# In a JVM that runs for a minute the optimising compiler costs more than it saves.
SHORT_LIVED = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

CONFIG = """\
bootstrap = "{bootstrap}"
lake = "{folder}/lake"
topics = ["events"]
events = "events"
users = "users"
results = "results"
state = "{folder}/state"
window = "1 minute"
lateness = "30 seconds"
sink = "demo"
tasks = 2
"""


class Commands(NamedTuple):
    """The pipeline's commands over one configuration, each with the same arguments for Spark."""

    main: Callable[[list[str]], int]
    config: pathlib.Path
    spark: Sequence[str]

    def line(self, command: str, *more: str) -> list[str]:
        return [command, "--config", str(self.config), *self.spark, *more]

    def run(self, command: str, *more: str, check: bool = True) -> int:
        """Run a command in this process and its Spark session; the exit code.

        With `check` raises PipelineError for an exit code other than 0.
        """
        print(f"--- {' '.join((command, *more))}", flush=True)
        code = self.main(self.line(command, *more))
        if check and code:
            raise PipelineError(f"{command} ended with exit code {code}")
        return code


def demo(
    main: Callable[[list[str]], int],
    target: str,
    events: int,
    folder: pathlib.Path | None = None,
    spark: Sequence[str] = (),
) -> int:
    """Run the demo and print its outcome. The exit code is 0 if each event was counted exactly once, otherwise 1.

    `main` runs a command line in this process; `spark` are arguments for Spark, added to each.
    """
    spark_java_home()  # raises RealPartMissing with one line
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-it-demo-")))
        if folder.is_dir() and any(folder.iterdir()):
            raise PipelineError(f"{folder} is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(make_broker(target))
        print(f"a {target} broker at {broker.bootstrap}; everything else is in {folder}", flush=True)
        folder = folder.absolute()
        commands = Commands(main, folder / "pipeline.toml", (*SHORT_LIVED, *spark))
        commands.config.write_text(CONFIG.format(bootstrap=broker.bootstrap, folder=folder))
        return _run(broker, events, folder, commands)


def _run(broker: Broker, events: int, folder: pathlib.Path, commands: Commands) -> int:
    make_topics(broker.bootstrap)
    more = threading.Event()
    feeder = threading.Thread(target=produce_events, args=(broker.bootstrap, events, more), daemon=True)
    feeder.start()
    with _child(commands.line("process")) as driver:
        _wait_for_results(broker.bootstrap, driver)
        more.set()
        _wait_for_events(broker.bootstrap, events // 2 + events // 10)
        print("--- killing the driver and the broker", flush=True)
    broker.kill()
    broker.start()
    commands.run("load")
    feeder.join(TIMEOUT_S)
    commands.run("process", "--once")
    commands.run("load")
    code = commands.run("audit", check=False)
    wrong = check(broker.bootstrap, folder, events)
    print(
        "\n".join(wrong) or f"{events} events: each once in the lake, each counted once in the results",
        flush=True,
    )
    return 1 if code or wrong else 0


def make_topics(bootstrap: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(client({"bootstrap.servers": bootstrap}))
    compacted = {"cleanup.policy": "compact"}
    forever = {"retention.ms": "-1"}
    new = [NewTopic("events", PARTITIONS, config=forever), NewTopic("results", 2, config=forever)]
    for future in admin.create_topics([*new, NewTopic("users", 1, config=compacted)]).values():
        future.result(60)
    producer = Producer(client({"bootstrap.servers": bootstrap}, enable_idempotence=True))
    for user in range(USERS):
        for country in ("zz", COUNTRIES[user % len(COUNTRIES)]):  # the last one is valid
            producer.produce("users", json.dumps({"country": country}), f"user-{user}")
    producer.flush(60)


def generate_events(count: int) -> Iterator[dict[str, Any]]:
    """The events in the order of their production: some are late, but none too late for its window."""
    rng = random.Random(1)
    for number in range(count):
        at = START_MS + number * EVENT_EVERY_MS - rng.randrange(LATE_MS_MAX) * (number % 10 == 0)
        user = f"user-{rng.randrange(USERS + 2)}"  # two have no country
        yield {"id": f"e-{number:07}", "user": user, "at": at, "amount": rng.randrange(1, 100)}


def _as_json(event: dict[str, Any]) -> str:
    seconds, ms = divmod(event["at"], 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03}Z"
    return json.dumps({**event, "at": at})


def produce_events(bootstrap: str, count: int, more: threading.Event) -> None:
    """Produce the events with an idempotent producer: half at once, and half slowly after `more` is set."""
    from confluent_kafka import Producer

    configuration = client(
        {"bootstrap.servers": bootstrap},
        enable_idempotence=True,
        linger_ms=20,
        delivery_timeout_ms=int(TIMEOUT_S * 1000),
    )
    producer = Producer(configuration)
    for number, event in enumerate(generate_events(count)):
        producer.produce("events", _as_json(event), event["user"], timestamp=event["at"])
        if number == count // 2:
            producer.flush(TIMEOUT_S)
            more.wait(TIMEOUT_S)
        if number >= count // 2 and number % SLOW_EVERY == 0:
            producer.flush(TIMEOUT_S)
            time.sleep(SLOW_S)
    producer.flush(TIMEOUT_S)
    at = START_MS + count * EVENT_EVERY_MS + 3_600_000
    last = {"id": CLOSING, "user": "user-0", "at": at, "amount": 0}
    producer.produce("events", _as_json(last), CLOSING, timestamp=at)
    producer.flush(TIMEOUT_S)


def check(bootstrap: str, folder: pathlib.Path, events: int) -> list[str]:
    """Check the lake and the results without Spark and the audit; one line per fault."""
    from deltalake import DeltaTable

    expected = {event["id"]: event for event in generate_events(events)}
    wrong = []
    rows = (
        DeltaTable(str(folder / "lake"))
        .to_pyarrow_table(columns=["partition", "offset", "value"])
        .to_pylist()
    )
    ids = collections.Counter(json.loads(row["value"])["id"] for row in rows)
    if ids != collections.Counter([*expected, CLOSING]):
        wrong.append(
            f"the lake: {sum((ids - collections.Counter([*expected, CLOSING])).values())} too many, "
            f"{sum((collections.Counter([*expected, CLOSING]) - ids).values())} missing"
        )
    counted: collections.Counter[str] = collections.Counter()
    for window in read_results(bootstrap):
        counted.update(window["ids"])
        amounts = [expected[one]["amount"] for one in window["ids"]]
        countries = {_country(expected[one]["user"]) for one in window["ids"]}
        if (window["count"], window["amount"], {window["country"]}) != (
            len(amounts),
            sum(amounts),
            countries,
        ):
            wrong.append(
                f"results: {window['country']} {window['start']}: {window['count']} and {window['amount']}"
            )
    if counted != collections.Counter(list(expected)):
        doubled = sum(many > 1 for many in counted.values())
        wrong.append(f"results: {doubled} events doubled, {len(expected) - len(counted)} missing")
    return wrong


def _country(user: str) -> str:
    number = int(user.removeprefix("user-"))
    return COUNTRIES[number % len(COUNTRIES)] if number < USERS else "unknown"


def read_results(bootstrap: str) -> list[dict[str, Any]]:
    """Every committed result."""
    from confluent_kafka import Consumer, TopicPartition

    configuration = client(
        {"bootstrap.servers": bootstrap},
        group_id="unused",
        isolation_level="read_committed",
        enable_partition_eof=True,
    )
    consumer = Consumer(configuration)
    try:
        left = {0, 1}
        consumer.assign([TopicPartition("results", partition, 0) for partition in left])
        found = []
        deadline = time.monotonic() + 60
        while left and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(json.loads(message.value() or b""))
            elif message.error().name() == "_PARTITION_EOF":  # type: ignore[union-attr]
                left.discard(int(message.partition() or 0))
        return found
    finally:
        consumer.close()


def _wait_for_results(bootstrap: str, driver: "subprocess.Popen[bytes]") -> None:
    """Wait for the first results. Raises PipelineError if the driver ends or after a timeout."""
    deadline = time.monotonic() + TIMEOUT_S
    while not read_results(bootstrap):
        if driver.poll() is not None:
            raise PipelineError(f"process ended with {driver.returncode} before there was a result")
        if time.monotonic() > deadline:
            raise PipelineError(f"no result in {TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def _wait_for_events(bootstrap: str, count: int) -> None:
    """Wait until the topic has `count` events."""
    from spark_it.pipeline.kafka import Cluster

    cluster = Cluster({"bootstrap.servers": bootstrap})
    topics = list(cluster.topics(["events"]).values())
    while sum(high for _, high in cluster.ends(topics).values()) < count:
        time.sleep(0.05)


@contextlib.contextmanager
def _child(line: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m spark_it …` in its own process group, so that a driver's workers and JVM are killed with it."""
    child = subprocess.Popen([sys.executable, "-m", "spark_it", *line], cwd=ROOT, start_new_session=True)
    try:
        yield child
    finally:
        _kill_group(child)


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(TIMEOUT_S)
