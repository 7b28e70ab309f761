"""load: loads topics into the lake in parallel, with one task per partition; each offset is loaded once.

A run loads the requested ranges without those that the lake has. It may be stopped at any time, repeated, and run at
the same time as others: a commit has rows and ranges together, and a run that loses the race for a commit starts again
with the offsets that are still missing.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.kafka import EARLIEST, LATEST, Bound, Cluster, Topic
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.ranges import Range, Ranges, TopicIdPartition

ATTEMPTS_MAX = 20


class Request(NamedTuple):
    """The topics and the range of offsets to load."""

    topics: Sequence[str]
    start: Bound = EARLIEST
    end: Bound = LATEST


class Loaded(NamedTuple):
    """The result of a run."""

    offsets: int
    commits: int
    lost: int  # commits that failed because another loader's came first


class Loader:
    """Loads topics into a lake. `kafka` are the connector's options, such as kafka.bootstrap.servers."""

    def __init__(self, spark: Any, cluster: Cluster, lake: Lake, kafka: Mapping[str, str]) -> None:
        self.spark = spark
        self.cluster = cluster
        self.lake = lake
        self.kafka = dict(kafka)
        self.result = Loaded(0, 0, 0)
        # Tests replace it, to act while the rows are committed.
        self.on_rows: Callable[[Any], Any] = lambda rows: rows

    def run(self, request: Request) -> Loaded:
        """Load until no requested offset is missing. Raises PipelineError."""
        for _ in self.steps(request):
            pass
        return self.result

    def steps(self, request: Request) -> Iterator[str]:
        """`run` step by step; yields each step's name after it. Only the lake has state."""
        self.result = Loaded(0, 0, 0)
        topics = self.cluster.topics(request.topics)
        requested = self.cluster.requested(list(topics.values()), request.start, request.end)
        yield "requested"
        for _ in range(ATTEMPTS_MAX):
            state = self.lake.state()
            missing = requested - state.loaded
            yield "planned"
            if not missing:
                return
            rows = self.on_rows(self.rows(topics, missing))
            if self.lake.append(rows, state, missing):
                self.result = self.result._replace(
                    offsets=self.result.offsets + missing.count, commits=self.result.commits + 1
                )
                yield "committed"
                self._check_topic_ids(topics)
            else:
                self.result = self.result._replace(lost=self.result.lost + 1)
                yield "lost"
        raise PipelineError(
            f"{ATTEMPTS_MAX} races for a commit to {self.lake.path} were lost: too many loaders"
        )

    def rows(self, topics: Mapping[str, Topic], ranges: Ranges) -> Any:
        """The records of the ranges as rows for the lake, in order of their offsets within a task."""
        names = {topic.topic_id: topic.name for topic in topics.values()}
        frames = [self._read(names, layer) for layer in ranges.layers()]
        return functools.reduce(lambda one, other: one.unionByName(other), frames)

    def _read(self, names: Mapping[str, str], layer: Mapping[TopicIdPartition, Range]) -> Any:
        from pyspark.sql.functions import coalesce, col, lit, to_date, when

        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for tp, (start, end) in layer.items():
            starts.setdefault(names[tp.topic_id], {})[str(tp.partition)] = start
            ends.setdefault(names[tp.topic_id], {})[str(tp.partition)] = end
        reader = self.spark.read.format("kafka").option("includeHeaders", "true")
        for key, value in self.kafka.items():
            reader = reader.option(key, value)
        assigned = {topic: sorted(int(one) for one in partitions) for topic, partitions in starts.items()}
        reader = reader.option("assign", json.dumps(assigned)).option("failOnDataLoss", "true")
        reader = reader.option("startingOffsets", json.dumps(starts)).option(
            "endingOffsets", json.dumps(ends)
        )
        frame = reader.option("kafka.isolation.level", "read_committed").load()
        ids = [when(col("topic") == lit(name), lit(topic_id)) for topic_id, name in names.items()]
        dated = frame.select("*", coalesce(*ids).alias("topic_id"), to_date("timestamp").alias("date"))
        return dated.select(
            "topic",
            "date",
            "topic_id",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            "key",
            "value",
            "headers",
        ).sortWithinPartitions("topic", "date", "partition", "offset")

    def _check_topic_ids(self, topics: Mapping[str, Topic]) -> None:
        """Raises PipelineError if a topic, which is read by name, was replaced during the load."""
        now = self.cluster.topics(list(topics))
        changed = sorted(name for name, topic in topics.items() if now[name].topic_id != topic.topic_id)
        if changed:
            raise PipelineError(
                f"{', '.join(changed)} was deleted and made anew during the load: what was loaded last is suspect"
            )
