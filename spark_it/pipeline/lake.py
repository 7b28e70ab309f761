"""The lake: one Delta table, whose every commit says which offsets have been loaded so far.

A commit is a compare-and-set. The lake's table id is the application id of Delta's idempotent writes; a commit takes
the version that follows the last one's, which it read together with the loaded ranges. Of two that read the same, Delta
refuses one (it saw the other while it ran) or silently skips it (the other had ended before it began): `append`
notices both, by a token of its own that it looks for in the log.
"""

import json
import pathlib
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

from spark_it.pipeline.errors import PipelineError
from spark_it.pipeline.ranges import Ranges

# The mark by which a lake is known as ours, and its layout.
MARK = "oncelog.lake"
LAYOUT = "1"
SCHEMA = """
    topic STRING NOT NULL, date DATE NOT NULL, topic_id STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL,
    timestamp TIMESTAMP, timestampType INT, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
NEWEST = 20  # commits of the log that are looked at before the whole of it is
PARTITIONED_BY = ("topic", "date")
# The ranges are in the log: its entries must not age out (Delta would drop them after 30 days).
PROPERTIES = {MARK: LAYOUT, "delta.logRetentionDuration": "interval 36500 days"}


class State(NamedTuple):
    """What one commit says: its number among ours (0: there is none yet), and all that is loaded with it."""

    version: int
    loaded: Ranges


class Lake:
    """The Delta table at `path`, made where there is none (and `make`). Raises PipelineError where it is not ours."""

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
        if _holds_something(self.path):
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
            if not table.isDeltaTable(self.spark, self.path):  # else another loader made it meanwhile
                raise

    def state(self) -> State:
        """What the last of our commits says. Commits of others (OPTIMIZE and the like) are passed over."""
        return self._last()[0]

    def _last(self) -> tuple[State, str]:
        for found in self._commits():
            return found
        if self._table.toDF().limit(1).count():
            raise PipelineError(f"{self.path} has rows, but its log no longer says which offsets are loaded")
        return State(0, Ranges()), ""

    def append(self, rows: Any, state: State, more: Ranges) -> bool:
        """Add rows and `more` to what is loaded, if `state` is still the last; whether it was.

        False: another commit came first, nothing of this one is visible, and its files are garbage for VACUUM.
        """
        token = secrets.token_hex(8)
        version = state.version + 1
        said = {
            "lake": self.app_id,
            "version": version,
            "token": token,
            "loaded": (state.loaded | more).to_json(),
        }
        writer = rows.write.format("delta").mode("append").partitionBy(*PARTITIONED_BY)
        writer = writer.option("txnAppId", self.app_id).option("txnVersion", str(version))
        try:
            writer.option("userMetadata", json.dumps(said)).save(self.path)
        except Exception as failed:
            if not _is_conflict(failed):
                raise
        # A commit whose outcome is unknown (the log was written, the answer lost) is settled by the log as well.
        return self._has(version, token)

    def _has(self, version: int, token: str) -> bool:
        for state, other in self._commits():
            if state.version <= version:
                return (state.version, other) == (version, token)
        return False

    def _commits(self) -> Iterator[tuple[State, str]]:
        """Our commits, the last one first: of the newest few of the table's, then of all."""
        for log in (self._table.history(NEWEST), self._table.history()):
            rows = log.where("userMetadata IS NOT NULL").select("version", "userMetadata").collect()
            for row in sorted(rows, key=lambda row: -row["version"]):
                if (found := _parse(row["userMetadata"], self.app_id)) is not None:
                    yield found


def _parse(text: str, app_id: str) -> tuple[State, str] | None:
    """A commit's state and token; None where it is not ours."""
    try:
        said = json.loads(text)
        if said["lake"] != app_id:
            return None
        return State(int(said["version"]), Ranges.from_json(said["loaded"])), str(said["token"])
    except (ValueError, KeyError, TypeError):
        return None


def _is_conflict(failed: Exception) -> bool:
    text = str(failed)
    return (
        "DELTA_CONCURRENT" in text
        or "ConcurrentTransactionException" in text
        or "DELTA_PROTOCOL_CHANGED" in text
    )


def _holds_something(path: str) -> bool:
    """For a local path; what is elsewhere is Delta's to judge."""
    if "://" in path and not path.startswith("file://"):
        return False
    folder = pathlib.Path(path.removeprefix("file://"))
    return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
