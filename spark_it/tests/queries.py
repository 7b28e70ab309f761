"""Streaming queries as tests look at them: batch by batch."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_it.tests.topics import DEADLINE_S, until

Rows = list[tuple[Any, ...]]


def kafka_batch(spark: Any, bootstrap: str, **options: Any) -> Any:
    """A batch read with the stock connector."""
    return _with(spark.read.format("kafka"), bootstrap, options).load()


def kafka_stream(spark: Any, bootstrap: str, **options: Any) -> Any:
    """A streaming read with the stock connector, from the earliest offset unless options say otherwise."""
    return _with(
        spark.readStream.format("kafka"), bootstrap, {"startingOffsets": "earliest", **options}
    ).load()


def _with(reader: Any, bootstrap: str, options: dict[str, Any]) -> Any:
    # One attempt to fetch offsets: by default a failure shows after three, each a second later.
    settings = {"fetchOffset.retryIntervalMs": "100", "kafka.bootstrap.servers": bootstrap}
    for key, value in (settings | options).items():
        reader = reader.option(key, value)
    return reader


def where_and_what(frame: Any) -> Rows:
    """(partition, offset, key, value) of every row, in that order."""
    picked = frame.selectExpr("partition", "offset", "cast(key as string)", "cast(value as string)")
    return sorted((tuple(row) for row in picked.collect()), key=lambda row: row[:2])


class Query:
    """A running query and the batches it has finished."""

    def __init__(self, stream: Any, checkpoint: str, **trigger: Any) -> None:
        self.batches: dict[int, Rows] = {}
        self.tasks: dict[int, int] = {}
        self._first_seen = ""
        self._commits = pathlib.Path(checkpoint) / "commits"
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        self.query = writer.start()

    def _keep(self, frame: Any, batch_id: int) -> None:
        self.tasks[batch_id] = frame.rdd.getNumPartitions()
        self.batches[batch_id] = where_and_what(frame)

    @property
    def rows(self) -> Rows:
        return sorted((row for rows in list(self.batches.values()) for row in rows), key=lambda row: row[:2])

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had, in order, without empty ones."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]

    def wait_for(self, done: Callable[["Query"], object], reason: str) -> None:
        """Return when `done`; raises the query's error where it fails."""

        def ask() -> object:
            if (error := self.query.exception()) is not None:
                raise error
            return done(self)

        until(ask, lambda: f"{reason}; batches of {self.sizes}", 2 * DEADLINE_S)

    def looked_again(self) -> bool:
        """Whether the query has reported progress twice, with what was there when this was first asked."""
        progress = self.query.lastProgress
        if progress is None:
            return False
        self._first_seen = self._first_seen or progress["timestamp"]
        return bool(progress["timestamp"] != self._first_seen)

    def is_committed(self) -> bool:
        """Whether a restart would not run the last batch again."""
        return not self.batches or (self._commits / str(max(self.batches))).exists()

    def end(self) -> "Query":
        """Wait for its own end (availableNow). Raises its error."""
        assert self.query.awaitTermination(int(3 * DEADLINE_S)), "it goes on and on"
        return self


@contextlib.contextmanager
def running(stream: Any, checkpoint: str, **trigger: Any) -> Iterator[Query]:
    """A query that is stopped at the end."""
    query = Query(stream, checkpoint, **trigger)
    try:
        yield query
        if query.query.exception() is None:
            query.wait_for(lambda query: query.is_committed(), "the last batch is committed")
    finally:
        query.query.stop()
