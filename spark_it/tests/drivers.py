"""How the JVMs of these tests' drivers begin and compile: Spark's classes come from an archive, once it is made.

    python -m spark_it.tests.drivers [OPTION…]

makes the archive where it is missing; with options of Java it is the driver whose classes the archive will hold.
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from compat_tests.class_archive import archive_options
from compat_tests.real_kafka import RealPartMissing, java
from spark_it.session import ROOT, spark_java_home, spark_session

# Hundreds of small queries in a short life: what a compiler takes for one of them never comes back. All of their code
# is kept, for which this compiler alone would be given 48 MB.
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
    # Its output ends with its JVM, which is what to wait for.
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
        with contextlib.suppress(RealPartMissing):  # the tests will say what is missing
            spark_java_home()
            java_options()
