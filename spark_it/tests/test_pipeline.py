"""The pipeline as users run it: the demo, whose driver and broker are killed; one-line errors; progress."""

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from oncelog.spark import SinkError, control
from oncelog.spark.control import Settings
from oncelog.spark.once import prepare_sink
from spark_it.__main__ import main
from spark_it.demo import CONFIG, TIMEOUT_S
from spark_it.pipeline import kafka
from spark_it.pipeline.config import Config
from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.process import OWNER
from spark_it.pipeline.progress import Progress, bar, by_topic, lag_plot
from spark_it.session import ROOT
from spark_it.tests.drivers import JAVA_OPTIONS, java_options
from spark_it.tests.topics import Topics

EVENTS = 4000
CONF = ("--conf", "spark.sql.shuffle.partitions=2")  # the setting of the tests' session


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m spark_it` until it exits."""
    command = [sys.executable, "-m", "spark_it", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
    )


def test_the_demo(
    spark: Any, topics: Topics, target: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The demo itself checks every row, with other clients of Delta Lake and Kafka."""
    folder = tmp_path / "demo"
    arguments = ["--events", str(EVENTS), "--target", target, "--folder", str(folder), *CONF]
    arguments += ["--conf", f"{JAVA_OPTIONS}={java_options()}"]
    code = main(["demo", *arguments])
    out, shown = capfd.readouterr()
    assert code == 0, out[-3000:] + shown[-3000:]
    assert "--- killing the driver and the broker" in out
    assert f"{EVENTS} events: each once in the lake, each counted once in the results" in out
    assert f"results: events counted once: {EVENTS}, doubled: 0, late: 0, in an open window: 1," in out
    assert "[####" in shown
    assert json.loads((folder / "state" / "summary.json").read_text())["rows"] > 0
    assert "<polyline" in (folder / "state" / "lag.svg").read_text()


def test_errors_are_one_line(
    topics: Topics, name: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Missing topics, wrong configurations and foreign folders: one line, exit code 1, and no file is created."""
    topics.make(name)
    config = tmp_path / "pipeline.toml"
    text = CONFIG.format(bootstrap=topics.bootstrap, folder=tmp_path).replace('"events"', f'"{name}"')
    other_pipeline, other_query = tmp_path / "theirs", tmp_path / "query"
    other_pipeline.mkdir()
    (other_pipeline / OWNER).write_text(json.dumps({"events": "others"}))
    (other_query / "checkpoint").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for changed, command, message in (
        (text.replace(f'["{name}"]', '["missing"]'), "load", f"topic missing at {topics.bootstrap}: "),
        (text.replace(f'["{name}"]', '["missing"]'), "audit", f"topic missing at {topics.bootstrap}: "),
        (text, "process", f"topic users at {topics.bootstrap}: "),
        (text, "abort nobody", "sink nobody"),
        (text.replace('lake = "', 'leak = "'), "load", "unknown key leak"),
        (text.replace("tasks = 2", 'tasks = "2"'), "process", "tasks must be a int, not '2'"),
        (text.replace('users = "users"', ""), "process", "the configuration lacks users"),
        (text.replace("tasks = 2", 'unfit = "keep"'), "process", "unfit must be fail or skip, not 'keep'"),
        (text, "load --conf spark.x", "--conf spark.x is not KEY=VALUE"),
        (text, "load --from yesterday", "'yesterday' is neither earliest, latest"),
        (text.replace("/state", "/theirs"), "process", f"its events is 'others', not '{name}'"),
        (text.replace("/state", "/query"), "process", "checkpoint is another query's"),
        (text.replace("/state", "/pipeline.toml"), "process", "is not a folder"),
        (text.replace(f"{tmp_path}/state", str(tmp_path)), "process", "it holds pipeline.toml"),
        ("bootstrap", "load", "pipeline.toml: "),
    ):
        config.write_text(changed)
        assert main([*command.split(), "--config", str(config)]) == 1, command
        shown = capfd.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1, shown.err
        assert shown.err.startswith("spark_it: ")
        assert message in shown.err
        config.unlink()
        assert sorted(tmp_path.rglob("*")) == before, command
    assert not {"missing", "users", "results"} & set(topics.admin.list_topics(timeout=60).topics)
    ran = run("load", "--config", str(tmp_path / "nothing"))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"spark_it: {tmp_path}/nothing: No such file or directory\n"


def test_a_foreign_lake(
    spark: Any, topics: Topics, name: str, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topics.make(name)
    config = tmp_path / "pipeline.toml"
    text = CONFIG.format(bootstrap=topics.bootstrap, folder=tmp_path).replace('"events"', f'"{name}"')
    config.write_text(text)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "something").touch()
    spark.range(1).write.format("delta").save(str(tmp_path / "other"))
    before = sorted(tmp_path.rglob("*"))
    for command, lake, message in (
        ("load", "lake", "is not empty, and no lake"),
        ("audit", "lake", "is not empty, and no lake"),
        ("load", "other", "is a Delta table of somebody else's"),
        ("audit", "nothing", "there is no lake at"),
    ):
        config.write_text(text.replace("/lake", f"/{lake}"))
        assert main([command, "--config", str(config), *CONF]) == 1
        shown = capfd.readouterr()
        assert shown.out == ""
        (line,) = (one for one in shown.err.splitlines() if one.startswith("spark_it: "))
        assert message in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["load", "process", "audit", "abort sink"])
def test_an_unreachable_broker(
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr(kafka, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(control, "CONNECT_S", 1.0)
    config = tmp_path / "pipeline.toml"
    config.write_text(CONFIG.format(bootstrap="127.0.0.1:1", folder=tmp_path))
    assert main([*command.split(), "--config", str(config)]) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    expected = "sink sink: .+" if command == "abort sink" else "topic events at 127.0.0.1:1: .+"
    assert re.fullmatch(rf"spark_it: {expected}\n", shown.err), shown.err
    assert [one.name for one in tmp_path.iterdir()] == ["pipeline.toml"]


def test_a_sink_and_an_unreachable_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CONNECT_S", 1.0)
    with pytest.raises(SinkError, match=r"^sink s: \S.*$"):
        prepare_sink(Settings("s", 1, (), {"bootstrap.servers": "127.0.0.1:1"}), "results")


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
    """A progress event of Spark's, on the screen and in the summary."""
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

    progress: Any = Progress(Screen())
    progress.onQueryProgress(Event())
    assert "".join(shown).split() == ["t", "[######..................]", "10", "rows", "5/s", "lag", "30"]
    progress.save(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["late groups dropped"] == 2
    assert lag_plot([4, 2, 0]).count('points="0.0,0.0 320.0,120.0 640.0,240.0"') == 1
