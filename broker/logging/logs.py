"""The broker's own log: each line has a text and fields, in a form for people or as JSON.

    log = get_logger(__name__)
    log.warning("connection closed", peer=peer, reason=reason)

Lines go to the `LogOutput` of the current context (`contextvars`). Trio passes the context to the tasks and worker
threads that a task starts, so ``with logging_to(output): await node.run(...)`` gives a node an output of its own.
Without an output, lines are dropped. A call never waits for a reader (see `broker/seams/stderr.py`). Texts are constant
and variable parts are fields, so that lines can be searched. A field's value may come from a client: long ones are
shortened, and all but plain ones are quoted.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.seams.clock import Clock

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_LEVEL_NAMES = {number: name for name, number in LEVELS.items()}
KAFKA_LEVELS = {"TRACE": 5, "DEBUG": DEBUG, "INFO": INFO, "WARN": WARNING, "ERROR": ERROR, "FATAL": 50}
"""Levels by the names that Kafka's clients give them. Nothing here is logged as TRACE or FATAL."""
_KAFKA_NAMES = {number: name for name, number in KAFKA_LEVELS.items()}
ROOT = "root"
"""The name for the loggers that have no level of their own."""

FIELD_MAX_CHARS = 1_000
"""Longer values of a field are cut to this number of characters."""
TRACEBACK_MAX_CHARS = 16_000
"""Longer tracebacks are cut to their last characters, of this number."""


class Sink(Protocol):
    """Writes rendered lines without blocking."""

    def write(self, line: bytes) -> None: ...

    def take_lost(self) -> int:
        """Return how many lines were lost since the last call."""
        ...


class LogOutput:
    """Renders lines in a ``style`` (``human`` or ``json``) and writes them to ``sink``. Timestamps are from ``clock``.

    `Logger` drops lines below ``level`` (one of `LEVELS`); `set_level` gives single loggers other levels.
    """

    __slots__ = (
        "_clock",
        "_levels",
        "_render",
        "_second",
        "_second_text",
        "_sink",
        "_style",
        "fields",
        "level",
    )

    def __init__(self, sink: Sink, clock: Clock, *, style: str = "human", level: str = "info") -> None:
        self.level = LEVELS[level]
        """The lowest level of any logger."""
        self.fields: dict[str, Any] = {}
        """Fields that every line has."""
        self._levels: dict[str, int] = {ROOT: self.level}
        self._sink = sink
        self._clock = clock
        self._style = style
        self._render = {"human": _render_human, "json": _render_json}[style]
        self._second = -1
        self._second_text = ""

    def also_to(self, sink: Sink, clock: Clock) -> LogOutput:
        """Return an output of the same style and level, to ``sink`` too, with timestamps from ``clock``."""
        return LogOutput(
            _BothSinks(sink, self._sink), clock, style=self._style, level=_LEVEL_NAMES[self._levels[ROOT]]
        )

    def set_level(self, logger: str, level: str | None) -> None:
        """Give a logger, or those below a name, a level of its own (one of `KAFKA_LEVELS`); None: take it back."""
        if level is None:
            self._levels.pop(logger, None)
        else:
            self._levels[logger] = KAFKA_LEVELS[level]
        self.level = min(self._levels.values())

    def level_of(self, logger: str) -> int:
        """Return the level of a logger: its own, or that of the nearest name above it."""
        levels, name = self._levels, logger
        while name not in levels:
            name = name.rpartition(".")[0] or ROOT
        return levels[name]

    def level_name(self, logger: str) -> str:
        """Return the level of a logger as Kafka's clients name it."""
        return _KAFKA_NAMES[self.level_of(logger)]

    def write(self, level: int, name: str, text: str, fields: dict[str, Any], trace: str = "") -> None:
        """Write one line, unless its logger has a higher level, and a second one if lines were lost."""
        if len(self._levels) > 1 and level < self.level_of(name):
            return
        line = self._render(self._timestamp(), level, name, text, {**self.fields, **fields}, trace)
        self._sink.write(line.encode("utf-8", "backslashreplace"))
        lost = self._sink.take_lost()
        if lost:
            self.write(WARNING, __name__, "log lines were lost, nobody read them", {"lines": lost})

    def _timestamp(self) -> str:
        second, millisecond = divmod(self._clock.now_ms(), 1000)
        if second != self._second:
            from datetime import UTC, datetime

            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{millisecond:03d}Z"


class _BothSinks:
    """Writes each line to two sinks; lines may be lost in the second one."""

    def __init__(self, first: Sink, second: Sink) -> None:
        self._first = first
        self._second = second

    def write(self, line: bytes) -> None:
        self._first.write(line)
        self._second.write(line)

    def take_lost(self) -> int:
        return self._second.take_lost()


_current: ContextVar[LogOutput | None] = ContextVar("oncelog_log_output", default=None)


@contextmanager
def logging_to(output: LogOutput | None) -> Iterator[None]:
    """Write the lines of this context to ``output``, and those of tasks and threads that it starts. None drops them."""
    token = _current.set(output)
    try:
        yield
    finally:
        _current.reset(token)


class Logger:
    """The logger of one module."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, text: str, **fields: object) -> None:
        """Log a detail of a single request."""
        output = _current.get()
        if output is not None and output.level <= DEBUG:
            output.write(DEBUG, self.name, text, fields)

    def info(self, text: str, **fields: object) -> None:
        """Log an event that the broker's owner may want to know."""
        output = _current.get()
        if output is not None and output.level <= INFO:
            output.write(INFO, self.name, text, fields)

    def warning(self, text: str, **fields: object) -> None:
        """Log a mistake of a client or in the configuration, and its consequence."""
        output = _current.get()
        if output is not None and output.level <= WARNING:
            output.write(WARNING, self.name, text, fields)

    def error(self, text: str, **fields: object) -> None:
        """Log a failure of the broker."""
        output = _current.get()
        if output is not None and output.level <= ERROR:
            output.write(ERROR, self.name, text, fields)

    def exception(self, text: str, **fields: object) -> None:
        """Log a failure with the traceback of the exception that is being handled."""
        output = _current.get()
        if output is not None and output.level <= ERROR:
            import traceback

            output.write(ERROR, self.name, text, fields, traceback.format_exc()[-TRACEBACK_MAX_CHARS:])


def current_output() -> LogOutput | None:
    """Return the output of this context, None if lines are dropped."""
    return _current.get()


_names: set[str] = {ROOT, "oncelog"}
"""The names of the loggers of all modules that were imported."""


def get_logger(name: str) -> Logger:
    """Return the logger for a module, such as ``oncelog.broker.net.connection``."""
    _names.add(name)
    return Logger(sys.intern(name))


def logger_names() -> list[str]:
    """Return the names that may have a level, sorted."""
    return sorted(_names)


def _render_human(
    timestamp: str, level: int, name: str, text: str, fields: dict[str, Any], trace: str
) -> str:
    parts = [timestamp, f"{_LEVEL_NAMES[level].upper():<7}", f"{name}:", text]
    parts.extend(f"{key}={_quoted(value)}" for key, value in fields.items())
    # A message in the traceback may quote a client: its control characters must not reach a terminal.
    safe = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in trace)
    return " ".join(parts) + "\n" + safe


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        return str(value) if isinstance(value, int | float | None) else _quoted(str(value))
    shown = _shortened(value)
    plain = shown and shown.isprintable() and not any(mark in shown for mark in " \"'=")
    return shown if plain else repr(shown)


def _shortened(value: str) -> str:
    return value if len(value) <= FIELD_MAX_CHARS else value[:FIELD_MAX_CHARS] + "…"


def _render_json(timestamp: str, level: int, name: str, text: str, fields: dict[str, Any], trace: str) -> str:
    import json

    record: dict[str, Any] = {
        "time": timestamp,
        "level": _LEVEL_NAMES[level],
        "logger": name,
        "message": text,
    }
    for key, value in fields.items():
        plain = isinstance(value, int | float | None)
        record.setdefault(key, value if plain else _shortened(str(value)))
    if trace:
        record["traceback"] = trace
    return json.dumps(record) + "\n"
