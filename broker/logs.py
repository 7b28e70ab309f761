"""Logging: a text and fields, as lines for people or as JSON, to standard error.

    log = get_logger(__name__)
    log.warning("connection closed", peer=peer, reason=reason)

Nothing is written until `configure` has said where to. A call never waits for a reader: see
`broker/seams/stderr.py`. Texts are constant and what varies is a field, so that lines can be searched; a
field's value may come from a client, so it is shortened, and quoted where it is not plain."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.seams.clock import Clock

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_LEVEL_NAMES = {number: name for name, number in LEVELS.items()}
_OFF = 100

FIELD_MAX_CHARS = 1_000
"""Characters of a field's value that are written."""
TRACEBACK_MAX_CHARS = 16_000
"""Characters of a traceback that are written; its end counts."""


class Sink(Protocol):
    """Takes finished lines, without blocking."""

    def write(self, line: bytes) -> None: ...

    def take_lost(self) -> int:
        """How many lines were lost since the last call."""
        ...


class _Output:
    __slots__ = ("clock", "level", "render", "second", "second_text", "sink")

    def __init__(self) -> None:
        self.level = _OFF
        self.sink: Sink
        self.clock: Clock
        self.render: Callable[[str, int, str, str, dict[str, Any], str], str]
        self.second = -1
        self.second_text = ""

    def timestamp(self) -> str:
        second, millisecond = divmod(self.clock.now_ms(), 1000)
        if second != self.second:
            from datetime import UTC, datetime

            self.second = second
            self.second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self.second_text}.{millisecond:03d}Z"


_output = _Output()


def configure(sink: Sink, clock: Clock, *, style: str = "human", level: str = "info") -> None:
    """Say where lines go, what time it is, how they look (``human``, ``json``) and from which of `LEVELS` on
    they count."""
    _output.render = {"human": _render_human, "json": _render_json}[style]
    _output.sink = sink
    _output.clock = clock
    _output.level = LEVELS[level]


def silence() -> None:
    """Write nothing any more, as before `configure`."""
    _output.level = _OFF


class Logger:
    """One part's log; `name` is its module's."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def debug(self, text: str, **fields: object) -> None:
        """What helps to follow one request."""
        if _output.level <= DEBUG:
            _emit(DEBUG, self.name, text, fields)

    def info(self, text: str, **fields: object) -> None:
        """What the broker did that its owner may want to know."""
        if _output.level <= INFO:
            _emit(INFO, self.name, text, fields)

    def warning(self, text: str, **fields: object) -> None:
        """What a client or the configuration got wrong, and what was done about it."""
        if _output.level <= WARNING:
            _emit(WARNING, self.name, text, fields)

    def error(self, text: str, **fields: object) -> None:
        """What the broker could not do."""
        if _output.level <= ERROR:
            _emit(ERROR, self.name, text, fields)

    def exception(self, text: str, **fields: object) -> None:
        """`error`, with the traceback of the exception being handled."""
        if _output.level <= ERROR:
            import traceback

            _emit(ERROR, self.name, text, fields, traceback.format_exc()[-TRACEBACK_MAX_CHARS:])


def get_logger(name: str) -> Logger:
    """The logger for a module, such as ``broker.connection``."""
    return Logger(sys.intern(name))


def _emit(level: int, name: str, text: str, fields: dict[str, Any], trace: str = "") -> None:
    out = _output
    line = out.render(out.timestamp(), level, name, text, fields, trace)
    out.sink.write(line.encode("utf-8", "backslashreplace"))
    lost = out.sink.take_lost()
    if lost:
        _emit(WARNING, __name__, "log lines were lost, nobody read them", {"lines": lost})


def _render_human(
    timestamp: str, level: int, name: str, text: str, fields: dict[str, Any], trace: str
) -> str:
    parts = [timestamp, f"{_LEVEL_NAMES[level].upper():<7}", f"{name}:", text]
    parts.extend(f"{key}={_quoted(value)}" for key, value in fields.items())
    # A message in the traceback may quote a client, whose bytes are not for a terminal to obey.
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
