"""The pipeline's small configuration file (TOML)."""

import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from spark_it.pipeline.errors import PipelineError


class Config(NamedTuple):
    """The configuration of all commands. Times are Spark's intervals ("1 minute")."""

    bootstrap: str
    lake: str  # the Delta table's path
    topics: tuple[str, ...]  # to load and audit
    events: str = ""  # the topic to process; its values are JSON with id, user, at (ISO 8601) and amount
    users: str = ""  # compacted; key: user, value: JSON with country
    results: str = ""
    state: str = ""  # the folder with the checkpoint and the enrichment of `process`
    window: str = "1 minute"
    lateness: str = "30 seconds"
    unfit: str = "fail"  # for a record that is not an event: fail, or skip it
    sink: str = "results"
    tasks: int = 2
    kafka: Mapping[str, str] = {}

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a TOML file. Raises PipelineError, in one line."""
        try:
            settings: dict[str, Any] = tomllib.loads(pathlib.Path(path).read_text())
        except OSError as error:
            raise PipelineError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PipelineError(f"{path}: {error}") from None
        if unknown := sorted(settings.keys() - set(cls._fields)):
            raise PipelineError(
                f"{path}: unknown key {', '.join(unknown)}; known are {', '.join(cls._fields)}"
            )
        if missing := sorted({"bootstrap", "lake", "topics"} - settings.keys()):
            raise PipelineError(f"{path}: {', '.join(missing)} is missing")
        for key, value in settings.items():
            expected = {"topics": list, "kafka": dict, "tasks": int}.get(key, str)
            if not isinstance(value, expected):
                raise PipelineError(f"{path}: {key} must be a {expected.__name__}, not {value!r}")
        if settings.get("unfit", "fail") not in ("fail", "skip"):
            raise PipelineError(f"{path}: unfit must be fail or skip, not {settings['unfit']!r}")
        return cls(**{**settings, "topics": tuple(settings["topics"])})

    @property
    def librdkafka(self) -> dict[str, str]:
        """The settings of librdkafka clients."""
        return {"bootstrap.servers": self.bootstrap, **self.kafka}

    @property
    def connector(self) -> dict[str, str]:
        """The options of Spark's connector."""
        return {f"kafka.{key}": value for key, value in self.librdkafka.items()}

    def require(self, *keys: str) -> None:
        """Raises PipelineError if one of the keys is not set."""
        if missing := [key for key in keys if not getattr(self, key)]:
            raise PipelineError(f"the configuration lacks {', '.join(missing)}")
