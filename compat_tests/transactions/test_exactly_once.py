"""A consume-transform-produce program and its broker are killed at random: each input has exactly one output."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.differential import make_topic
from compat_tests.proxied import PROXY_CLUSTER, PROXY_ONCELOG
from compat_tests.transactions.java_worker import JavaWorker
from compat_tests.transactions.reader import FAST_RECONNECT, Reader, places, values
from tests.common.process import Lines
from tests.common.seeds import printed_rng
from tests.common.threads import join

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTITIONS = 3
PROGRAM_KILLS = {"oncelog": 5, "kafka": 2, PROXY_CLUSTER: 2, PROXY_ONCELOG: 2}
BROKER_KILLS = {"oncelog": 5, "kafka": 1, PROXY_CLUSTER: 2, PROXY_ONCELOG: 3}
AHEAD = 200
GROWTH = (0, 1, 10, 100)
"""The number of further output records before the next kill."""
PROPERTIES = {
    # Few partitions, because the broker opens all of them at each of its many starts.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Inputs:
    """Writes numbers to the topic ``in`` until `close`, through restarts of the broker, and never far ahead of
    ``reader``, which reads the outputs.
    """

    def __init__(self, bootstrap: str, reader: Reader) -> None:
        self.count = 0
        self._reader = reader
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                **FAST_RECONNECT,
            }
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.02):
            if self.count > len(self._reader.rows) + AHEAD:
                continue
            for _ in range(5):
                self._producer.produce("in", b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)

    def close(self) -> int:
        """Stop writing; returns how many numbers were written."""
        self._stop.set()
        join(self._thread)
        assert self._producer.flush(60) == 0
        return self.count


class Program:
    """A transformer in its own process."""

    def __init__(self, client: str, bootstrap: str, classes: pathlib.Path) -> None:
        arguments = [bootstrap, "in", "out", "transformers", "transformer"]
        self._java: JavaWorker | None = None
        self._process: subprocess.Popen[str] | None = None
        if client == "java":
            self._java = JavaWorker(classes)
            assert self._java.execute("transform", *arguments) == "ok"
            return
        command = [sys.executable, "-W", "ignore", "-m", "compat_tests.transactions.transformer", *arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self._stderr = Lines(self._process.stderr)

    def output(self) -> str:
        """The program's last output; with a traceback of what the Python one is doing now."""
        if self._java is not None:
            return self._java.output()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)
            self._stderr.wait_for("(most recent call first)", timeout_s=5)
        return self._stderr.text()

    def kill(self) -> None:
        if self._java is not None:
            self._java.end(kill=True)
        elif self._process is not None:
            self._process.kill()
            self._process.wait()
            self._stderr.close()


@contextlib.contextmanager
def running(start: Callable[[], Program]) -> Iterator[list[Program]]:
    """A list with the program that runs now; a test replaces it."""
    programs = [start()]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()


@pytest.mark.slow
@pytest.mark.also_on(PROXY_CLUSTER, PROXY_ONCELOG)
@pytest.mark.parametrize("client", ["confluent", "java"])
def test_exactly_once(
    own_broker: Callable[..., Any], target: str, client: str, java_transactions: pathlib.Path
) -> None:
    rng = printed_rng()
    broker = own_broker(PROPERTIES)
    for topic in ("in", "out"):
        make_topic(broker.bootstrap, topic, PARTITIONS)
    kills = ["program"] * PROGRAM_KILLS[target] + ["broker"] * BROKER_KILLS[target]
    rng.shuffle(kills)
    killed_output: list[str] = []

    def start() -> Program:
        return Program(client, broker.bootstrap, java_transactions)

    with (
        running(start) as programs,
        Reader(broker.bootstrap, "out", PARTITIONS) as reader,
        Reader(broker.bootstrap, "out", PARTITIONS, level="read_uncommitted") as uncommitted,
    ):
        inputs = Inputs(broker.bootstrap, reader)
        try:
            for victim in kills:
                # When the uncommitted reader has a new record, a transaction is probably open.
                observer = rng.choice((reader, uncommitted))
                observer.wait_for(len(observer.rows) + rng.choice(GROWTH))
                if victim == "broker":
                    broker.kill()
                    broker.start()
                else:
                    killed = programs.pop()
                    killed.kill()
                    killed_output.append(killed.output())
                    programs.append(start())
            count = inputs.close()
            reader.wait_for(count)
            uncommitted.wait_for(count)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{programs[0].output()}") from error
        found = Counter(values(broker.bootstrap, "out", count, PARTITIONS))
        wrong = {value for value in {*found, *map(str, range(count))} if found[value] != 1}
        if wrong:
            # Was it read twice, written twice, or committed without its offset? And which program was it?
            for topic, level in (
                ("in", "read_committed"),
                ("out", "read_committed"),
                ("out", "read_uncommitted"),
            ):
                print(*places(broker.bootstrap, topic, wrong, PARTITIONS, level=level), sep="\n")
            print(*killed_output, programs[0].output(), sep="\n\n")
    assert found == Counter(str(number) for number in range(count)), found.most_common(5)
    assert len(uncommitted.rows) >= count
    print(f"{count} inputs, {len(uncommitted.rows) - count} records of aborted transactions")
