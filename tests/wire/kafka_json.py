"""Kafka's message definitions, and an encoder for them.

The encoder is kafka-python's, which interprets Kafka's JSON and shares no code with ours.
"""

import importlib
import pkgutil
import re
import uuid
import warnings
from typing import Any

import oncelog.wire.messages
import oncelog.wire.stored
from oncelog.wire.compiler import NEW
from oncelog.wire.schema import Field, Message, Request, Struct

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its resources
    from kafka.protocol.schemas import StructField

Json = dict[str, Any]

NEWER_THAN_KIO = frozenset(("ApiVersions", "DeleteGroups", "TxnOffsetCommit"))
"""APIs that have a newer version in Kafka 4.4 than in kio."""


def all_messages() -> list[type[Message]]:
    """All messages that are declared in wire, sorted by name."""
    for package in (oncelog.wire.messages, oncelog.wire.stored):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    declared = [*Message.__subclasses__(), *Request.__subclasses__()]
    found = [cls for cls in declared if cls.__module__.startswith("oncelog.wire.") and cls is not Request]
    return sorted(found, key=lambda cls: cls.__name__)


def versions(text: str | None) -> tuple[int, int]:
    """Parses Kafka's version ranges; an empty one is (0, -1)."""
    if not text or text == "none":
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), 32767
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def within(version: int, text: str | None) -> bool:
    first, last = versions(text)
    return first <= version <= last


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


_schemas: dict[int, tuple[Json, Any]] = {}


def encode(definition: Json, cls: type[Struct], values: Json, version: int) -> bytes:
    """``values`` (our field names, all fields), encoded by kafka-python in this version."""
    flexible = within(version, definition["flexibleVersions"])
    if not definition["fields"]:
        return b"\0" if flexible else b""  # kafka-python does not support a struct without fields
    schema = _schemas.setdefault(id(definition), (definition, StructField(definition)))[1]
    item = _item(definition["fields"], cls, values, version)
    encoded: bytes = schema.encode(item, version=version, compact=flexible, tagged=flexible)
    return encoded


def _item(fields: list[Json], cls: type[Struct], values: Json, version: int) -> Json:
    ours = {field.name: field for field in cls.FIELDS}
    plain, tagged = {}, {}
    for field in fields:
        if not within(version, field.get("versions", field.get("taggedVersions"))):
            continue
        name = snake(field["name"])
        value = _value(field, ours[name], values[name], version)
        theirs = StructField.underscore_name(field["name"])
        if within(version, field.get("taggedVersions")):
            if not is_default(ours[name], values[name]):
                tagged[field["tag"]] = theirs, value
        else:
            plain[theirs] = value
    return plain | dict(tagged[tag] for tag in sorted(tagged))


def is_default(field: Field, value: Any) -> bool:
    return bool(value == ([] if field.default is NEW else field.default))


def _value(field: Json, ours: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        element = ours.element
        if isinstance(element, type):
            return [_item(field["fields"], element, one, version) for one in value]
        assert isinstance(element, Field)
        return [_value(field, element, one, version) for one in value]
    if isinstance(value, dict):
        assert isinstance(ours.element, type)
        return _item(field["fields"], ours.element, value, version)
    return uuid.UUID(bytes=value) if ours.kind == "uuid" else value
