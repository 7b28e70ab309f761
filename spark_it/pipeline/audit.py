"""audit: what topics hold now against what the lake holds, record by record, as a Spark job.

Offsets without a record (markers of transactions, aborted records, compaction, retention) are no loss and are counted
apart; so is what expired before anybody loaded it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spark_it.pipeline.kafka import Cluster
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.load import Loader
from spark_it.pipeline.ranges import Place, Ranges

EXAMPLES_MAX = 5
KEYS = ["topic_id", "partition", "offset"]
# What makes an audit fail, in the words of the report; and the condition on a row of `_compared`.
FAULTS = {
    "missing": "readable AND copies IS NULL",
    "doubled": "copies > 1",
    "out of order": "disordered > 0",
}
# In the lake and no longer in the topic, where the topic still has records: what compaction took.
GONE = "readable IS NULL AND offset >= low AND offset < high"


class PartitionAudit(NamedTuple):
    """One partition of one life of a topic. Counts are records, but for `gaps` and `expired`, which are offsets."""

    topic: str
    place: Place
    readable: int
    in_lake: int
    faults: Mapping[str, int]
    examples: Mapping[str, list[int]]
    gaps: int
    expired: int
    gone: int

    @property
    def good(self) -> bool:
        return not any(self.faults.values())

    def __str__(self) -> str:
        shown = ", ".join(f"{count} {fault}" + self._such_as(fault) for fault, count in self.faults.items())
        line = f"{self.topic}-{self.place.partition} ({self.place.topic_id}): {self.readable} readable, "
        line += f"{self.in_lake} in the lake: {shown}; apart: {self.gaps} offsets without a record, "
        return (
            line + f"{self.expired} offsets expired before load, {self.gone} records no longer in the topic"
        )

    def _such_as(self, fault: str) -> str:
        offsets = [str(one) for one in self.examples.get(fault, ())]
        more = ["…"] if len(offsets) == EXAMPLES_MAX else []
        return f" (offsets {', '.join(offsets + more)})" if offsets else ""


def audit(
    spark: Any, cluster: Cluster, lake: Lake, kafka: Mapping[str, str], names: Sequence[str]
) -> list[PartitionAudit]:
    """One entry per partition that exists now or that the lake has rows of. Raises PipelineError.

    A record that is written or expires while it runs is judged by where the partitions began and ended at its start.
    """
    topics = cluster.topics(names)
    ends = cluster.ends(list(topics.values()))
    loaded = lake.state().loaded
    now = Ranges({place: [pair] for place, pair in ends.items()})
    rows = _compared(spark, Loader(spark, cluster, lake, kafka), topics, now, ends, list(names)).persist()
    try:
        found = {_place(row): row for row in _counted(rows, loaded).collect()}
        examples = {
            fault: _examples(rows, FAULTS[fault]) if any(row[fault] for row in found.values()) else {}
            for fault in FAULTS
        }
        named = {topic.topic_id: topic.name for topic in topics.values()}
        report = []
        for place in sorted({*found, *ends}):
            row = found.get(place)
            low = ends.get(place, (0, 0))[0]
            expired = Ranges({place: [(0, low)]}) - loaded
            here = Ranges({place: loaded[place]})
            report.append(
                PartitionAudit(
                    topic=named.get(place.topic_id) or (row["topic"] if row else "?"),
                    place=place,
                    readable=int(row["readable_count"]) if row else 0,
                    in_lake=int(row["lake_count"]) if row else 0,
                    faults={fault: int(row[fault]) if row else 0 for fault in FAULTS},
                    examples={fault: at[place] for fault, at in examples.items() if place in at},
                    gaps=here.count - (int(row["loaded_count"]) if row else 0),
                    expired=expired.count,
                    gone=int(row["gone"]) if row else 0,
                )
            )
        return report
    finally:
        rows.unpersist()


def _compared(spark: Any, loader: Loader, topics: Any, now: Ranges, ends: Any, names: list[str]) -> Any:
    """One row per (topic id, partition, offset) of either side: readable, copies in the lake, how many disordered."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, count, lag, lit, max, monotonically_increasing_id, sum, when

    lake = spark.read.format("delta").load(loader.lake.path).where(col("topic").isin(names))
    lake = lake.select(
        "topic",
        *KEYS,
        col("_metadata.file_path").alias("file"),
        col("_metadata.file_block_start").alias("block"),
        monotonically_increasing_id().alias("row"),
    )
    in_file = Window.partitionBy("file", "topic_id", "partition").orderBy("block", "row")
    lake = lake.withColumn("disorder", (lag("offset").over(in_file) > col("offset")).cast("int"))
    lake = lake.groupBy(*KEYS).agg(
        max("topic").alias("topic"), count(lit(1)).alias("copies"), sum("disorder").alias("disordered")
    )
    if now:
        readable = loader.rows(topics, now).select(*KEYS, lit(True).alias("readable"))
    else:
        readable = lake.select(*KEYS, lit(True).alias("readable")).limit(0)
    low = high = when(lit(False), lit(0))
    for place, pair in ends.items():
        here = (col("topic_id") == place.topic_id) & (col("partition") == place.partition)
        low, high = low.when(here, lit(pair[0])), high.when(here, lit(pair[1]))
    return readable.join(lake, KEYS, "full_outer").withColumn("low", low).withColumn("high", high)


def _counted(rows: Any, loaded: Ranges) -> Any:
    from pyspark.sql.functions import expr

    faults = [expr(f"count_if({condition})").alias(fault) for fault, condition in FAULTS.items()]
    return rows.groupBy("topic_id", "partition").agg(
        expr("max(topic)").alias("topic"),
        expr("count_if(readable)").alias("readable_count"),
        expr("coalesce(sum(copies), 0)").alias("lake_count"),
        expr(f"count_if({GONE})").alias("gone"),
        # How many of the loaded offsets are those of records, in the topic or in the lake.
        expr(f"count_if({_within(loaded)})").alias("loaded_count"),
        *faults,
    )


def _within(loaded: Ranges) -> str:
    """The condition that a row's offset is one of these."""
    conditions = ["false"]
    for place in loaded:
        ranges = " OR ".join(f"offset >= {start} AND offset < {end}" for start, end in loaded[place])
        conditions.append(f"topic_id = '{place.topic_id}' AND partition = {place.partition} AND ({ranges})")
    return " OR ".join(conditions)


def _examples(rows: Any, condition: str) -> dict[Place, list[int]]:
    """The first few offsets of the rows of which the condition holds, partition by partition."""
    from pyspark.sql import Window
    from pyspark.sql.functions import row_number

    number = row_number().over(Window.partitionBy("topic_id", "partition").orderBy("offset"))
    few = rows.where(condition).withColumn("number", number).where(f"number <= {EXAMPLES_MAX}")
    found: dict[Place, list[int]] = {}
    for row in sorted(few.select(*KEYS).collect()):
        found.setdefault(_place(row), []).append(int(row["offset"]))
    return found


def _place(row: Any) -> Place:
    return Place(row["topic_id"], row["partition"])
