"""demo: the whole pipeline against a broker of its own, the driver and the broker killed in the middle."""

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
CLOSING = "closing"  # an event so late in time that every window before it closes
SLOW_EVERY, SLOW_S = 100, 0.1  # a pause so often, that the kill falls into the feeding
TIMEOUT_S = 600.0
# A JVM that lives for a minute does not get back what its second compiler takes.
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
        """Run it in this process, which keeps its Spark; its exit code. With `check` another than 0 raises."""
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
    """Run it and show what arrived. 0 where each event was counted exactly once, 1 else.

    `main` runs a command line in this process; `spark` are its arguments for Spark.
    """
    spark_java_home()  # or the line that says what is missing
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
    feeder = threading.Thread(target=feed, args=(broker.bootstrap, events, more), daemon=True)
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
        for country in ("zz", COUNTRIES[user % len(COUNTRIES)]):  # the last one counts
            producer.produce("users", json.dumps({"country": country}), f"user-{user}")
    producer.flush(60)


def made_events(count: int) -> Iterator[dict[str, Any]]:
    """Events as they are fed: some come late, none too late for its window."""
    chance = random.Random(1)
    for number in range(count):
        at = START_MS + number * EVENT_EVERY_MS - chance.randrange(LATE_MS_MAX) * (number % 10 == 0)
        user = f"user-{chance.randrange(USERS + 2)}"  # two have no country
        yield {"id": f"e-{number:07}", "user": user, "at": at, "amount": chance.randrange(1, 100)}


def _as_json(event: dict[str, Any]) -> str:
    seconds, ms = divmod(event["at"], 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03}Z"
    return json.dumps({**event, "at": at})


def feed(bootstrap: str, count: int, more: threading.Event) -> None:
    """Feed them with an idempotent producer, half at once, and half slowly when `more` is set."""
    from confluent_kafka import Producer

    configuration = client(
        {"bootstrap.servers": bootstrap},
        enable_idempotence=True,
        linger_ms=20,
        delivery_timeout_ms=int(TIMEOUT_S * 1000),
    )
    producer = Producer(configuration)
    for number, event in enumerate(made_events(count)):
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
    """What is wrong, row by row, with the lake and the results; neither Spark nor the audit is asked."""
    from deltalake import DeltaTable

    expected = {event["id"]: event for event in made_events(events)}
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
    """Every committed window."""
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
    """Return when the first results are there."""
    deadline = time.monotonic() + TIMEOUT_S
    while not read_results(bootstrap):
        if driver.poll() is not None:
            raise PipelineError(f"process ended with {driver.returncode} before there was a result")
        if time.monotonic() > deadline:
            raise PipelineError(f"no result in {TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def _wait_for_events(bootstrap: str, count: int) -> None:
    """Return when so many are there."""
    from spark_it.pipeline.kafka import Cluster

    cluster = Cluster({"bootstrap.servers": bootstrap})
    topics = list(cluster.topics(["events"]).values())
    while sum(high for _, high in cluster.ends(topics).values()) < count:
        time.sleep(0.05)


@contextlib.contextmanager
def _child(line: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m spark_it …`, in a process group of its own: a killed driver's workers and JVM go with it."""
    child = subprocess.Popen([sys.executable, "-m", "spark_it", *line], cwd=ROOT, start_new_session=True)
    try:
        yield child
    finally:
        _kill_group(child)


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(TIMEOUT_S)
