"""The lake: one Delta table, in which every commit records all offsets loaded so far.

A commit is a compare-and-set. It uses Delta's idempotent writes, with the table's id as the application id and with the
version after the last commit's, which was read together with the loaded ranges. If two commits have read the same
version, Delta refuses the second (if it ran at the same time) or silently skips it (if it began later). `append`
notices both: it writes a token and looks for it in the log.
"""

import json
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.ranges import Ranges

# The table property that marks a lake of this pipeline, and its value, the layout's version.
MARK = "oncelog.lake"
LAYOUT = "1"
SCHEMA = """
    topic STRING NOT NULL, date DATE NOT NULL, topic_id STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL,
    timestamp TIMESTAMP, timestampType INT, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
NEWEST = 20  # commits that are read from the log before all others
PARTITIONED_BY = ("topic", "date")
# The loaded ranges are in the log, whose entries must be kept (by default Delta drops them after 30 days).
PROPERTIES = {MARK: LAYOUT, "delta.logRetentionDuration": "interval 36500 days"}


class State(NamedTuple):
    """A commit's number among this pipeline's commits (0 before the first), and all offsets loaded by then."""

    version: int
    loaded: Ranges


class Lake:
    """The Delta table at `path`. With `make` it is created if missing.

    Raises PipelineError if it is missing, or is not a lake of this pipeline.
    """

    def __init__(self, spark: Any, path: str, *, make: bool = True) -> None:
        from delta.tables import DeltaTable

        self.spark = spark
        self.path = path
        if not DeltaTable.isDeltaTable(spark, path):
            self._create(DeltaTable, make)
        self._table = DeltaTable.forPath(spark, path)
        detail = self._table.detail().select("id", "properties").collect()[0]
        if detail["properties"].get(MARK) != LAYOUT:
            raise PipelineError(f"{path} is a Delta table of somebody else's, not a lake of this pipeline")
        self.app_id = f"oncelog-{detail['id']}"

    def _create(self, table: Any, make: bool) -> None:
        if _is_not_empty(self.path):
            raise PipelineError(f"{self.path} is not empty, and no lake of this pipeline")
        if not make:
            raise PipelineError(f"there is no lake at {self.path}")
        builder = table.createIfNotExists(self.spark).location(self.path)
        for column in self.spark.createDataFrame([], SCHEMA).schema:
            builder = builder.addColumn(column.name, column.dataType, nullable=column.nullable)
        for key, value in PROPERTIES.items():
            builder = builder.property(key, value)
        try:
            builder.partitionedBy(*PARTITIONED_BY).execute()
        except Exception:
            if not table.isDeltaTable(
                self.spark, self.path
            ):  # otherwise another loader has created it meanwhile
                raise

    def state(self) -> State:
        """The state of this pipeline's last commit; commits of others, such as OPTIMIZE, are ignored."""
        return self._last_commit()[0]

    def _last_commit(self) -> tuple[State, str]:
        for found in self._commits():
            return found
        if self._table.toDF().limit(1).count():
            raise PipelineError(f"{self.path} has rows, but its log no longer says which offsets are loaded")
        return State(0, Ranges()), ""

    def append(self, rows: Any, state: State, more: Ranges) -> bool:
        """Commit rows and add `more` to the loaded ranges, if `state` is still the last state; whether it was.

        If not, another commit came first: nothing of this one is visible, and VACUUM will remove its files.
        """
        token = secrets.token_hex(8)
        version = state.version + 1
        metadata = {
            "lake": self.app_id,
            "version": version,
            "token": token,
            "loaded": (state.loaded | more).to_json(),
        }
        writer = rows.write.format("delta").mode("append").partitionBy(*PARTITIONED_BY)
        writer = writer.option("txnAppId", self.app_id).option("txnVersion", str(version))
        try:
            writer.option("userMetadata", json.dumps(metadata)).save(self.path)
        except Exception as error:
            if not _is_conflict(error):
                raise
        # If the outcome is unknown (the log was written, but the response was lost), the log settles it too.
        return self._has(version, token)

    def _has(self, version: int, token: str) -> bool:
        for state, other in self._commits():
            if state.version <= version:
                return (state.version, other) == (version, token)
        return False

    def _commits(self) -> Iterator[tuple[State, str]]:
        """This pipeline's commits, the last first: among the newest commits of the table, then among all."""
        for log in (self._table.history(NEWEST), self._table.history()):
            rows = log.where("userMetadata IS NOT NULL").select("version", "userMetadata").collect()
            for row in sorted(rows, key=lambda row: -row["version"]):
                if (found := _parse(row["userMetadata"], self.app_id)) is not None:
                    yield found


def _parse(text: str, app_id: str) -> tuple[State, str] | None:
    """A commit's state and token; None for a commit of others."""
    try:
        metadata = json.loads(text)
        if metadata["lake"] != app_id:
            return None
        loaded = Ranges.from_json(metadata["loaded"])
        return State(int(metadata["version"]), loaded), str(metadata["token"])
    except (ValueError, KeyError, TypeError):
        return None


def _is_conflict(error: Exception) -> bool:
    text = str(error)
    return (
        "DELTA_CONCURRENT" in text
        or "ConcurrentTransactionException" in text
        or "DELTA_PROTOCOL_CHANGED" in text
    )


def _is_not_empty(path: str) -> bool:
    """Whether a local path has content; False for other paths, which are left to Delta."""
    if "://" in path and not path.startswith("file://"):
        return False
    folder = pathlib.Path(path.removeprefix("file://"))
    return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
