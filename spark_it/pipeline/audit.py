"""audit: compares the records of topics with those of the lake, one by one, in a Spark job.

Offsets without a record (transaction markers, aborted records, compaction, retention) are no fault and are counted
separately, as are offsets that expired before they were loaded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spark_it.pipeline.kafka import Cluster
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.load import Loader
from spark_it.pipeline.ranges import Ranges, TopicIdPartition

EXAMPLES_MAX = 5
KEYS = ["topic_id", "partition", "offset"]
# The faults as the report names them, and their conditions on a row of `_compare`.
FAULTS = {
    "missing": "readable AND copies IS NULL",
    "doubled": "copies > 1",
    "out of order": "disordered > 0",
}
# In the lake, and removed by compaction from the part of the topic that still exists.
GONE = "readable IS NULL AND offset >= low AND offset < high"


class PartitionAudit(NamedTuple):
    """The counts for one partition of a topic id: of records, but of offsets for `gaps` and `expired`."""

    topic: str
    tp: TopicIdPartition
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
        shown = ", ".join(
            f"{count} {fault}" + self._example_text(fault) for fault, count in self.faults.items()
        )
        line = f"{self.topic}-{self.tp.partition} ({self.tp.topic_id}): {self.readable} readable, "
        line += f"{self.in_lake} in the lake: {shown}; apart: {self.gaps} offsets without a record, "
        return (
            line + f"{self.expired} offsets expired before load, {self.gone} records no longer in the topic"
        )

    def _example_text(self, fault: str) -> str:
        offsets = [str(one) for one in self.examples.get(fault, ())]
        more = ["…"] if len(offsets) == EXAMPLES_MAX else []
        return f" (offsets {', '.join(offsets + more)})" if offsets else ""


def audit(
    spark: Any, cluster: Cluster, lake: Lake, kafka: Mapping[str, str], names: Sequence[str]
) -> list[PartitionAudit]:
    """One entry per partition that exists now or has rows in the lake. Raises PipelineError.

    The partitions' start and end offsets are taken once at the start, so that later changes do not matter.
    """
    topics = cluster.topics(names)
    ends = cluster.ends(list(topics.values()))
    loaded = lake.state().loaded
    now = Ranges({tp: [pair] for tp, pair in ends.items()})
    rows = _compare(spark, Loader(spark, cluster, lake, kafka), topics, now, ends, list(names)).persist()
    try:
        found = {_topic_partition(row): row for row in _count(rows, loaded).collect()}
        examples = {
            fault: _examples(rows, FAULTS[fault]) if any(row[fault] for row in found.values()) else {}
            for fault in FAULTS
        }
        named = {topic.topic_id: topic.name for topic in topics.values()}
        report = []
        for tp in sorted({*found, *ends}):
            row = found.get(tp)
            low = ends.get(tp, (0, 0))[0]
            expired = Ranges({tp: [(0, low)]}) - loaded
            here = Ranges({tp: loaded[tp]})
            report.append(
                PartitionAudit(
                    topic=named.get(tp.topic_id) or (row["topic"] if row else "?"),
                    tp=tp,
                    readable=int(row["readable_count"]) if row else 0,
                    in_lake=int(row["lake_count"]) if row else 0,
                    faults={fault: int(row[fault]) if row else 0 for fault in FAULTS},
                    examples={fault: at[tp] for fault, at in examples.items() if tp in at},
                    gaps=here.count - (int(row["loaded_count"]) if row else 0),
                    expired=expired.count,
                    gone=int(row["gone"]) if row else 0,
                )
            )
        return report
    finally:
        rows.unpersist()


def _compare(spark: Any, loader: Loader, topics: Any, now: Ranges, ends: Any, names: list[str]) -> Any:
    """A row per (topic id, partition, offset) in topic or lake: readable, copies in the lake, copies out of order."""
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
    for tp, pair in ends.items():
        here = (col("topic_id") == tp.topic_id) & (col("partition") == tp.partition)
        low, high = low.when(here, lit(pair[0])), high.when(here, lit(pair[1]))
    return readable.join(lake, KEYS, "full_outer").withColumn("low", low).withColumn("high", high)


def _count(rows: Any, loaded: Ranges) -> Any:
    from pyspark.sql.functions import expr

    faults = [expr(f"count_if({condition})").alias(fault) for fault, condition in FAULTS.items()]
    return rows.groupBy("topic_id", "partition").agg(
        expr("max(topic)").alias("topic"),
        expr("count_if(readable)").alias("readable_count"),
        expr("coalesce(sum(copies), 0)").alias("lake_count"),
        expr(f"count_if({GONE})").alias("gone"),
        # The number of loaded offsets that have a record in the topic or in the lake.
        expr(f"count_if({_offset_condition(loaded)})").alias("loaded_count"),
        *faults,
    )


def _offset_condition(loaded: Ranges) -> str:
    """The SQL condition that a row's offset is in `loaded`."""
    conditions = ["false"]
    for tp in loaded:
        ranges = " OR ".join(f"offset >= {start} AND offset < {end}" for start, end in loaded[tp])
        conditions.append(f"topic_id = '{tp.topic_id}' AND partition = {tp.partition} AND ({ranges})")
    return " OR ".join(conditions)


def _examples(rows: Any, condition: str) -> dict[TopicIdPartition, list[int]]:
    """The first few offsets per partition of rows that meet the condition."""
    from pyspark.sql import Window
    from pyspark.sql.functions import row_number

    number = row_number().over(Window.partitionBy("topic_id", "partition").orderBy("offset"))
    few = rows.where(condition).withColumn("number", number).where(f"number <= {EXAMPLES_MAX}")
    found: dict[TopicIdPartition, list[int]] = {}
    for row in sorted(few.select(*KEYS).collect()):
        found.setdefault(_topic_partition(row), []).append(int(row["offset"]))
    return found


def _topic_partition(row: Any) -> TopicIdPartition:
    return TopicIdPartition(row["topic_id"], row["partition"])
