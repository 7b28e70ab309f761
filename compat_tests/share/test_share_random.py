"""Share consumers of several clients read and acknowledge at random, while some of them and the broker are killed.

On both targets: nothing that was accepted is delivered again, nothing that was released or timed out is lost before its
delivery limit, and no more than the limit is in flight.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.conftest import OwnBrokers
from compat_tests.control.programs import go_program
from compat_tests.differential import Session
from compat_tests.share.readers import set_group_config
from tests.common.batches import batch
from tests.common.jars import RealPartMissing, compile_java, require, tool_command
from tests.common.threads import join

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).parent
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
NOT_LEADER = 6
PARTITIONS = 3
RECORDS = 1_500
BATCH_MAX = 10
LOCKS_MAX = 200
DELIVERIES_MAX = 5
END_S = 120
KILLS = 3
PROPERTIES = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def worker_classes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    try:
        return compile_java([FOLDER / "ShareWorker.java"], tmp_path_factory.mktemp("classes"))
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="module")
def go_worker(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return go_program(tmp_path_factory.mktemp("go"), FOLDER / "go")
    except RealPartMissing as missing:
        require(str(missing))


class Worker:
    """A process with one share consumer, and what it reports."""

    def __init__(self, command: list[str], events: queue.Queue[dict[str, Any]], name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=FOLDER.parents[1]
        )
        self._events = events
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                self._events.put({**json.loads(line), "worker": self.name})

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        join(self._thread)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Model:
    """Rules that the events obey, whatever the order in which they are read."""

    def __init__(self) -> None:
        self.delivered: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
        """By partition and offset: when, for which time, to whom."""
        self.said: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """When, and what."""
        self.holders: dict[tuple[int, int], set[str]] = {}
        """Who was given a record and has not reported what became of it."""
        self.renewed = 0
        self.clients: set[str] = set()
        """Those that were given records."""

    def take(self, event: dict[str, Any]) -> None:
        self.clients.add(event["worker"].partition("-")[0])
        self.renewed += event["event"] == "renewed"
        for partition, offset, what in event["records"]:
            key = partition, offset
            if event["event"] == "got":
                self.delivered.setdefault(key, []).append((event["at"], what, event["worker"]))
                self.holders.setdefault(key, set()).add(event["worker"])
            elif event["event"] == "said":
                self.said.setdefault(key, []).append((event["at"], what))
                if what != RENEW:
                    self.holders[key].discard(event["worker"])

    def is_over(self, key: tuple[int, int]) -> bool:
        """Whether a record was accepted or rejected, or delivered as often as allowed."""
        final = any(what in (ACCEPT, REJECT) for _, what in self.said.get(key, ()))
        return final or any(count >= DELIVERIES_MAX for _, count, _ in self.delivered.get(key, ()))

    def check(self, produced: set[tuple[int, int]]) -> None:
        assert self.delivered.keys() == produced
        for key, deliveries in self.delivered.items():
            if not self.is_over(key):
                # Its last member was killed, or lost its connection, and does not know what became of it. (The one
                # before may report its release after the last one has the record.) Or the last delivery that was
                # allowed got lost on its way, with the member or the broker.
                _, count, last = max(deliveries, key=lambda one: (one[1], one[0]))
                is_unknown = last in self.holders[key] or count == DELIVERIES_MAX - 1
                assert is_unknown, (key, deliveries, self.said.get(key))
            done = [at for at, what in self.said.get(key, ()) if what in (ACCEPT, REJECT)]
            late = [one for one in deliveries if done and one[0] > min(done)]
            assert not late, (key, deliveries, self.said[key])
            counts = [count for _, count, _ in sorted(deliveries)]
            assert counts == sorted(counts), (key, deliveries)
            assert counts[-1] <= DELIVERIES_MAX, (key, deliveries)
        for partition in range(PARTITIONS):
            assert self.held_at_once(partition) <= LOCKS_MAX + BATCH_MAX

    def held_at_once(self, partition: int) -> int:
        """The most records of a partition that members had at the same time, as far as they say."""
        changes = []
        for key, deliveries in self.delivered.items():
            if key[0] != partition:
                continue
            times = sorted(at for at, _, _ in deliveries)
            for at, until in itertools.zip_longest(times, times[1:]):
                ends = [said for said, _ in self.said.get(key, ()) if said >= at]
                changes += [(at, 1), (min([*ends, *([until] if until else [])], default=at), -1)]
        return max(itertools.accumulate(change for _, change in sorted(changes)))


def lag(session: Session, name: str) -> int:
    """The records of all partitions that the group is not done with."""
    topics = [{"topic_name": name, "partitions": list(range(PARTITIONS))}]
    groups = [{"group_id": name, "topics": topics}]
    response = session.call_unobserved("DescribeShareGroupOffsets", 1, {"groups": groups})
    [topic] = response["groups"][0]["topics"]
    return sum(abs(row["lag"]) for row in topic["partitions"])


@pytest.mark.parametrize("kills_broker", [False, True], ids=["members-killed", "broker-killed"])
def test_nothing_twice_and_nothing_lost(
    own_broker: OwnBrokers,
    worker_classes: pathlib.Path,
    go_worker: list[str],
    name: str,
    kills_broker: bool,
) -> None:
    broker = own_broker(PROPERTIES)
    run(broker, commands(broker, worker_classes, go_worker, name), name, kills_broker=kills_broker)


def commands(
    broker: Broker, classes: pathlib.Path, go_worker: list[str], name: str
) -> Iterator[tuple[str, list[str]]]:
    """Endless workers, of all clients and modes in turn."""
    seed = 0
    while True:
        for kind, mode, acquire_mode in (
            ("java", "explicit", "batch_optimized"),
            ("confluent", "explicit", ""),
            ("java", "explicit", "record_limit"),
            ("confluent", "implicit", ""),
            ("go", "work", ""),
        ):
            seed += 1
            arguments = [broker.bootstrap, name, name, str(seed), mode, acquire_mode]
            if kind == "java":
                command = tool_command("ShareWorker", *arguments, class_path=[classes])
            elif kind == "go":
                command = [*go_worker, *arguments]
            else:
                command = [sys.executable, str(FOLDER / "share_worker.py"), *arguments]
            yield f"{kind}-{seed}", command


def run(broker: Broker, starting: Iterator[tuple[str, list[str]]], name: str, *, kills_broker: bool) -> None:
    rng = random.Random(1)
    session = Session(broker.bootstrap)
    session.topic(name, PARTITIONS)
    set_group_config(
        session,
        name,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms="2000",
        share_partition_max_record_locks=str(LOCKS_MAX),
    )
    produced: set[tuple[int, int]] = set()

    def produce(count: int) -> None:
        while count > 0:
            partition, size = rng.randrange(PARTITIONS), rng.choice((1, 1, 3, BATCH_MAX))
            row = session.produce(name, batch(size), partition=partition)
            while row["error_code"] == NOT_LEADER:  # a Kafka that has just started elects leaders twice
                row = session.produce(name, batch(size), partition=partition)
            assert row["error_code"] == 0, row
            produced.update((partition, row["base_offset"] + delta) for delta in range(size))
            count -= size

    events: queue.Queue[dict[str, Any]] = queue.Queue()
    model = Model()
    first = [next(starting) for _ in range(5)]
    # The others would have read it all before a JVM has started.
    first.sort(key=lambda one: not one[0].startswith("java"))
    workers = [Worker(command, events, kind) for kind, command in first[:2]]
    kills = 0
    try:
        produce(RECORDS // 2)
        deadline = time.monotonic() + END_S
        while not model.renewed:
            model.take(events.get(timeout=END_S))
        workers += [Worker(command, events, kind) for kind, command in first[2:]]
        while len(model.clients) < len({kind.partition("-")[0] for kind, _ in first}):
            assert time.monotonic() < deadline, model.clients
            try:
                model.take(events.get(timeout=0.2))
            except queue.Empty:
                produce(BATCH_MAX)
        while True:
            assert time.monotonic() < deadline, [key for key in produced if not model.is_over(key)][:20]
            try:
                model.take(events.get(timeout=0.5))
            except queue.Empty:
                if kills == KILLS and lag(session, name) == 0:
                    break
                continue
            over = sum(map(model.is_over, produced))
            if kills < KILLS and over > len(produced) * (kills + 1) // 5:
                kills += 1
                if kills_broker and kills == 2:
                    session.close()
                    broker.kill()
                    broker.restart()
                    session = Session(broker.bootstrap)
                    session.wait_for_leaders(name, PARTITIONS)
                else:
                    workers[rng.randrange(len(workers))].kill()
                    kind, command = next(starting)
                    workers.append(Worker(command, events, kind))
                produce(RECORDS // 6)
    finally:
        for worker in workers:
            worker.kill()
        session.close()
    while not events.empty():
        model.take(events.get())
    model.check(produced)
