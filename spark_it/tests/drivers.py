"""The JVM options of the tests' drivers, which load Spark's classes from an archive.

    python -m spark_it.tests.drivers [OPTION…]

writes the archive if it is missing. With Java options it is the driver whose classes the archive will contain.
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from spark_it.session import ROOT, spark_java_home, spark_session
from tests.common.class_archive import archive_options
from tests.common.jars import RealPartMissing, java

# A driver runs hundreds of small queries, for each of which compilation costs more than it saves. All of their code is
# kept; by default this compiler would have only 48 MB for it.
CHEAP = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
CHEAP_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=128m")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
TIMEOUT_S = 300


def java_options() -> str:
    """The options of a driver's JVM. Raises RealPartMissing."""
    import pyspark

    jars = pathlib.Path(pyspark.__file__).parent / "jars"
    return " ".join((*CHEAP_JAVA, *archive_options(jars, java(), _train)))


def _train(options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "spark_it.tests.drivers", *CHEAP_JAVA, *options]
    # The output ends when the JVM exits, which writes the archive.
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"


def main(*options: str) -> None:
    spark = spark_session("archive", conf={**CHEAP, JAVA_OPTIONS: " ".join(options)})
    with tempfile.TemporaryDirectory(prefix="spark-it-") as folder:
        table = f"{folder}/table"
        spark.range(10).selectExpr("id", "id % 3 as key").groupBy("key").count().write.format("delta").save(
            table
        )
        assert len(spark.read.format("delta").load(table).collect()) == 3
        spark.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        with contextlib.suppress(RealPartMissing):  # the tests report what is missing
            spark_java_home()
            java_options()
