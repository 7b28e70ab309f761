"""load: each offset is loaded once, through repeated, stopped, killed and concurrent runs. The lake is read without
Spark."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.kafka import Bound, Cluster
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.load import Loader, Request
from spark_it.pipeline.ranges import TopicIdPartition
from spark_it.tests.topics import DEADLINE_S, Record, Topics, numbered

STEPS = ("nothing", "requested", "planned", "rows", "committed")
MakeLoader = Callable[[], Loader]


@pytest.fixture
def make_loader(spark: Any, topics: Topics, tmp_path: pathlib.Path) -> MakeLoader:
    """`make_loader()` makes a loader of the test's lake."""

    def make() -> Loader:
        cluster = Cluster({"bootstrap.servers": topics.bootstrap})
        options = {"kafka.bootstrap.servers": topics.bootstrap}
        return Loader(spark, cluster, Lake(spark, str(tmp_path / "lake")), options)

    return make


def in_lake(tmp_path: pathlib.Path) -> list[tuple[Any, ...]]:
    """(partition, offset, key, value) of each row, read by an independent implementation of Delta Lake."""
    table = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
    return sorted(
        tuple(row[name] for name in ("partition", "offset", "key", "value")) for row in table.to_pylist()
    )


def records(count: int, partition: int = 0) -> list[tuple[Any, ...]]:
    return [(partition, one, b"k%d" % one, b"v%d" % one) for one in range(count)]


def test_columns_and_back_fill(
    spark: Any, topics: Topics, name: str, make_loader: MakeLoader, tmp_path: pathlib.Path
) -> None:
    """Loads by offset, by time, and of the rest; nothing is loaded twice."""
    topics.make(name, 2)
    day_ms = 86_400_000
    topics.produce(
        name, [Record(b"k", b"v%d" % day, (("h", None),), (day + 1) * day_ms) for day in range(10)], 0
    )
    topics.produce(name, numbered(4), 1)
    run = make_loader().run
    assert run(Request([name], Bound("offset", 2), Bound("offset", 4)))[:2] == (4, 1)
    assert run(Request([name], Bound.parse("1970-01-09T00:00:00"), Bound.parse("1970-01-10"))).offsets == 1
    assert run(Request([name], Bound.parse("2"), Bound.parse("4"))) == (0, 0, 0)
    assert run(Request([name])).offsets == 14 - 5
    assert run(Request([name])) == (0, 0, 0)
    table = DeltaTable(str(tmp_path / "lake"))
    rows = [row for row in table.to_pyarrow_table().to_pylist() if row["partition"] == 0]
    topic_id = make_loader().cluster.topics([name])[name].topic_id
    assert sorted((str(row["date"]), row["offset"], row["value"]) for row in rows) == [
        (f"1970-01-{day + 2:02}", day, b"v%d" % day) for day in range(10)
    ]
    assert {(row["topic"], row["topic_id"], row["timestampType"]) for row in rows} == {(name, topic_id, 0)}
    assert [dict(one) for one in rows[0]["headers"]] == [{"key": "h", "value": None}]
    assert table.metadata().partition_columns == ["topic", "date"]
    assert [row[1] for row in in_lake(tmp_path) if row[0] == 1] == [0, 1, 2, 3]
    # A recreated topic is another topic.
    topics.delete(name)
    topics.make(name, 2)
    topics.produce(name, numbered(3), 0)
    assert make_loader().run(Request([name])).offsets == 3
    assert len(in_lake(tmp_path)) == 17


def test_a_crash_at_every_step(
    spark: Any, topics: Topics, name: str, make_loader: MakeLoader, tmp_path: pathlib.Path
) -> None:
    """A loader dies after each step, and in the middle of its rows; the next one loads the rest."""
    topics.make(name, 2)
    expected: list[tuple[Any, ...]] = []
    for step in STEPS:
        begin = len(expected)
        topics.produce(name, numbered(5, begin), 0)
        expected += [(0, one, b"k%d" % one, b"v%d" % one) for one in range(begin, begin + 5)]
        loader = make_loader()
        if step == "rows":
            loader.on_rows = lambda rows: rows.withColumn("key", _failing_key(rows))
            with pytest.raises(Exception, match="the task dies"):
                loader.run(Request([name]))
        elif step != "nothing":
            for done in loader.steps(Request([name])):
                if done == step:
                    break
        assert in_lake(tmp_path) == (expected if step == "committed" else expected[:begin]), step
        assert make_loader().run(Request([name])).offsets == (0 if step == "committed" else 5), step
        assert in_lake(tmp_path) == expected, step


def _failing_key(rows: Any) -> Any:
    """The key, but at the fourth row of each five the task fails."""
    from pyspark.sql.functions import expr

    return expr("if(offset % 5 = 3, cast(raise_error('the task dies') as binary), key)")


@pytest.mark.parametrize("stop", STEPS[1:])
def test_two_loaders(
    spark: Any, topics: Topics, name: str, make_loader: MakeLoader, tmp_path: pathlib.Path, stop: str
) -> None:
    """A loader stops at a step while another loads an overlapping range, then continues; nothing is loaded twice.

    "rows" is in the middle of its commit: Delta has checked the version, and reads the rows.
    """
    topics.make(name, 2)
    for partition in range(2):
        topics.produce(name, numbered(10), partition)
    slow, fast = make_loader(), make_loader()
    overlapping = Request([name], Bound("earliest"), Bound("offset", 6))

    def run_fast_meanwhile(rows: Any) -> Any:
        slow.on_rows = lambda rows: rows  # the second attempt is not disturbed
        return _while_it_runs(rows, lambda: fast.run(overlapping))

    if stop == "rows":
        slow.on_rows = run_fast_meanwhile
    steps = slow.steps(Request([name], Bound("offset", 3)))
    for done in steps:
        if done == stop:
            fast.run(overlapping)
            break
    for _ in steps:
        pass
    assert in_lake(tmp_path) == records(10) + records(10, 1)
    lost = 1 if stop in ("planned", "rows") else 0
    assert (slow.result.lost, fast.result.lost) == (lost, 0)
    # The overlap was loaded by one of them.
    assert slow.result.offsets + fast.result.offsets == 20
    assert slow.lake.state().loaded.count == 20


def _while_it_runs(rows: Any, other: Callable[[], object]) -> Any:
    """`rows`, delayed: reading the first one starts `other`, and none is returned before `other` has ended.

    The rows have one task, so that a core is left for `other`.
    """
    import threading

    folder = rows.sparkSession.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    began, ended = pathlib.Path(folder + "-began"), pathlib.Path(folder + "-ended")
    for mark in (began, ended):
        mark.unlink(missing_ok=True)

    def hold(rows: Iterator[Any]) -> Iterator[Any]:
        import time

        for row in rows:
            began.touch()
            deadline = time.monotonic() + DEADLINE_S
            while not ended.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield row

    def race() -> None:
        import time

        while not began.exists():
            time.sleep(0.01)
        try:
            other()
        finally:
            ended.touch()

    threading.Thread(target=race, daemon=True).start()
    return rows.sparkSession.createDataFrame(rows.coalesce(1).rdd.mapPartitions(hold), rows.schema)


def test_paths_that_are_no_lake(spark: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(PipelineError, match="is not empty, and no lake"):
        Lake(spark, str(tmp_path / "full"))
    spark.range(3).write.format("delta").save(str(tmp_path / "other"))
    with pytest.raises(PipelineError, match="somebody else's"):
        Lake(spark, str(tmp_path / "other"))
    assert sorted(one.name for one in (tmp_path / "full").iterdir()) == ["something"]


def test_missing_topics_and_invalid_bounds(
    spark: Any, topics: Topics, name: str, make_loader: MakeLoader
) -> None:
    with pytest.raises(PipelineError, match=rf"topic {name} at .*Unknown topic or partition"):
        make_loader().run(Request([name]))
    with pytest.raises(PipelineError, match="neither earliest, latest"):
        Bound.parse("yesterday")
    assert TopicIdPartition("a", 1) < TopicIdPartition("b", 0)
