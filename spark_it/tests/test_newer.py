"""A checkpoint that moves to a newer PySpark."""

import json
import os
import pathlib
import subprocess
from typing import Any

from spark_it.session import ROOT
from spark_it.tests.dying import plan_deaths
from spark_it.tests.queries import Query, kafka_stream
from spark_it.tests.topics import Topics, numbered
from tests.common.jars import require

NEWER = ROOT / ".venv-spark-next" / "bin" / "python"
TIMEOUT_S = 300


def run_newer(module: str, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a module with the newer PySpark. Skips the test without its venv."""
    if not NEWER.exists():
        require("the newer PySpark's venv is not there: make test-spark makes it")
    # It must not use this Spark's workers and home.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))
    }
    run = subprocess.run(
        [NEWER, "-m", module, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if check:
        assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    return run


def test_a_checkpoint_moves_on(
    spark: Any, topics: Topics, name: str, checkpoint: str, tmp_path: pathlib.Path
) -> None:
    """The newer PySpark continues after the last batch; its sink, which gets Arrow batches, writes exactly once."""
    topics.make(name, 2)
    topics.produce(name, numbered(5), 0)
    query = Query(kafka_stream(spark, topics.bootstrap, subscribe=name), checkpoint, availableNow=True).end()
    assert len(query.rows) == 5
    topics.produce(name, numbered(3, 5), 0)
    topics.produce(name, numbered(2, 50), 1)
    out = topics.make(f"{name}out")
    plan_deaths(tmp_path / "deaths", 0, 0, "committed", 1)
    run = run_newer("spark_it.tests.newer", topics.bootstrap, name, checkpoint, out, str(tmp_path / "deaths"))
    results = json.loads(run.stdout.splitlines()[-1])
    expected = [
        [0, 5, "k5", "v5"],
        [0, 6, "k6", "v6"],
        [0, 7, "k7", "v7"],
        [1, 0, "k50", "v50"],
        [1, 1, "k51", "v51"],
    ]
    assert results["version"] != spark.version
    assert results["rows"] == expected
    assert results["batches"] == [1]
    assert (results["arrow"], results["failed"]) == (True, [True])
    written = sorted(value or b"" for value in topics.values(out))
    assert written == sorted([b"v%d" % one for one in range(8)] + [b"v50", b"v51"])
    assert {one.headers() for one in topics.read(out)} == {None}
