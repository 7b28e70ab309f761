"""Every declaration equals Kafka's message definition, version by version."""

from typing import Any

import pytest

from oncelog.wire.compiler import NEW
from oncelog.wire.schema import Field, Message, Struct
from oncelog.wire.stored.metadata import RECORD_TYPES
from tests.common.kafka_definitions import definitions
from tests.wire.kafka_json import Json, all_messages, snake, versions, within

MESSAGES = all_messages()


def declared(cls: type[Struct], version: int, valid: range) -> list[Any]:
    """A struct in one version, as plain data: the fields on the wire, in order, and the omitted ones."""
    return [
        _declared(field, version, valid)
        for field in cls.FIELDS
        if any(field.versions[0] <= one <= field.versions[1] for one in valid)
    ]


def _declared(field: Field, version: int, valid: range) -> Any:
    def has(span: tuple[int, int]) -> bool:
        return span[0] <= version <= span[1]

    present = has(field.versions)
    element = field.element
    kind: str = field.kind
    if kind == "array":
        kind = "[]" + (element.kind if isinstance(element, Field) else "struct")
    facts: dict[str, Any] = {
        "name": field.name,
        "type": kind,
        "present": present,
        "nullable": present and has(field.nullable),
        "tag": field.tag if present and has(field.tagged) else None,
        "default": "new" if field.default is NEW else field.default,
        # the flag matters only for omitted fields
        "ignorable": None if present else field.ignorable,
    }
    if field.kind == "struct" and field.tag is not None and not has(field.nullable):
        facts["default"] = "new"  # declared as None: see wire.schema.struct
    return facts, declared(element, version, valid) if isinstance(element, type) and present else None


def defined(fields: list[Json], version: int, valid: range) -> list[Any]:
    """The same from Kafka's definition."""
    return [
        _defined(field, version, valid)
        for field in fields
        if any(within(one, _where(field)) for one in valid)
    ]


def _where(field: Json) -> str:
    return str(field.get("versions", field.get("taggedVersions", "")))


def _defined(field: Json, version: int, valid: range) -> Any:
    present = within(version, _where(field))
    inner = field.get("fields")
    kind = field["type"]
    if inner is not None:
        kind = "[]struct" if kind.startswith("[]") else "struct"
    facts: dict[str, Any] = {
        "name": snake(field["name"]),
        "type": kind,
        "present": present,
        "nullable": present and within(version, field.get("nullableVersions")),
        "tag": field["tag"] if present and within(version, field.get("taggedVersions")) else None,
        "default": _default(kind, field.get("default")),
        "ignorable": None if present else str(field.get("ignorable", False)).lower() == "true",
    }
    return facts, defined(inner, version, valid) if inner is not None and present else None


def _default(kind: str, text: Any) -> Any:
    if text == "null" or kind == "records":
        return None
    if kind.startswith("[]") or kind == "struct":
        return "new"
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in ("string", "bytes", "uuid"):
        return {"string": text or "", "bytes": b"", "uuid": bytes(16)}[kind]
    return float(text or 0) if kind == "float64" else int(str(text or 0), 0)


def compare(cls: type[Message], definition: Json) -> None:
    first, last = versions(definition["validVersions"])
    assert (first, last) == (cls.MIN_VERSION, cls.MAX_VERSION)
    assert definition["type"] == cls.KIND
    assert definition.get("apiKey", -1) == cls.API_KEY
    assert definition.get("latestVersionUnstable", False) == cls.LATEST_VERSION_UNSTABLE
    valid = range(first, last + 1)
    for version in valid:
        assert cls.is_flexible(version) == within(version, definition["flexibleVersions"]), version
        assert declared(cls, version, valid) == defined(definition["fields"], version, valid), version


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_declared_as_kafka_defines_it(cls: type[Message]) -> None:
    compare(cls, definitions()[cls.__name__])


def test_every_metadata_record_of_kafka_is_declared() -> None:
    kafkas = {d["apiKey"]: name for name, d in definitions().items() if d["type"] == "metadata"}
    assert {key: record.__name__ for key, record in RECORD_TYPES.items()} == kafkas


@pytest.mark.parametrize("cls", [c for c in MESSAGES if c.KIND in ("request", "response")], ids=repr)
def test_a_module_is_named_after_its_api(cls: type[Message]) -> None:
    name = cls.__name__.removesuffix("Request").removesuffix("Response")
    assert cls.__module__ == f"oncelog.wire.messages.{snake(name)}"


def structs(cls: type[Struct]) -> set[type[Struct]]:
    inner = [field.element for field in cls.FIELDS if isinstance(field.element, type)]
    return {cls}.union(*(structs(one) for one in inner if one is not None))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_annotations_say_what_the_specifiers_say(cls: type[Message]) -> None:
    python = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "uuid": "Uuid"}
    for one in structs(cls):
        for field in one.FIELDS:
            element = field.element
            expected = python.get(field.kind, "int")
            if field.kind == "records":
                expected = "Buffer" if cls.KIND == "request" else "Records"
            elif isinstance(element, type):
                expected = element.__name__
            elif element is not None:
                expected = python.get(element.kind, "int")
            if field.kind == "array":
                expected = f"list[{expected}]"
            if field.nullable != (0, -1) or field.default is None:
                expected += " | None"
            assert one.__annotations__[field.name] == expected, (one, field)
