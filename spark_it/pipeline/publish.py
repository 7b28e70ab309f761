"""publish: writes results to a topic, each exactly once, through the sink of `oncelog.spark`."""

import pathlib
from typing import Any

from oncelog.spark import SinkError, write_once
from oncelog.spark.once import successor
from spark_it.pipeline.config import Config
from spark_it.pipeline.process import EVENT, check_state, create_state, results


def publish(spark: Any, config: Config, *, once: bool) -> Any:
    """Start the query and return it. With `once` it ends after the events that are there now.

    Raises SinkError, PipelineError.
    """
    config.require("events", "users", "results", "state")
    check_state(config)
    create_state(config)
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


def explain(config: Config, error: Exception) -> Exception:
    """The error, or a SinkError that names the other driver if Spark ended one of two on the same checkpoint."""
    if "CONCURRENT_STREAM_LOG_UPDATE" in str(error):
        other = successor(config.sink, config.librdkafka)
        if other is not None:
            return SinkError(f"sink {config.sink} was taken over: {other} runs on the same checkpoint")
    return error


def count_results(spark: Any, config: Config) -> dict[str, int]:
    """Counts of events by id: once in the results, more than once, not at all, and no longer in the topic.

    An event that is not in the results was late if the results have a window at least as new as its own; otherwise its
    window is still open.
    """
    from pyspark.sql.functions import col, count, explode, from_json, lit, max, window

    def read(topic: str, schema: str) -> Any:
        reader = spark.read.format("kafka").option("subscribe", topic)
        for key, value in config.connector.items():
            reader = reader.option(key, value)
        rows = reader.option("kafka.isolation.level", "read_committed").load()
        return rows.select(from_json(col("value").cast("string"), schema).alias("it")).select("it.*")

    found = read(config.results, "start TIMESTAMP, ids ARRAY<STRING>").persist()
    try:
        last = found.agg(max("start")).collect()[0][0]
        ids = found.select(explode("ids").alias("id")).groupBy("id").agg(count(lit(1)).alias("copies"))
        sent = read(config.events, EVENT).where("id IS NOT NULL AND at IS NOT NULL")
        sent = sent.select("id", window("at", config.window).start.alias("start")).dropDuplicates(["id"])
        both = sent.join(ids, "id", "full_outer").withColumn("last", lit(last).cast("timestamp"))
        counts = {
            "once": "copies = 1",
            "doubled": "copies > 1",
            "late": "copies IS NULL AND start <= last",
            "in an open window": "copies IS NULL AND NOT coalesce(start <= last, false)",
            "no longer in the topic": "start IS NULL",
        }
        columns = [f"count_if({condition}) AS `{name}`" for name, condition in counts.items()]
        row = both.selectExpr(*columns).collect()[0]
        return {name: int(row[name]) for name in counts}
    finally:
        found.unpersist()
