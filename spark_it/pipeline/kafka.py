"""The pipeline's own requests to a cluster: topic ids, and the start and end offsets of partitions."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from oncelog.spark.clients import client
from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.ranges import Range, Ranges, TopicIdPartition

TIMEOUT_S = 20.0


class Topic(NamedTuple):
    """A topic's current id and number of partitions."""

    name: str
    topic_id: str
    partitions: int

    @property
    def topic_partitions(self) -> list[TopicIdPartition]:
        return [TopicIdPartition(self.topic_id, partition) for partition in range(self.partitions)]


class Bound(NamedTuple):
    """One end of a range: "earliest", "latest", an offset, or the first offset at or after a time in ms."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """Parse "earliest", "latest", an offset, or an ISO 8601 time (by default UTC). Raises PipelineError."""
        if text in ("earliest", "latest"):
            return cls(text)
        if text.isdigit():
            return cls("offset", int(text))
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise PipelineError(
                f"{text!r} is neither earliest, latest, an offset nor an ISO 8601 time"
            ) from None
        time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
        return cls("time", int(time.timestamp() * 1000))


EARLIEST, LATEST = Bound("earliest"), Bound("latest")


class Cluster:
    """A Kafka cluster, through librdkafka's admin client with `settings` such as bootstrap.servers."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.bootstrap = settings["bootstrap.servers"]
        self._admin = AdminClient(client(settings))

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """The topics by name. Raises PipelineError if one is missing or the cluster does not respond."""
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
        found = {}
        for name, future in futures.items():
            described = self._result(future, f"topic {name}")
            # librdkafka writes topic ids in standard base64, Kafka in URL-safe base64.
            topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
            found[name] = Topic(name, topic_id, len(described.partitions))
        return found

    def ends(self, topics: Sequence[Topic]) -> dict[TopicIdPartition, Range]:
        """Log start offset and last stable offset of each partition: the range of a read_committed reader."""
        starts = self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {tp: (starts[tp], max(starts[tp], ends[tp])) for tp in starts}

    def requested(self, topics: Sequence[Topic], start: Bound, end: Bound) -> Ranges:
        """The readable offsets between the two bounds."""
        known = self.ends(topics)
        starts, ends = self._bounds(topics, known, start), self._bounds(topics, known, end)
        return Ranges(
            {tp: [(max(low, starts[tp]), min(high, ends[tp]))] for tp, (low, high) in known.items()}
        )

    def _bounds(
        self, topics: Sequence[Topic], known: Mapping[TopicIdPartition, Range], bound: Bound
    ) -> dict[TopicIdPartition, int]:
        if bound.kind == "offset":
            return dict.fromkeys(known, bound.number)
        if bound.kind == "time":
            found = self._offsets(topics, OffsetSpec.for_timestamp(bound.number))
            return {tp: known[tp][1] if offset < 0 else offset for tp, offset in found.items()}
        return {tp: one[bound.kind == "latest"] for tp, one in known.items()}

    def _offsets(self, topics: Sequence[Topic], spec: Any) -> dict[TopicIdPartition, int]:
        specs = {
            TopicPartition(topic.name, tp.partition): spec
            for topic in topics
            for tp in topic.topic_partitions
        }
        futures = self._admin.list_offsets(
            specs, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        ids = {topic.name: topic.topic_id for topic in topics}
        return {
            TopicIdPartition(ids[where.topic], where.partition): int(
                self._result(future, f"offsets of {where.topic}").offset
            )
            for where, future in futures.items()
        }

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result(2 * TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            cause = error.args[0] if error.args else error
            text = cause.str() if hasattr(cause, "str") else str(cause)
            raise PipelineError(f"{what} at {self.bootstrap}: {text}") from None
