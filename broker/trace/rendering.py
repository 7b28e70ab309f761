"""A decoded message in one line, for people: its fields by Kafka's names in snake case, without what says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from oncelog.broker.control.messages import HIDDEN, hide_secrets, name_topics
from oncelog.broker.refusal.rows import fields_of
from oncelog.wire.batch import HEADER_SIZE, MAGIC, MAGIC_AT, read_header
from oncelog.wire.errors import DecodeError, ErrorCode
from oncelog.wire.records import Record, iterate_records
from oncelog.wire.schema import ZERO_UUID, Field, Struct, Uuid, deep_copy, uuid_to_text

ROWS_SHOWN = 20
"""How many rows of a list are shown, and how many records of a partition."""
LINE_CHARS_MAX = 4_000
TEXT_CHARS_MAX = 200
"""Characters of one text in a message."""
CONTENT_CHARS_MAX = 100
"""Characters of a key, a value or a header of a record."""
SHOWN_BYTES_MAX = 16 * 1024 * 1024
"""Decompressed bytes of a batch whose records are shown."""
_CODECS = ("", "gzip", "snappy", "lz4", "zstd")


class Shown(NamedTuple):
    """Settings for the text of messages."""

    topic_name: Callable[[Uuid], str | None]
    with_records: bool
    """Whether keys and values of records are shown."""


def message_text(message: Struct, version: int, shown: Shown) -> str:
    """Return a message's fields in one line. Secrets in it are hidden; the message stays as it is."""
    copy = deep_copy(message, lambda buffer: buffer)
    name_topics(copy, shown.topic_name)
    hide_secrets(copy)
    text = " ".join(_fields(copy, version, shown))
    return text if len(text) <= LINE_CHARS_MAX else text[:LINE_CHARS_MAX] + "…"


def quoted(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return a text as it is, or as Python writes it where it is empty or has spaces or unprintable characters."""
    cut = text if len(text) <= chars_max else text[:chars_max] + "…"
    plain = cut and cut.isprintable() and not any(mark in cut for mark in " \"'=[]{}")
    return cut if plain else repr(cut)


def content(data: bytes | None) -> str:
    """Return a key or value: its text, or its bytes in hexadecimal where it is none; cut off if it is long."""
    if data is None:
        return "null"
    beginning = data[: CONTENT_CHARS_MAX * 4]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        # Only the last character may be cut in two.
        text = beginning[: error.start].decode() if error.start > len(beginning) - 4 < len(data) else ""
    if text and all(char.isprintable() or char in "\t\r\n" for char in text):
        return quoted(text, CONTENT_CHARS_MAX)
    if not data:
        return "''"
    cut = data[: CONTENT_CHARS_MAX // 2]
    return f"0x{cut.hex()}" + ("…" if len(cut) < len(data) else "")


def _fields(struct: Any, version: int, shown: Shown) -> Iterator[str]:
    for name, field in fields_of(type(struct), version).items():
        value = getattr(struct, name)
        if _says_nothing(field, value):
            continue
        yield f"{name}={_value(field, value, version, shown)}"


_NOTHING = (-1, -(2**31))
"""What Kafka's fields have where nothing is meant; the second one: authorized operations that nobody asked for."""


def _says_nothing(field: Field, value: Any) -> bool:
    """Whether a field has the value that it has when nothing is meant."""
    if value is None or value is False or (field.default in _NOTHING and value == field.default):
        return True
    if isinstance(value, str | bytes | memoryview | list) and not len(value):
        return True
    if field.kind == "uuid":
        return bool(value == ZERO_UUID)
    return value == 0 and (field.name.endswith("error_code") or field.name == "throttle_time_ms")


def _value(field: Field, value: Any, version: int, shown: Shown) -> str:
    if isinstance(value, Struct):
        return "{" + " ".join(_fields(value, version, shown)) + "}"
    if field.kind == "array":
        element: Any = field.element
        inner = [
            "{" + " ".join(_fields(one, version, shown)) + "}"
            if isinstance(one, Struct)
            else _value(element, one, version, shown)
            for one in islice(value, ROWS_SHOWN)
        ]
        more = len(value) - len(inner)
        return f"[{', '.join(inner)}{f', and {more} more' if more > 0 else ''}]"
    if field.kind == "records":
        return _records(value, shown)
    if field.kind == "uuid":
        return uuid_to_text(value)
    if field.kind == "bytes":
        return HIDDEN if bytes(value[: len(HIDDEN)]) == HIDDEN.encode() else f"<{len(value)} bytes>"
    if isinstance(value, str):
        return quoted(value)
    if field.name.endswith("error_code"):
        return _error(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _records(value: Any, shown: Shown) -> str:
    """Return how many batches and records there are, and the records themselves if they are wanted."""
    if not isinstance(value, bytes | bytearray | memoryview):  # a range of a file
        if not shown.with_records:
            return f"<{value.size} bytes>"
        value = value.read()
    batches = records = 0
    codecs: dict[str, None] = {}
    at = 0
    try:
        while at + HEADER_SIZE <= len(value) and value[at + MAGIC_AT] == MAGIC:
            header = read_header(value, at)
            batches += 1
            records += header.record_count
            if 0 < header.codec < len(_CODECS):
                codecs[_CODECS[header.codec]] = None
            at += header.size
    except DecodeError as error:
        return f"<{len(value)} bytes, unreadable: {error}>"
    about = [f"{len(value)} bytes"]
    if batches:
        about = [
            _counted(batches, "batch", "batches"),
            _counted(records, "record", "records"),
            *codecs,
            *about,
        ]
    text = f"<{', '.join(about)}>"
    if shown.with_records and records:
        text += "[" + ", ".join(_each(value)) + "]"
    return text


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _each(data: Any) -> Iterator[str]:
    at = told = 0
    try:
        while at + HEADER_SIZE <= len(data) and data[at + MAGIC_AT] == MAGIC:
            header = read_header(data, at)
            if at + header.size > len(data):
                yield "a batch that is cut off"
                return
            for record in iterate_records(data, header, offset=at, max_size=SHOWN_BYTES_MAX):
                if told == ROWS_SHOWN:
                    yield "…"
                    return
                told += 1
                yield _control(header.is_control) + _record(record)
            at += header.size
    except DecodeError as error:
        yield f"unreadable: {error}"


def _control(is_control: bool) -> str:
    return "control " if is_control else ""


def _record(record: Record) -> str:
    text = f"@{record.offset} key={content(record.key)} value={content(record.value)}"
    if record.headers:
        headers = " ".join(
            f"{quoted(name.decode('utf-8', 'replace'))}={content(value)}" for name, value in record.headers
        )
        text += f" headers={{{headers}}}"
    return text
