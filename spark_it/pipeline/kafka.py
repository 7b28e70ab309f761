"""What the pipeline asks a cluster before and after Spark does: topic ids, where partitions begin and end."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from oncelog.spark.clients import client
from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.ranges import Place, Range, Ranges

TIMEOUT_S = 20.0


class Topic(NamedTuple):
    """A topic as it is now."""

    name: str
    topic_id: str
    partitions: int

    @property
    def places(self) -> list[Place]:
        return [Place(self.topic_id, partition) for partition in range(self.partitions)]


class Bound(NamedTuple):
    """One end of a range: "earliest", "latest", an offset, or the first offset at or after a time in ms."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "Bound":
        """earliest, latest, an offset as a number, or a time as ISO 8601 (UTC unless it says otherwise)."""
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
    """A Kafka cluster, through librdkafka's admin client. `settings` are its, such as bootstrap.servers."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.bootstrap = settings["bootstrap.servers"]
        self._admin = AdminClient(client(settings))

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """The topics by name. Raises PipelineError where one is missing or nobody answers."""
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
        found = {}
        for name, future in futures.items():
            described = self._result(future, f"topic {name}")
            # librdkafka writes ids in plain base64, Kafka in the form that is safe in names.
            topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
            found[name] = Topic(name, topic_id, len(described.partitions))
        return found

    def ends(self, topics: Sequence[Topic]) -> dict[Place, Range]:
        """From the log start to the last stable offset: what a read_committed reader can get now."""
        starts = self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {place: (starts[place], max(starts[place], ends[place])) for place in starts}

    def requested(self, topics: Sequence[Topic], start: Bound, end: Bound) -> Ranges:
        """What can be read now between the two bounds."""
        known = self.ends(topics)
        starts, ends = self._bounds(topics, known, start), self._bounds(topics, known, end)
        return Ranges(
            {
                place: [(max(low, starts[place]), min(high, ends[place]))]
                for place, (low, high) in known.items()
            }
        )

    def _bounds(
        self, topics: Sequence[Topic], known: Mapping[Place, Range], bound: Bound
    ) -> dict[Place, int]:
        if bound.kind == "offset":
            return dict.fromkeys(known, bound.number)
        if bound.kind == "time":
            found = self._offsets(topics, OffsetSpec.for_timestamp(bound.number))
            return {place: known[place][1] if offset < 0 else offset for place, offset in found.items()}
        return {place: one[bound.kind == "latest"] for place, one in known.items()}

    def _offsets(self, topics: Sequence[Topic], spec: Any) -> dict[Place, int]:
        asked = {
            TopicPartition(topic.name, place.partition): spec for topic in topics for place in topic.places
        }
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        ids = {topic.name: topic.topic_id for topic in topics}
        return {
            Place(ids[where.topic], where.partition): int(
                self._result(future, f"offsets of {where.topic}").offset
            )
            for where, future in futures.items()
        }

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result(2 * TIMEOUT_S)
        except (KafkaException, TimeoutError) as failed:
            error = failed.args[0] if failed.args else failed
            said = error.str() if hasattr(error, "str") else str(error)
            raise PipelineError(f"{what} at {self.bootstrap}: {said}") from None
