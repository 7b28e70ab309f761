"""Requests and responses as plain dictionaries, encoded and decoded by Kafka's own message definitions.

`oncelog.wire` writes only headers and frames; bodies do not use the broker's own codecs. Keys are Kafka's field names
in snake case; unknown tagged fields are under "_tags".
"""

import functools
import re
import struct
from typing import Any

from tests.common.jars import is_default_version, kafka_libs
from tests.common.kafka_definitions import Definition, definitions, from_jars

Fields = dict[str, Any]
ZERO_UUID = bytes(16)
FIXED = {
    "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q",
    "float64": ">d", "bool": ">?",
}  # fmt: skip


@functools.cache
def _definitions() -> dict[str, Definition]:
    """The definitions of the release that the tests compare with."""
    return definitions() if is_default_version() else from_jars(kafka_libs())


def definition(name: str) -> Definition:
    """The definition of a message such as "FetchRequest". Raises KeyError if there is none."""
    return _definitions()[name]


def api_names() -> list[str]:
    """The names of all APIs, such as "Fetch"."""
    return sorted(name.removesuffix("Request") for name in _definitions() if name.endswith("Request"))


@functools.cache
def snake(name: str) -> str:
    """Kafka's field name in snake case: "TopicId" is "topic_id"."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])", r"_\1\2", name).lower()


@functools.cache
def in_versions(text: str | None, version: int) -> bool:
    """Whether `version` is in a range as Kafka writes it: "3+", "0-4", "7" or "none"."""
    if not text or text == "none":
        return False
    first, plus, _ = text.partition("+")
    low, _, high = first.partition("-")
    return int(low) <= version and (bool(plus) or version <= int(high or low))


def versions_of(api: str) -> range:
    """All valid versions of the request of an API such as "Fetch"."""
    low, _, high = definition(f"{api}Request")["validVersions"].partition("-")
    return range(int(low), int(high or low) + 1)


def api_key(api: str) -> int:
    return int(definition(f"{api}Request")["apiKey"])


def is_flexible(api: str, version: int) -> bool:
    return in_versions(definition(f"{api}Request")["flexibleVersions"], version)


def encode(name: str, version: int, values: Fields) -> bytes:
    """The body of message `name`; omitted fields have Kafka's defaults. Raises KeyError for unknown fields."""
    return _Writer(definition(name), version).message(values)


def decode(name: str, version: int, data: bytes) -> Fields:
    """The fields of a body. Raises ValueError or struct.error if it is truncated or has trailing bytes."""
    reader = _Reader(definition(name), version, data)
    fields = reader.message()
    if reader.position != len(data):
        raise ValueError(f"{name} v{version}: {len(data) - reader.position} bytes after its end")
    return fields


class _Schema:
    def __init__(self, message: Fields, version: int) -> None:
        self.root = message["fields"]
        self.version = version
        self.flexible = in_versions(message["flexibleVersions"], version)

    def present(self, field: Fields) -> bool:
        return in_versions(field["versions"], self.version)

    def nullable(self, field: Fields) -> bool:
        return in_versions(field.get("nullableVersions"), self.version)

    def is_tagged(self, field: Fields) -> bool:
        return "tag" in field and in_versions(field["taggedVersions"], self.version)

    def children(self, field: Fields) -> list[Fields]:
        found: list[Fields] = field["fields"]
        return found

    def default(self, field: Fields) -> Any:
        kind, value = field["type"], field.get("default")
        if value == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind == "bool":
            return value in (True, "true")
        if kind in FIXED:
            return float(value or 0) if kind == "float64" else int(str(value or 0), 0)
        if kind in ("bytes", "records", "string", "uuid"):
            return {"bytes": b"", "records": b"", "string": value or "", "uuid": ZERO_UUID}[kind]
        return {}


class _Writer(_Schema):
    def __init__(self, message: Fields, version: int) -> None:
        super().__init__(message, version)
        self.out = bytearray()

    def message(self, values: Fields) -> bytes:
        self.struct(self.root, values)
        return bytes(self.out)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def struct(self, fields: list[Fields], values: Fields) -> None:
        unknown = set(values) - {snake(field["name"]) for field in fields} - {"_tags"}
        if unknown:
            raise KeyError(f"no such field: {sorted(unknown)}")
        tags: dict[int, bytes] = dict(values.get("_tags", {}))
        for field in fields:
            if not self.present(field):
                continue
            value = values.get(snake(field["name"]), self.default(field))
            if not self.is_tagged(field):
                self.value(field, field["type"], value)
            elif value != self.default(field):
                before, self.out = self.out, bytearray()
                self.value(field, field["type"], value)
                tags[field["tag"]], self.out = bytes(self.out), before
        if self.flexible:
            self.varint(len(tags))
            for tag, data in sorted(tags.items()):
                self.varint(tag)
                self.varint(len(data))
                self.out += data

    def length(self, length: int | None, fixed: str) -> None:
        if self.flexible:
            self.varint(0 if length is None else length + 1)
        else:
            self.out += struct.pack(fixed, -1 if length is None else length)

    def value(self, field: Fields, kind: str, value: Any) -> None:
        if kind.startswith("[]"):
            self.length(None if value is None else len(value), ">i")
            for one in value or ():
                self.value({**field, "nullableVersions": "none"}, kind[2:], one)
        elif kind in FIXED:
            self.out += struct.pack(FIXED[kind], value)
        elif kind == "uuid":
            self.out += value
        elif kind in ("string", "bytes", "records"):
            data = value.encode() if isinstance(value, str) else value
            self.length(None if data is None else len(data), ">h" if kind == "string" else ">i")
            self.out += data or b""
        else:
            if self.nullable(field):
                self.out += b"\xff" if value is None else b"\x01"
            if value is not None:
                self.struct(self.children(field), value)


class _Reader(_Schema):
    def __init__(self, message: Fields, version: int, data: bytes) -> None:
        super().__init__(message, version)
        self.data = data
        self.position = 0

    def message(self) -> Fields:
        return self.struct(self.root)

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise ValueError(f"{size} bytes at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def fixed(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def struct(self, fields: list[Fields]) -> Fields:
        values = {
            snake(field["name"]): self.default(field)
            if self.is_tagged(field)
            else self.value(field, field["type"])
            for field in fields
            if self.present(field)
        }
        if self.flexible:
            known = {field["tag"]: field for field in fields if self.present(field) and self.is_tagged(field)}
            for _ in range(self.varint()):
                tag, size = self.varint(), self.varint()
                end = self.position + size
                if tag in known:
                    values[snake(known[tag]["name"])] = self.value(known[tag], known[tag]["type"])
                else:
                    values.setdefault("_tags", {})[tag] = self.take(size)
                if self.position != end:
                    raise ValueError(f"tagged field {tag} does not have {size} bytes")
        return values

    def length(self, fixed: str) -> int:
        return self.varint() - 1 if self.flexible else int(self.fixed(fixed))

    def value(self, field: Fields, kind: str) -> Any:
        if kind.startswith("[]"):
            count = self.length(">i")
            element = {**field, "nullableVersions": "none"}
            return None if count < 0 else [self.value(element, kind[2:]) for _ in range(count)]
        if kind in FIXED:
            return self.fixed(FIXED[kind])
        if kind == "uuid":
            return self.take(16)
        if kind in ("string", "bytes", "records"):
            size = self.length(">h" if kind == "string" else ">i")
            if size < 0:
                return None
            data = self.take(size)
            return data.decode() if kind == "string" else data
        if self.nullable(field) and self.fixed(">b") < 0:
            return None
        return self.struct(self.children(field))
