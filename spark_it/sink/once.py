"""`write_once`, the sink's public function."""

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from oncelog.spark.control import (
    CONTROL_TOPIC,
    TRANSACTION_TIMEOUT_MS,
    Settings,
    check_layout,
    check_topic,
    claim_sink,
    end_leftovers,
    has_open_transactions,
    kafka_error,
    make_control_topic,
    read_claim,
)
from oncelog.spark.errors import SinkError
from oncelog.spark.rows import BUCKET, COLUMNS, ORDER

TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


def write_once(
    frame: Any,
    sink_id: str,
    *,
    kafka: Mapping[str, str],
    tasks: int,
    topic: str | None = None,
    create_partitions: int | None = None,
    by: Sequence[str] = (),
    order: Sequence[str] = (),
    source: str = "",
    control: str = CONTROL_TOPIC,
    adopt: bool = False,
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    data_source: Any = None,
) -> Any:
    """A DataStreamWriter that writes each row of a stream to Kafka exactly once; it needs a checkpoint location.

    It writes the columns of the stock sink: value, and if present key, headers, topic and partition. Rows are
    distributed to `tasks` tasks by the columns `by` (by default topic and partition if both are present, else the key,
    else all columns). Each task writes its rows in the order of the columns `order`, for which it holds them in memory.
    `kafka` has librdkafka's settings, such as bootstrap.servers. A missing `topic` is created with `create_partitions`
    partitions and the broker's defaults, or refused without them. `tasks` and `by` can never change for a sink id.
    `adopt` takes over another query's sink (after a new or lost checkpoint), or allows an older batch of this query:
    rows that were written before are then written again.

    Rows must be a deterministic function of the source: see docs/how-to/spark.md. Raises SinkError with one line.
    """
    if not sink_id:
        raise SinkError("a sink needs a sink_id of its own")
    if tasks < 1:
        raise SinkError(f"sink {sink_id}: tasks={tasks}")
    if create_partitions is not None and (topic is None or create_partitions < 1):
        raise SinkError(
            f"sink {sink_id}: create_partitions={create_partitions}: it is 1 or more, and goes with topic="
        )
    if not frame.isStreaming:
        raise SinkError(f"sink {sink_id}: write_once writes streams")
    by = tuple(by) or _default_by(frame.columns)
    _check_schema(sink_id, frame, topic, (*by, *order))
    settings = Settings(
        sink_id=sink_id,
        tasks=tasks,
        by=by,
        kafka={key.removeprefix("kafka."): value for key, value in kafka.items()},
        source=source,
        control=control,
        adopt=adopt,
        token=secrets.token_hex(8),
        driver=driver_name(),
        transaction_timeout_ms=transaction_timeout_ms,
    )
    prepare_sink(settings, topic, create_partitions)
    return _writer(frame, settings, topic, order, data_source)


def driver_name() -> str:
    """A readable name of this driver."""
    return f"{socket.gethostname()}:{os.getpid()}"


def successor(sink_id: str, kafka: Mapping[str, str], control: str = CONTROL_TOPIC) -> str | None:
    """The driver that has the sink now, with its query; None if it is this one, or unknown."""
    try:
        claim = read_claim(Settings(sink_id, 1, (), kafka, control=control), wait=False)
    except (KafkaException, SinkError):
        return None
    return f"{claim.driver} (query {claim.query})" if claim and claim.driver != driver_name() else None


def prepare_sink(settings: Settings, topic: str | None, create_partitions: int | None = None) -> None:
    """Check or create the topic and the sink's claim, before the first batch. Raises SinkError."""
    try:
        check_topic(settings, topic, create_partitions)
        make_control_topic(settings)
        # A dead predecessor's open transactions would hide later records until they time out.
        if has_open_transactions(settings):
            end_leftovers(settings)
        claim = read_claim(settings)
        check_layout(settings, claim)
        if claim is None:  # otherwise the first batch's tasks take it over, because they know their query
            claim_sink(settings, None)
    except KafkaException as failed:
        raise SinkError(f"sink {settings.sink_id}: {kafka_error(failed).str()}") from None


def _writer(frame: Any, settings: Settings, topic: str | None, order: Sequence[str], data_source: Any) -> Any:
    from pyspark.sql.functions import col, hash, lit, pmod

    from oncelog.spark.source import FORMAT, OncelogSource

    source = data_source or OncelogSource
    frame.sparkSession.dataSource.register(source)
    columns = [col(name) for name in settings.by]
    # The same as Spark's own hash partitioning, so that the bucket is the task's number.
    laid_out = frame.withColumn(BUCKET, pmod(hash(*columns), lit(settings.tasks)))
    laid_out = laid_out.repartition(settings.tasks, *columns)
    # Spark does not sort streams; the writer does.
    ordered = [col(name).alias(f"{ORDER}{number}") for number, name in enumerate(order)]
    written = laid_out.select(BUCKET, *ordered, *[name for name in COLUMNS if name in frame.columns])
    writer = written.writeStream.format(source.name() or FORMAT).option("settings", settings.to_json())
    return writer if topic is None else writer.option("topic", topic)


def _default_by(columns: Sequence[str]) -> tuple[str, ...]:
    if {"topic", "partition"} <= set(columns):
        return ("topic", "partition")
    return ("key",) if "key" in columns else tuple(columns)


def _check_schema(sink_id: str, frame: Any, topic: str | None, by: Sequence[str]) -> None:
    types = dict(frame.dtypes)
    if "value" not in types:
        raise SinkError(f"sink {sink_id}: there is no column value")
    if topic is None and "topic" not in types:
        raise SinkError(f"sink {sink_id}: there is neither a column topic nor the argument")
    for name, allowed in TYPES.items():
        if name in types and types[name] not in allowed:
            raise SinkError(f"sink {sink_id}: column {name} is {types[name]}, not {' or '.join(allowed)}")
    if missing := [name for name in by if name not in types]:
        raise SinkError(f"sink {sink_id}: there is no column {', '.join(missing)} to lay rows out by")


def abort_sink(settings: Settings) -> int:
    """End the open transactions of a dead query of this sink; returns the number of its tasks.

    A live query is fenced: its tasks fail and are retried. Raises SinkError.
    """
    try:
        check_topic(settings, settings.control)
        tasks = end_leftovers(settings)
        if not tasks:
            raise SinkError(f"sink {settings.sink_id} is not known in {settings.control}")
        return tasks
    except KafkaException as failed:
        raise SinkError(f"sink {settings.sink_id}: {kafka_error(failed).str()}") from None
