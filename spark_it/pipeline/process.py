"""process: a windowed aggregation over a topic of events, enriched from a compacted topic.

The result is a deterministic function of a batch's offsets, because the sink relies on that: it uses event time, sorts
ids, and takes the enrichment from a snapshot that the first run makes and later runs keep.
"""

import json
import pathlib
from typing import Any

from spark_it.pipeline.config import Config
from spark_it.pipeline.errors import PipelineError

EVENT = "id STRING, user STRING, at TIMESTAMP, amount BIGINT"
UNFIT = "event.id IS NULL OR event.at IS NULL"
UNKNOWN = "unknown"
# The files that a state folder may have; the first identifies the pipeline that owns it.
OWNER = "pipeline.json"
STATE = {OWNER, "enrichment", "checkpoint", "summary.json", "lag.svg"}


def results(spark: Any, config: Config) -> Any:
    """The stream of results: key `<country> <start of the window>`, value JSON with count, amount and events' ids.

    Each window has one result, after the watermark has passed it; later events are dropped. The configuration decides
    whether a record that is not an event is skipped or ends the query with a line that names its offset.
    """
    from pyspark.sql.functions import (
        array_sort,
        broadcast,
        coalesce,
        col,
        collect_list,
        concat_ws,
        count,
        from_json,
        lit,
        struct,
        sum,
        to_json,
        unix_seconds,
        window,
    )

    reader = spark.readStream.format("kafka")
    for key, value in config.connector.items():
        reader = reader.option(key, value)
    reader = reader.option("kafka.isolation.level", "read_committed").option("subscribe", config.events)
    stream = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20_000).load()
    parsed = stream.select(
        "topic", "partition", "offset", from_json(col("value").cast("string"), EVENT).alias("event")
    )
    no_event = "concat('PipelineError: ', topic, '-', partition, ', offset ', offset, ' is no event: "
    no_event += 'JSON with id and at is wanted (unfit = "skip" passes over it)\')'
    fits = f"NOT ({UNFIT})" if config.unfit == "skip" else f"if({UNFIT}, raise_error({no_event}), true)"
    events = parsed.where(fits).select("event.*").withWatermark("at", config.lateness)
    known = events.join(broadcast(enrichment(spark, config)), "user", "left")
    country = coalesce("country", lit(UNKNOWN)).alias("country")
    counted = known.groupBy(window("at", config.window), country).agg(
        count(lit(1)).alias("count"),
        sum("amount").alias("amount"),
        array_sort(collect_list("id")).alias("ids"),
    )
    name = concat_ws(" ", "country", unix_seconds("window.start"))
    said = to_json(struct("country", col("window.start").alias("start"), "count", "amount", "ids"))
    return counted.select(name.alias("key"), said.alias("value"))


def enrichment(spark: Any, config: Config) -> Any:
    """User -> country, as this pipeline's first run read it.

    Compaction removes older values, so that the topic's state at an earlier offset cannot be read later. The snapshot
    is kept beside the checkpoint.
    """
    from pyspark.sql.functions import expr

    path = pathlib.Path(config.state) / "enrichment"
    if not (path / "_SUCCESS").exists():
        reader = spark.read.format("kafka").option("subscribe", config.users)
        for key, value in config.connector.items():
            reader = reader.option(key, value)
        rows = reader.option("kafka.isolation.level", "read_committed").load()
        latest = rows.where("key IS NOT NULL").groupBy(rows.key.cast("string").alias("user"))
        found = latest.agg(expr("max_by(value, struct(offset, partition)) AS value"))
        found = found.selectExpr("user", "get_json_object(cast(value AS STRING), '$.country') AS country")
        found.where("country IS NOT NULL").coalesce(1).write.mode("overwrite").parquet(str(path))
    return spark.read.schema("user STRING, country STRING").parquet(str(path))


def check_state(config: Config) -> None:
    """Raises PipelineError if the state folder is something else than this pipeline's state."""
    folder = pathlib.Path(config.state)
    if folder.exists() and not folder.is_dir():
        raise PipelineError(f"{folder} is not a folder")
    if not folder.is_dir():
        return
    if strange := {one.name for one in folder.iterdir()} - STATE:
        raise PipelineError(f"{folder} is not this pipeline's state: it holds {sorted(strange)[0]}")
    if not (folder / OWNER).exists():
        if (folder / "checkpoint").exists():
            raise PipelineError(f"{folder / 'checkpoint'} is another query's: {OWNER} is not beside it")
        return
    owner = json.loads((folder / OWNER).read_text())
    for key, value in _identity(config).items():
        if owner.get(key) != value:
            raise PipelineError(
                f"{folder} is another pipeline's state: its {key} is {owner.get(key)!r}, not {value!r}"
            )


def create_state(config: Config) -> None:
    """Create the state folder and its owner file, before any other file in it."""
    folder = pathlib.Path(config.state)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{OWNER}")
    temporary.write_text(json.dumps(_identity(config)))
    temporary.replace(folder / OWNER)


def _identity(config: Config) -> dict[str, str]:
    """The settings that must be the same in all runs with one checkpoint."""
    return {key: getattr(config, key) for key in ("events", "results", "sink", "window", "lateness")}
