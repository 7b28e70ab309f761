"""The pipeline's small configuration file (TOML)."""

import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from spark_it.pipeline.errors import PipelineError


class Config(NamedTuple):
    """What a run needs to know. Times are Spark's intervals ("1 minute")."""

    bootstrap: str
    lake: str  # the Delta table's path
    topics: tuple[str, ...]  # to load and audit
    events: str = ""  # the topic to process; its values are JSON with id, user, at (ISO 8601) and amount
    users: str = ""  # compacted; key: user, value: JSON with country
    results: str = ""
    state: str = ""  # checkpoint and enrichment of `process`
    window: str = "1 minute"
    lateness: str = "30 seconds"
    unfit: str = "fail"  # what a record that is no event does: fail, or skip
    sink: str = "results"
    tasks: int = 2
    kafka: Mapping[str, str] = {}

    @classmethod
    def read(cls, path: str) -> Self:
        """Raises PipelineError in one line."""
        try:
            given: dict[str, Any] = tomllib.loads(pathlib.Path(path).read_text())
        except OSError as failed:
            raise PipelineError(f"{path}: {failed.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
            raise PipelineError(f"{path}: {wrong}") from None
        if unknown := sorted(given.keys() - set(cls._fields)):
            raise PipelineError(
                f"{path}: unknown key {', '.join(unknown)}; known are {', '.join(cls._fields)}"
            )
        if missing := sorted({"bootstrap", "lake", "topics"} - given.keys()):
            raise PipelineError(f"{path}: {', '.join(missing)} is missing")
        for key, value in given.items():
            wanted = {"topics": list, "kafka": dict, "tasks": int}.get(key, str)
            if not isinstance(value, wanted):
                raise PipelineError(f"{path}: {key} must be a {wanted.__name__}, not {value!r}")
        if given.get("unfit", "fail") not in ("fail", "skip"):
            raise PipelineError(f"{path}: unfit must be fail or skip, not {given['unfit']!r}")
        return cls(**{**given, "topics": tuple(given["topics"])})

    @property
    def librdkafka(self) -> dict[str, str]:
        """For the clients that are not Spark's."""
        return {"bootstrap.servers": self.bootstrap, **self.kafka}

    @property
    def connector(self) -> dict[str, str]:
        """For Spark's connector."""
        return {f"kafka.{key}": value for key, value in self.librdkafka.items()}

    def need(self, *keys: str) -> None:
        """Raises PipelineError where one of them is not set."""
        if missing := [key for key in keys if not getattr(self, key)]:
            raise PipelineError(f"the configuration lacks {', '.join(missing)}")
