"""The data source `oncelog`, which Spark calls. Clients cannot be pickled: write() creates them (task.py)."""

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from oncelog.spark.control import Settings
from oncelog.spark.errors import SinkError
from oncelog.spark.rows import BUCKET, ORDER, SinkRow
from oncelog.spark.task import Batch, TaskWrite

FORMAT = "oncelog"
BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
# From Spark 4.1 on a writer may get Arrow batches.
ARROW_WRITER: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)


class OncelogSource(DataSource):
    """A data source that only writes streams; `write_once` sets its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark calls it by these names
        settings = self.options.get("settings")
        if settings is None or BUCKET not in schema.names:
            raise SinkError(
                "format oncelog writes what write_once has laid out: use write_once(frame, sink_id, …)"
            )
        if overwrite:
            raise SinkError("a topic is appended to: outputMode must be append or update")
        writer = RowWriter if ARROW_WRITER is None else ArrowWriter
        return writer(Settings.from_json(settings), self.options.get("topic"), list(schema.names))


class _Writer:
    """The base of both writers, which Spark pickles and sends to the tasks."""

    def __init__(self, settings: Settings, topic: str | None, names: list[str]) -> None:
        self.settings = settings
        self.topic = topic
        self.names = names

    def write_rows(self, rows: Iterator[Any]) -> WriterCommitMessage:
        TaskWrite(self.settings, self.this_batch(), self.on_step).run(self.sink_rows(rows))
        return WriterCommitMessage()

    def this_batch(self) -> Batch:
        """The batch and task, from Spark's local properties. Raises SinkError without them: a guess would lose rows."""
        context = TaskContext.get()
        batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
        query = context.getLocalProperty(QUERY_PROPERTY) if context else None
        if context is None or not batch or not query:
            raise SinkError(f"sink {self.settings.sink_id}: Spark does not say which batch this is")
        return Batch(query, int(batch), context.partitionId())

    def on_step(self, step: str) -> None:
        """Called after each step; tests override it to die there."""

    def sink_rows(self, rows: Iterator[Any]) -> Iterator[SinkRow]:
        at = {name: index for index, name in enumerate(self.names)}
        key, value, headers = at.get("key"), at["value"], at.get("headers")
        topic, partition, bucket = at.get("topic"), at.get("partition"), at[BUCKET]
        order = [at[name] for name in self.names if name.startswith(ORDER)]
        if order:
            rows = iter(sorted(rows, key=lambda row: [(row[one] is not None, row[one]) for one in order]))
        for row in rows:
            # The option overrides the column, as with the stock sink.
            target = self.topic or (row[topic] if topic is not None else None)
            if target is None:
                raise SinkError(f"sink {self.settings.sink_id}: a row without a topic, and no option topic")
            yield SinkRow(
                row[bucket],
                _bytes(row[key]) if key is not None else None,
                _bytes(row[value]),
                [(name, _bytes(content)) for name, content in map(_pair, row[headers])]
                if headers is not None and row[headers] is not None
                else None,
                target,
                row[partition] if partition is not None else None,
            )


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None if value is None else bytes(value)


def _pair(header: Any) -> tuple[str, Any]:
    return (header["key"], header["value"]) if isinstance(header, dict) else (header[0], header[1])


class RowWriter(_Writer, DataSourceStreamWriter):
    """Gets single rows, with PySpark 4.0."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_rows(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's names
        """Does nothing: each task has committed its own transaction."""

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        """Does nothing: a failed task has aborted its transaction, and committed ones stay."""


if ARROW_WRITER is None:
    ArrowWriter: Any = RowWriter
else:

    class ArrowWriter(_Writer, ARROW_WRITER):  # type: ignore[no-redef, misc]
        """Gets Arrow batches, with PySpark 4.1 and later."""

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            return self.write_rows(row for batch in iterator for row in _rows(batch))

        commit = RowWriter.commit
        abort = RowWriter.abort


def _rows(batch: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
