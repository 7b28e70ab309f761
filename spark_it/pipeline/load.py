"""load: topics to the lake, offline and in parallel, one task per partition of a topic; each offset once.

A run loads the requested ranges minus those that the lake has. It may be stopped anywhere, run again, and run beside
others: a commit holds rows and ranges together, and whoever loses the race for it begins again with what is left.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.kafka import EARLIEST, LATEST, Bound, Cluster, Topic
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.ranges import Place, Range, Ranges

ATTEMPTS_MAX = 20


class Request(NamedTuple):
    """What to load."""

    topics: Sequence[str]
    start: Bound = EARLIEST
    end: Bound = LATEST


class Loaded(NamedTuple):
    """What a run did."""

    offsets: int
    commits: int
    lost: int  # races for a commit


class Loader:
    """One loader. `kafka` are the connector's options, such as kafka.bootstrap.servers."""

    def __init__(self, spark: Any, cluster: Cluster, lake: Lake, kafka: Mapping[str, str]) -> None:
        self.spark = spark
        self.cluster = cluster
        self.lake = lake
        self.kafka = dict(kafka)
        self.result = Loaded(0, 0, 0)
        # What a test puts in the way of the rows, while the commit is under way.
        self.on_rows: Callable[[Any], Any] = lambda rows: rows

    def run(self, request: Request) -> Loaded:
        """Load until nothing that was asked for is missing. Raises PipelineError."""
        for _ in self.steps(request):
            pass
        return self.result

    def steps(self, request: Request) -> Iterator[str]:
        """The same, one step at a time: yields a name after each. State is in the lake alone."""
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
                self._same_topics(topics)
            else:
                self.result = self.result._replace(lost=self.result.lost + 1)
                yield "lost"
        raise PipelineError(
            f"{ATTEMPTS_MAX} races for a commit to {self.lake.path} were lost: too many loaders"
        )

    def rows(self, topics: Mapping[str, Topic], ranges: Ranges) -> Any:
        """The records of the ranges as rows of the lake, in order within a task."""
        names = {topic.topic_id: topic.name for topic in topics.values()}
        frames = [self._read(names, layer) for layer in ranges.layers()]
        return functools.reduce(lambda one, other: one.unionByName(other), frames)

    def _read(self, names: Mapping[str, str], layer: Mapping[Place, Range]) -> Any:
        from pyspark.sql.functions import coalesce, col, lit, to_date, when

        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for place, (start, end) in layer.items():
            starts.setdefault(names[place.topic_id], {})[str(place.partition)] = start
            ends.setdefault(names[place.topic_id], {})[str(place.partition)] = end
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

    def _same_topics(self, topics: Mapping[str, Topic]) -> None:
        """What was read by name must have been read from the topics that were meant."""
        now = self.cluster.topics(list(topics))
        changed = sorted(name for name, topic in topics.items() if now[name].topic_id != topic.topic_id)
        if changed:
            raise PipelineError(
                f"{', '.join(changed)} was deleted and made anew during the load: what was loaded last is suspect"
            )
