"""publish: results into a topic, each exactly once, through the sink of `spark_it.sink`."""

import pathlib
from typing import Any

from spark_it.pipeline.config import Config
from spark_it.pipeline.process import check_state, results
from spark_it.sink import write_once


def publish(spark: Any, config: Config, *, once: bool) -> Any:
    """The running query. With `once` it ends when what is there now is done. Raises SinkError, PipelineError."""
    config.need("events", "users", "results", "state")
    check_state(config)
    writer = write_once(
        results(spark, config),
        config.sink,
        kafka=config.librdkafka,
        tasks=config.tasks,
        topic=config.results,
        source=config.events,
    )
    writer = writer.option("checkpointLocation", str(pathlib.Path(config.state) / "checkpoint"))
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    return writer.queryName(config.sink).trigger(**trigger).start()


def count_results(spark: Any, config: Config) -> dict[str, int]:
    """Of the events' ids: how many are in the results once, more than once, and not (late, or in an open window)."""
    from pyspark.sql.functions import explode, from_json

    def read(topic: str) -> Any:
        reader = spark.read.format("kafka").option("subscribe", topic)
        for key, value in config.connector.items():
            reader = reader.option(key, value)
        return reader.option("kafka.isolation.level", "read_committed").load()

    found = read(config.results).selectExpr("cast(value AS STRING) AS text")
    ids = found.select(explode(from_json("text", "ids ARRAY<STRING>").ids).alias("id")).groupBy("id").count()
    sent = read(config.events).selectExpr("get_json_object(cast(value AS STRING), '$.id') AS id").distinct()
    both = sent.join(ids, "id", "full_outer")
    row = both.selectExpr(
        "count_if(count = 1) AS once",
        "count_if(count > 1) AS doubled",
        "count_if(count IS NULL) AS not_counted",
    ).collect()[0]
    return {"once": int(row["once"]), "doubled": int(row["doubled"]), "not counted": int(row["not_counted"])}
