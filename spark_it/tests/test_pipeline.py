"""The pipeline as its users run it: the demo, whose driver and broker are killed; what it says when it cannot run."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from compat_tests.real_kafka import RealPartMissing, require
from spark_it.demo import CONFIG, TIMEOUT_S
from spark_it.pipeline import kafka
from spark_it.pipeline.config import Config
from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.kafka import Cluster
from spark_it.pipeline.progress import Progress, bar, by_topic, lag_plot
from spark_it.session import ROOT, spark_java_home
from spark_it.sink import SinkError, control
from spark_it.sink.control import Settings
from spark_it.sink.once import reach
from spark_it.tests.targets import long_on_kafka, only_oncelog
from spark_it.tests.topics import Topics

EVENTS = 4000


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """`python -m spark_it`, to its end."""
    command = [sys.executable, "-m", "spark_it", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
    )


@long_on_kafka
def test_the_demo(topics: Topics, target: str, tmp_path: pathlib.Path) -> None:
    """It checks itself row by row, with another reader of Delta Lake and another client of Kafka."""
    if not topics.serves("EndTxn"):
        require("the broker serves no transactions yet")
    try:
        spark_java_home()
    except RealPartMissing as missing:
        require(str(missing))
    folder = tmp_path / "demo"
    ran = run("demo", "--events", str(EVENTS), "--target", target, "--folder", str(folder))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "--- killing the driver and the broker" in ran.stdout
    assert f"{EVENTS} events: each once in the lake, each counted once in the results" in ran.stdout
    assert f"results: events counted once: {EVENTS}, doubled: 0, not counted: 1" in ran.stdout
    assert "[####" in ran.stderr
    assert json.loads((folder / "state" / "summary.json").read_text())["rows"] > 0
    assert "<polyline" in (folder / "state" / "lag.svg").read_text()


@only_oncelog
def test_one_line_each(topics: Topics, name: str, tmp_path: pathlib.Path) -> None:
    """Without a topic, a broker, a configuration, a place of its own: one line, exit code 1, and nothing is made."""
    config = tmp_path / "pipeline.toml"
    text = CONFIG.format(bootstrap=topics.bootstrap, folder=tmp_path)
    for changed, command, said in (
        (text, "load", "spark_it: topic events at "),
        (text.replace('lake = "', 'leak = "'), "load", "unknown key leak"),
        (text.replace("tasks = 2", 'tasks = "2"'), "process", "tasks must be a int, not '2'"),
        (text.replace('users = "users"', ""), "process", "the configuration lacks users"),
    ):
        config.write_text(changed)
        ran = run(command, "--config", str(config))
        assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
        assert said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert run("load", "--config", str(tmp_path / "nothing")).returncode == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["pipeline.toml"]


def test_an_unreachable_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(control, "CONNECT_S", 1.0)
    settings = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(PipelineError, match=r"^topic events at 127.0.0.1:1: \S.*$"):
        Cluster(settings).topics(["events"])
    with pytest.raises(SinkError, match=r"^sink s: \S.*$"):
        reach(Settings("s", 1, (), settings), "results")


def test_configuration(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(
        'bootstrap = "b:1"\nlake = "l"\ntopics = ["a", "b"]\n[kafka]\n"security.protocol" = "SSL"\n'
    )
    config = Config.read(str(path))
    assert config.topics == ("a", "b")
    assert config.connector == {"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SSL"}
    path.write_text('bootstrap = "b:1"')
    with pytest.raises(PipelineError, match="lake, topics is missing"):
        Config.read(str(path))


def test_progress(tmp_path: pathlib.Path) -> None:
    """A progress event of Spark's form, as it shows on the screen and in the summary."""
    source = {"endOffset": {"t": {"0": 5, "1": 5}}, "latestOffset": {"t": {"0": 10, "1": 30}}}
    assert by_topic(source) == {"t": (10, 40)}
    assert by_topic({"endOffset": json.dumps({"t": {"0": 5}}), "latestOffset": None}) == {"t": (5, 5)}
    assert bar(10, 40) == "[######..................]"
    assert bar(0, 0) == f"[{'#' * 24}]"
    shown: list[str] = []

    class Screen:
        write = staticmethod(shown.append)
        flush = staticmethod(lambda: None)

    class Event:
        class progress:  # noqa: N801 - Spark's name
            json = json.dumps(
                {
                    "numInputRows": 10,
                    "processedRowsPerSecond": 5.0,
                    "timestamp": "now",
                    "sources": [source],
                    "stateOperators": [{"numRowsDroppedByWatermark": 2}],
                }
            )

    seen: Any = Progress(Screen())
    seen.onQueryProgress(Event())
    assert "".join(shown).split() == ["t", "[######..................]", "10", "rows", "5/s", "lag", "30"]
    seen.save(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["dropped as late"] == 2
    assert lag_plot([4, 2, 0]).count('points="0.0,0.0 320.0,120.0 640.0,240.0"') == 1
