"""Streaming queries as tests look at them: batch by batch."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_it.tests.topics import DEADLINE_S, until

Rows = list[tuple[Any, ...]]


def where_and_what(frame: Any) -> Rows:
    """(partition, offset, key, value) of every row, in that order."""
    picked = frame.selectExpr("partition", "offset", "cast(key as string)", "cast(value as string)")
    return sorted((tuple(row) for row in picked.collect()), key=lambda row: row[:2])


class Query:
    """A running query and the batches it has finished."""

    def __init__(self, stream: Any, checkpoint: str, **trigger: Any) -> None:
        self.batches: dict[int, Rows] = {}
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        self.query = writer.start()

    def _keep(self, frame: Any, batch_id: int) -> None:
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

        until(ask, f"{reason}; batches of {self.sizes}", 2 * DEADLINE_S)

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
    finally:
        query.query.stop()
