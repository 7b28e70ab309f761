"""The sink as users install it: `oncelog[spark]` from the wheel, in a venv that is not activated."""

import os
import pathlib
import subprocess

import pyspark
import pytest

from spark_it.session import spark_java_home
from spark_it.tests.drivers import java_options
from spark_it.tests.topics import Topics
from tests.common.archives import build, install
from tests.common.jars import RealPartMissing, require

PROGRAM = """
import sys
import pyspark.sql
from oncelog.spark import write_once

bootstrap, folder, java_options = sys.argv[1:]
builder = pyspark.sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", java_options).getOrCreate()
def where(_):
    import oncelog.spark
    return oncelog.spark.__file__
print("executors import", *set(spark.sparkContext.parallelize(range(2), 2).map(where).collect()))
writer = write_once(
    spark.readStream.text(f"{folder}/lines"), "installed",
    kafka={"bootstrap.servers": bootstrap}, topic="installed-out", create_partitions=3, tasks=2,
)
writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
assert writer.start().awaitTermination(120)
"""
TIMEOUT_S = 240


@pytest.mark.parametrize("target", ["oncelog"])
def test_the_sink_from_the_wheel(topics: Topics, tmp_path: pathlib.Path) -> None:
    try:
        java_home = spark_java_home()
    except RealPartMissing as missing:
        require(str(missing))
    venv = tmp_path / "venv"
    _, wheel = build(pathlib.Path(__file__).parents[2], tmp_path / "dist")
    install(wheel, venv, extra="[spark]", lock="requirements-spark.lock")
    python = venv / "bin" / "python"
    # The extra brings everything but PySpark and py4j.
    (packages,) = venv.glob("lib/*/site-packages")
    for name in ("pyspark", "py4j"):
        (packages / name).symlink_to(pathlib.Path(pyspark.__file__).parents[1] / name)

    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.txt").write_text("a\nb\nc\n")
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PY", "VIRTUAL_ENV"))
    }
    environment |= {"JAVA_HOME": str(java_home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [python, "-c", PROGRAM, topics.bootstrap, str(tmp_path), java_options()],
        cwd=tmp_path,
        env=environment,
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[0] == f"executors import {packages}/oncelog/spark/__init__.py"
    assert sorted(value or b"" for value in topics.values("installed-out", 3)) == [b"a", b"b", b"c"]
