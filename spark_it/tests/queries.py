"""Batch reads and streaming queries for tests, whose batches are kept."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_it.tests.topics import DEADLINE_S, wait_until

Rows = list[tuple[Any, ...]]


def kafka_batch(spark: Any, bootstrap: str, **options: Any) -> Any:
    """A batch read with the stock connector."""
    return _set_options(spark.read.format("kafka"), bootstrap, options).load()


def kafka_stream(spark: Any, bootstrap: str, **options: Any) -> Any:
    """A streaming read with the stock connector, from the earliest offset unless options say otherwise."""
    return _set_options(
        spark.readStream.format("kafka"), bootstrap, {"startingOffsets": "earliest", **options}
    ).load()


def _set_options(reader: Any, bootstrap: str, options: dict[str, Any]) -> Any:
    # By default fetching offsets fails only after three attempts, a second apart.
    settings = {"fetchOffset.retryIntervalMs": "100", "kafka.bootstrap.servers": bootstrap}
    for key, value in (settings | options).items():
        reader = reader.option(key, value)
    return reader


def sorted_rows(frame: Any) -> Rows:
    """(partition, offset, key, value) of every row, sorted by partition and offset."""
    picked = frame.selectExpr("partition", "offset", "cast(key as string)", "cast(value as string)")
    return sorted((tuple(row) for row in picked.collect()), key=lambda row: row[:2])


class Query:
    """A streaming query; keeps the rows of its finished batches."""

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
        self.batches[batch_id] = sorted_rows(frame)

    @property
    def rows(self) -> Rows:
        return sorted((row for rows in list(self.batches.values()) for row in rows), key=lambda row: row[:2])

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each batch, in order, without empty batches."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]

    def wait_for(self, done: Callable[["Query"], object], reason: str) -> None:
        """Wait until `done`. Raises the query's error if it fails."""

        def check() -> object:
            if (error := self.query.exception()) is not None:
                raise error
            return done(self)

        wait_until(check, lambda: f"{reason}; batches of {self.sizes}", 2 * DEADLINE_S)

    def has_new_progress(self) -> bool:
        """Whether the query has reported progress twice since the first call: it has seen all earlier records."""
        progress = self.query.lastProgress
        if progress is None:
            return False
        self._first_seen = self._first_seen or progress["timestamp"]
        return bool(progress["timestamp"] != self._first_seen)

    def is_committed(self) -> bool:
        """Whether a restart would not run the last batch again."""
        return not self.batches or (self._commits / str(max(self.batches))).exists()

    def end(self) -> "Query":
        """Wait until the query ends by itself (availableNow). Raises its error."""
        assert self.query.awaitTermination(int(3 * DEADLINE_S)), "the query does not end"
        return self


@contextlib.contextmanager
def running(stream: Any, checkpoint: str, **trigger: Any) -> Iterator[Query]:
    """A query that is stopped when the context is left."""
    query = Query(stream, checkpoint, **trigger)
    try:
        yield query
        if query.query.exception() is None:
            query.wait_for(lambda query: query.is_committed(), "the last batch is committed")
    finally:
        query.query.stop()
