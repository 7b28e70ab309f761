"""process and publish as commands: late events, records that are not events, and two drivers of one sink."""

import contextlib
import datetime
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from spark_it.__main__ import main
from spark_it.session import ROOT
from spark_it.tests.drivers import JAVA_OPTIONS, java_options
from spark_it.tests.topics import DEADLINE_S, Record, Topics, wait_until

DRIVER_START_S = 300  # for the start of a driver process on a busy machine
FIRST_EVENT_S = 1_790_000_040  # the start of a minute, and of a window
CONF = ("--conf", "spark.sql.shuffle.partitions=2")
CONFIG = """\
bootstrap = "{bootstrap}"
lake = "{folder}/lake"
topics = ["{name}"]
events = "{name}"
users = "{name}users"
results = "{name}results"
state = "{folder}/state"
sink = "{name}sink"
tasks = 1
"""


def event(number: int, at_s: float, user: str = "ann") -> Record:
    """An event `at_s` seconds after the start."""
    at = datetime.datetime.fromtimestamp(FIRST_EVENT_S + at_s, datetime.UTC).isoformat()
    return Record(
        b"%d" % number, json.dumps({"id": f"e{number}", "user": user, "at": at, "amount": 1}).encode()
    )


class Pipeline:
    """A configuration with its topics, and its commands."""

    def __init__(self, topics: Topics, name: str, folder: pathlib.Path) -> None:
        self.topics = topics
        self.name = name
        self.folder = folder
        self.config = folder / "pipeline.toml"
        self.text = CONFIG.format(bootstrap=topics.bootstrap, folder=folder, name=name)
        self.config.write_text(self.text)
        topics.make(name)
        topics.make(f"{name}results")
        topics.make(f"{name}users")
        topics.produce(
            f"{name}users", [Record(b"ann", b'{"country": "at"}'), Record(b"bob", b'{"country": "be"}')]
        )

    def produce(self, *events: Record) -> None:
        self.topics.produce(self.name, events)

    def run(self, command: str, *more: str) -> int:
        """Run a command in this process, as its driver; the exit code."""
        return main([command, "--config", str(self.config), *(CONF if command != "abort" else ()), *more])

    def published(self) -> list[tuple[str, int, list[str]]]:
        """(country, minute, events' ids) of each result."""
        found = [json.loads(one or b"") for one in self.topics.values(f"{self.name}results")]
        return sorted((one["country"], _minute(one["start"]), one["ids"]) for one in found)

    def driver(self) -> "subprocess.Popen[str]":
        """Start `process` in its own process and process group."""
        arguments = [
            "process",
            "--config",
            str(self.config),
            *CONF,
            "--conf",
            f"{JAVA_OPTIONS}={java_options()}",
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "spark_it", *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def _minute(start: str) -> int:
    return int(datetime.datetime.fromisoformat(start).timestamp() - FIRST_EVENT_S) // 60


@pytest.fixture
def pipeline(spark: Any, topics: Topics, name: str, tmp_path: pathlib.Path) -> Pipeline:
    return Pipeline(topics, name, tmp_path)


def error_line(capfd: pytest.CaptureFixture[str]) -> str:
    """The command's only line on standard error, which must be the last."""
    shown = capfd.readouterr().err.splitlines()
    assert shown[-1].startswith("spark_it: "), shown[-5:]
    assert sum(line.startswith("spark_it: ") for line in shown) == 1
    return shown[-1]


def test_late_events(pipeline: Pipeline, capfd: pytest.CaptureFixture[str]) -> None:
    """The run and the audit report events that the watermark drops; events that are only unordered count once."""
    pipeline.produce(event(0, 5), event(1, 70, "bob"), event(2, 50), event(3, 59, "cleo"), event(4, 200))
    assert pipeline.run("process", "--once") == 0
    # The watermark is at 170 s: two windows are closed; the one that began at 120 s is open.
    first = [("at", 0, ["e0", "e2"]), ("be", 1, ["e1"]), ("unknown", 0, ["e3"])]
    assert pipeline.published() == first
    assert ", 0 late groups dropped" in capfd.readouterr().out
    pipeline.produce(event(5, 10), event(6, 100, "bob"), event(7, 11), event(8, 130), event(9, 300))
    assert pipeline.run("process", "--once") == 0
    assert pipeline.published() == sorted([*first, ("at", 2, ["e8"]), ("at", 3, ["e4"])])
    summary = json.loads((pipeline.folder / "state" / "summary.json").read_text())
    assert summary["late groups dropped"] == 2  # (minute 0, at), which has e5 and e7, and (minute 1, be)
    assert pipeline.run("load") == 0
    capfd.readouterr()
    assert pipeline.run("audit") == 0
    output = capfd.readouterr().out
    counted = "once: 6, doubled: 0, late: 3, in an open window: 1, no longer in the topic: 0"
    assert f"{pipeline.name}results: events counted {counted}" in output
    # A duplicate result is a fault.
    (duplicate, *_) = pipeline.topics.values(f"{pipeline.name}results")
    pipeline.topics.produce(f"{pipeline.name}results", [Record(None, duplicate)])
    assert pipeline.run("audit") == 1
    assert "doubled: " in capfd.readouterr().out


def test_records_that_are_not_events(pipeline: Pipeline, capfd: pytest.CaptureFixture[str]) -> None:
    """Such a record ends the query with its offset in the error, or is skipped."""
    pipeline.produce(event(0, 5), Record(None, b"{}"), event(1, 200))
    assert pipeline.run("process", "--once") == 1
    assert f"spark_it: {pipeline.name}-0, offset 1 is no event: JSON with id and at" in error_line(capfd)
    assert pipeline.published() == []
    pipeline.config.write_text(f'unfit = "skip"\n{pipeline.text}')
    assert pipeline.run("process", "--once") == 0
    assert pipeline.published() == [("at", 0, ["e0"])]


def test_two_drivers(pipeline: Pipeline, capfd: pytest.CaptureFixture[str]) -> None:
    """A second driver on another checkpoint is refused; on the same one it takes over, and the first driver, which was
    stopped meanwhile, ends with the second one's name."""
    pipeline.produce(event(0, 5), event(1, 200))
    with killed_after(pipeline.driver()) as other:
        this_driver, other_driver = (f"{socket.gethostname()}:{pid}" for pid in (os.getpid(), other.pid))
        wait_until(
            lambda: pipeline.published() or other.poll() is not None, "its first results", DRIVER_START_S
        )
        assert other.poll() is None, other.communicate()
        checkpoint = pipeline.folder / "state" / "checkpoint"
        wait_until(lambda: _settled(checkpoint), "its second batch, which has no rows")
        # A driver with another checkpoint.
        pipeline.config.write_text(pipeline.text.replace("/state", "/other"))
        assert pipeline.run("process", "--once") == 1
        assert f"belongs to query {_query(checkpoint)} ({other_driver})" in error_line(capfd)
        # A driver with the same checkpoint, while the first driver is stopped.
        pipeline.config.write_text(pipeline.text)
        os.killpg(other.pid, signal.SIGSTOP)
        pipeline.produce(event(2, 210), event(3, 400))
        assert pipeline.run("process", "--once") == 0
        os.killpg(other.pid, signal.SIGCONT)
        _, shown = other.communicate(timeout=DEADLINE_S)
        assert other.returncode == 1
        line = shown.splitlines()[-1]
        assert line.startswith(f"spark_it: sink {pipeline.name}sink was taken over"), shown[-2000:]
        assert this_driver in line
    assert pipeline.published() == [("at", 0, ["e0"]), ("at", 3, ["e1", "e2"])]


def _query(checkpoint: pathlib.Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def _settled(checkpoint: pathlib.Path) -> bool:
    return (checkpoint / "commits" / "1").exists()


@contextlib.contextmanager
def killed_after(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    """Kill the process's whole group when the context is left."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
