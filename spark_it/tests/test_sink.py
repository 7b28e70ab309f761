"""The exactly-once sink under Spark: workers and queries die at each step of a task, and each row is written once."""

import json
import pathlib
from typing import Any

import pytest

from oncelog.spark import SinkError, write_once
from oncelog.spark.control import Settings
from oncelog.spark.once import prepare_sink
from oncelog.spark.source import RowWriter
from spark_it.tests.dying import DyingSource, plan_deaths
from spark_it.tests.queries import kafka_stream
from spark_it.tests.topics import Record, Topics, numbered


class Sink:
    """A query from topics to a topic; each run ends after the records that are there."""

    def __init__(self, topics: Topics, frame: Any, out: str, folder: pathlib.Path, **arguments: Any) -> None:
        self.topics = topics
        self.out = out
        self.folder = folder
        self.deaths = folder / "deaths"
        self.deaths.mkdir(exist_ok=True)
        defaults: dict[str, Any] = {
            "sink_id": f"{out}sink",
            "control": f"{out}control",
            "tasks": 2,
            "topic": out,
        }
        self.arguments = {**defaults, "kafka": {"bootstrap.servers": topics.bootstrap}, **arguments}
        self.frame = frame

    def run(self, checkpoint: str = "checkpoint") -> None:
        """Run the query until it ends. Raises its error."""
        writer = write_once(self.frame, data_source=DyingSource, **self.arguments)
        writer = writer.option("deaths", str(self.deaths)).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        assert query.awaitTermination(300)

    def assert_crash(self) -> None:
        """Run the query, which must end because its workers die."""
        with pytest.raises(Exception, match=r"(?s)Python worker exited unexpectedly|crashed"):
            self.run()

    def written(self, partitions: int = 1) -> list[bytes]:
        return sorted(value or b"" for value in self.topics.values(self.out, partitions))


@pytest.mark.parametrize(
    ("tasks", "worker", "query", "later"),
    [
        (1, "committed", "compared", "checked"),
        (3, "checked", "initialised", "recorded"),
        (4, "recorded", "offset sent", "begun"),
        (7, "begun", "produced", "offset sent"),
    ],
)
def test_a_half_committed_batch(
    spark: Any,
    topics: Topics,
    name: str,
    tmp_path: pathlib.Path,
    tasks: int,
    worker: str,
    query: str,
    later: str,
) -> None:
    """A worker dies once after a step, then twice, which ends the query; the query continues, and a worker dies in the
    next batch. The cases together have every step. There are two source topics, and more tasks than partitions."""
    sources = [topics.make(f"{name}{letter}", 2) for letter in "ab"]
    out = topics.make(f"{name}out", 2)
    expected: list[bytes] = []
    for source in sources:
        for partition in range(2):
            records = [Record(b"%d" % one, f"{source}{partition}-{one}".encode()) for one in range(12)]
            topics.produce(source, records, partition)
            expected += [one.value or b"" for one in records]
    stream = kafka_stream(spark, topics.bootstrap, subscribe=",".join(sources), minPartitions=5)
    sink = Sink(topics, stream.select("key", "value"), out, tmp_path, tasks=tasks)
    plan_deaths(sink.deaths, 0, 0, worker, 1)
    # After "committed" the second attempt finds the committed batch and only compares.
    plan_deaths(sink.deaths, 0, tasks - 1, query, 1 if worker == "committed" else 2)
    sink.assert_crash()
    sink.run()
    assert not list(sink.deaths.iterdir())
    assert sink.written(2) == sorted(expected)
    for source in sources:
        topics.produce(source, numbered(12), 1)
    plan_deaths(sink.deaths, 1, 0, later, 1)
    sink.run()
    assert not list(sink.deaths.iterdir())
    assert sink.written(2) == sorted([*expected, *[b"v%d" % one for one in range(12)] * 2])


def test_after_a_windowed_aggregation(spark: Any, topics: Topics, name: str, tmp_path: pathlib.Path) -> None:
    """A replay has the same rows per window, even after a shuffle."""
    topics.make(name, 2)
    out = topics.make(f"{name}out")
    for partition in range(2):
        records = [Record(b"k%d" % (one % 5), b"1", timestamp=20_000 + 1000 * one) for one in range(60)]
        topics.produce(name, [*records, Record(b"last", b"1", timestamp=10_000_000)], partition)
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name).withWatermark("timestamp", "1 second")
    windows = stream.selectExpr("key", "window(timestamp, '20 seconds') as w")
    counted = windows.groupBy("w", "key").count()
    rows = counted.selectExpr(
        "key", "concat(cast(key as string), ' ', unix_seconds(w.start), ' ', count) as value"
    )
    sink = Sink(topics, rows, out, tmp_path, tasks=3)
    for batch in (0, 1):
        plan_deaths(sink.deaths, batch, 1, "initialised", 2)
    for _ in range(2):
        sink.assert_crash()
    sink.run()
    assert not list(sink.deaths.iterdir())
    assert sink.written() == sorted(
        f"k{key} {start} 8".encode() for key in range(5) for start in (20, 40, 60)
    )


def test_a_replay_that_differs(spark: Any, topics: Topics, name: str, tmp_path: pathlib.Path) -> None:
    """If rows are not a function of the source, the query ends with an error that names the batch."""
    topics.make(name)
    out = topics.make(f"{name}out")
    topics.produce(name, numbered(20))
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name)
    sink = Sink(topics, stream.selectExpr("key", "cast(rand() as string) as value"), out, tmp_path)
    plan_deaths(sink.deaths, 0, 0, "committed", 1)
    plan_deaths(sink.deaths, 0, 0, "compared", 1)
    sink.assert_crash()
    with pytest.raises(Exception, match=rf"sink {out}sink, batch 0, task [01]: the rows differ from those"):
        sink.run()


def test_refused_arguments(spark: Any, topics: Topics, name: str, tmp_path: pathlib.Path) -> None:
    """A new checkpoint, another layout, wrong columns and wrong arguments are refused with one line each."""
    topics.make(name)
    out = topics.make(f"{name}out")
    topics.produce(name, numbered(4))
    stream = kafka_stream(spark, topics.bootstrap, subscribe=name)
    backwards = stream.selectExpr("key", "value", "partition", "-offset as backwards")
    sink = Sink(topics, backwards, out, tmp_path, tasks=1, by=["partition"], order=["backwards"])
    sink.run()
    assert topics.values(out) == [b"v3", b"v2", b"v1", b"v0"]
    with pytest.raises(Exception, match=rf"sink {out}sink belongs to query .*adopt=true"):
        sink.run("another")
    sink.arguments["adopt"] = True
    sink.run("another")
    assert len(sink.written()) == 8
    kafka = sink.arguments["kafka"]
    good: dict[str, Any] = {
        "sink_id": f"{out}sink",
        "kafka": kafka,
        "tasks": 2,
        "topic": out,
        "control": f"{out}control",
    }
    frame = stream.select("key", "value", "partition")
    for changed, text in (
        ({"tasks": 3}, r"laid out as tasks=1, by=\['partition'\]; tasks=3"),
        ({"by": ["value"]}, r"by=\['value'\] would repeat"),
        ({"sink_id": ""}, "needs a sink_id"),
        ({"tasks": 0}, "tasks=0"),
        ({"topic": None}, "neither a column topic"),
        ({"by": ["nothing"]}, "no column nothing"),
        ({"control": name + "x" * 250}, "InvalidTopic|Invalid topic|invalid"),
        ({"topic": f"{name}missing"}, f"there is no topic {name}missing; create_partitions=N creates it"),
        ({"create_partitions": 0}, "create_partitions=0: it is 1 or more"),
        ({"topic": None, "create_partitions": 2}, "goes with topic="),
    ):
        with pytest.raises(SinkError, match=text):
            write_once(frame, **{**good, **changed})
    for columns, text in ((["key"], "no column value"), (["value", "offset as key"], "key is bigint")):
        with pytest.raises(SinkError, match=text):
            write_once(stream.selectExpr(*columns), **good)
    with pytest.raises(SinkError, match="writes streams"):
        write_once(spark.range(1), **good)
    assert json.dumps(sorted(topics.admin.list_topics(timeout=60).topics)).count(f"{name}missing") == 0


def test_create_partitions(topics: Topics, name: str) -> None:
    settings = Settings(
        f"{name}sink", 1, ("key",), {"bootstrap.servers": topics.bootstrap}, control=f"{name}control"
    )
    prepare_sink(settings, f"{name}out", 3)
    prepare_sink(settings, f"{name}out", 5)  # the topic exists and is not changed
    found = topics.admin.list_topics(timeout=60).topics
    assert (len(found[f"{name}out"].partitions), len(found[f"{name}control"].partitions)) == (3, 1)
    with pytest.raises(SinkError, match=rf"^sink {name}sink: {name}\+: .*[Ii]nvalid"):
        prepare_sink(settings, f"{name}+", 1)


def test_no_batch_id() -> None:
    """Without a batch id from Spark nothing is written: a guess could lose or duplicate rows."""
    writer = RowWriter(Settings("s", 1, ("key",), {}), "out", ["_bucket", "key", "value"])
    with pytest.raises(SinkError, match=r"^sink s: Spark does not say which batch this is$"):
        writer.write(iter([]))
