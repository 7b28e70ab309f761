"""A program for the newer PySpark: it continues from a checkpoint, runs the sink, and prints the results as JSON.

    python -m spark_it.tests.newer BOOTSTRAP TOPIC CHECKPOINT OUT FOLDER

Without OUT and FOLDER it writes nothing. The sink runs twice; FOLDER has the deaths of the first run.
"""

import json
import pathlib
import sys
from typing import Any

from oncelog.spark import write_once
from oncelog.spark.source import ARROW_WRITER
from spark_it.session import spark_session
from spark_it.tests.drivers import CHEAP, CHEAP_JAVA, JAVA_OPTIONS
from spark_it.tests.dying import DyingSource
from spark_it.tests.queries import Query, kafka_stream


def main(bootstrap: str, topic: str, checkpoint: str, out: str = "", folder: str = "") -> None:
    conf = {**CHEAP, JAVA_OPTIONS: " ".join(CHEAP_JAVA), "spark.driver.memory": "512m"}
    spark = spark_session("newer", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    query = Query(kafka_stream(spark, bootstrap, subscribe=topic), checkpoint, availableNow=True).end()
    results: dict[str, Any] = {"version": spark.version, "rows": query.rows, "batches": sorted(query.batches)}
    if out:
        results |= {"arrow": ARROW_WRITER is not None, "failed": []}
        for _ in range(2):
            try:
                _write(spark, bootstrap, topic, out, pathlib.Path(folder))
            except Exception as failed:
                results["failed"].append("Python worker exited unexpectedly" in str(failed))
    print(json.dumps(results))
    spark.stop()


def _write(spark: Any, bootstrap: str, topic: str, out: str, folder: pathlib.Path) -> None:
    stream = kafka_stream(spark, bootstrap, subscribe=topic, includeHeaders="true")
    rows = stream.selectExpr("key", "cast(value as string) as value", "headers")
    kafka = {"bootstrap.servers": bootstrap}
    writer = write_once(rows, f"{out}sink", kafka=kafka, tasks=3, topic=out, data_source=DyingSource)
    writer = writer.option("deaths", str(folder)).option("checkpointLocation", str(folder.parent / "newer"))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
