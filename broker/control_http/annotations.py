"""An operation's arguments and result in JSON, by the types of its signature.

`from_json` and `from_query` check a value against an annotation, `to_json` makes JSON of a result, `schema` describes
an annotation as JSON Schema. Bytes are text where they are UTF-8, and ``{"base64": "..."}`` where not: both ways are
accepted, and nothing is lost.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Union

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control_http.docstrings import attribute_docstrings
from oncelog.broker.control_http.hints import type_hints
from oncelog.wire.primitives import Buffer
from oncelog.wire.schema import Field, Struct, uuid_to_text

MISFIT = object()
_LISTS: frozenset[object] = frozenset({list, Sequence, Iterable, Collection, set, frozenset})
_MAPPINGS: frozenset[object] = frozenset({dict, Mapping})
_BASE64_SCHEMA = {
    "type": "object",
    "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["base64"],
    "additionalProperties": False,
}
_BYTES_SCHEMA = {
    "description": "Bytes: text if they are UTF-8, base64 if not.",
    "anyOf": [{"type": "string"}, _BASE64_SCHEMA],
}
_SCALARS: dict[object, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: _BYTES_SCHEMA,
    type(None): {"type": "null"},
    object: {},
    Any: {},
}
_EXPECTED = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_EXPECTED_BYTES = 'text, or {"base64": "..."}'


# -- arguments


def from_json(annotation: Any, value: Any, name: str, words: str | None = None) -> Any:
    """Return a JSON value as the annotation wants it. Raises InvalidArgumentError, which names the argument, and says
    what it may be, by default what the annotation says.
    """
    found = _fit(annotation, value)
    if found is MISFIT:
        raise InvalidArgumentError(f"{name}={_shown(value)}: expected {words or expected(annotation)}")
    return found


def from_query(annotation: Any, texts: Sequence[str], name: str) -> Any:
    """Return the values of one query parameter, or of one in the path, as the annotation wants it. Raises
    InvalidArgumentError.
    """
    if _item(annotation) is not None:
        item = _item(annotation)
        return [from_query(item, [text], name) for text in texts]
    if len(texts) != 1:
        raise InvalidArgumentError(f"{name} is given {len(texts)} times: expected once")
    for value in _readings(texts[0]):
        found = _fit(annotation, value)
        if found is not MISFIT:
            return found
    raise InvalidArgumentError(f"{name}={_shown(texts[0])}: expected {expected(annotation)}")


def _readings(text: str) -> Iterable[Any]:
    """Yield what a text in a query may stand for; the text itself comes first."""
    yield text
    if text in ("true", "false"):
        yield text == "true"
    if re.fullmatch(r"-?[0-9]{1,20}", text):
        yield int(text)
    if re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{1,20})?", text):
        yield float(text)


def _fit(annotation: Any, value: Any) -> Any:
    """Return the value for the annotation, or MISFIT."""
    if annotation in (Any, object):
        return value
    options = _options(annotation)
    if options is not None:
        return next((found for one in options if (found := _fit(one, value)) is not MISFIT), MISFIT)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return value if value in arguments and not isinstance(value, bool) else MISFIT
    if annotation is bytes:
        return _bytes(value)
    if annotation is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if is_number else MISFIT
    if annotation is int:
        return value if isinstance(value, int) and not isinstance(value, bool) else MISFIT
    if annotation in _SCALARS:
        return value if isinstance(value, annotation) else MISFIT
    if origin in _MAPPINGS or annotation in _MAPPINGS:
        return _mapping(arguments or (str, Any), value)
    if origin is tuple and len(arguments) > 1 and arguments[1] is not ...:
        return _fixed(arguments, value)
    item = _item(annotation)
    if item is not None:
        return _list(item, value, tuple if origin is tuple else list)
    if dataclasses.is_dataclass(annotation):
        return _instance(annotation, value)
    raise TypeError(f"an operation's argument cannot be JSON: {annotation!r}")


def _options(annotation: Any) -> tuple[Any, ...] | None:
    """Return the alternatives of a union."""
    is_union = typing.get_origin(annotation) in (Union, types.UnionType)
    return typing.get_args(annotation) if is_union else None


def _item(annotation: Any) -> Any:
    """Return the type of a list's items, also of one that may be missing; None if it is no list."""
    for one in _options(annotation) or ():
        if _item(one) is not None:
            return _item(one)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _LISTS or annotation in _LISTS:
        return arguments[0] if arguments else Any
    return arguments[0] if origin is tuple and arguments[1:] == (...,) else None


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            return MISFIT
    return MISFIT


def _mapping(arguments: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, Mapping):
        return MISFIT
    found = {_key(arguments[0], key): _fit(arguments[1], one) for key, one in value.items()}
    return MISFIT if MISFIT in found or MISFIT in found.values() else found


def _key(annotation: Any, key: str) -> Any:
    if annotation is int:
        return int(key) if key.removeprefix("-").isdecimal() else MISFIT
    return _fit(annotation, key)


def _fixed(arguments: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != len(arguments):
        return MISFIT
    found = tuple(_fit(kind, one) for kind, one in zip(arguments, value, strict=True))
    return MISFIT if any(one is MISFIT for one in found) else found


def _list(item: Any, value: Any, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Any:
    if not isinstance(value, list | tuple):
        return MISFIT
    found = kind(_fit(item, one) for one in value)
    return MISFIT if any(one is MISFIT for one in found) else found


def _instance(kind: Any, value: Any) -> Any:
    fields = field_types(kind)
    if not isinstance(value, Mapping) or not value.keys() <= fields.keys():
        return MISFIT
    found = {name: _fit(fields[name], one) for name, one in value.items()}
    if any(one is MISFIT for one in found.values()):
        return MISFIT
    try:
        return kind(**found)
    except TypeError:
        return MISFIT


def expected(annotation: Any) -> str:
    """Return what an argument may be, in words."""
    options = _options(annotation)
    if options is not None:
        return " or ".join(dict.fromkeys(expected(one) for one in options))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if annotation is bytes:
        return _EXPECTED_BYTES
    if annotation in _EXPECTED:
        return _EXPECTED[annotation]
    if origin is tuple and arguments[1:] != (...,):
        return f"a list of {', '.join(map(expected, arguments))}"
    item = _item(annotation)
    if item is not None:
        return "a list" if item in (Any, object) else f"a list of {expected(item)}"
    if dataclasses.is_dataclass(annotation):
        return f"an object with {', '.join(field_types(annotation))}"
    return "an object"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


# -- results


def to_json(value: Any) -> Any:
    """Return a result as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(value)
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Struct):
        return {field.name: _field_json(field, getattr(value, field.name)) for field in value.FIELDS}
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else str(to_json(key)): to_json(one) for key, one in value.items()
        }
    if isinstance(value, Iterable):
        return [to_json(one) for one in value]
    return str(value)


def _field_json(field: Field, value: Any) -> Any:
    """Return a field of one of Kafka's messages; ids as Kafka writes them."""
    if field.kind == "uuid" and value is not None:
        return uuid_to_text(value)
    if field.kind == "array" and value is not None and isinstance(field.element, Field):
        return [_field_json(field.element, one) for one in value]
    return to_json(value)


def _text_or_base64(value: Buffer) -> str | dict[str, str]:
    data = bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# -- JSON Schema


def schema(annotation: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an annotation. Dataclasses are added to ``components``, by name."""
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    options = _options(annotation)
    if options is not None:
        return {"anyOf": [schema(one, components) for one in options]}
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in _MAPPINGS or annotation in _MAPPINGS:
        values = schema(arguments[1] if arguments else Any, components)
        return {"type": "object", "additionalProperties": values}
    if origin is tuple and arguments[1:] != (...,):
        items = [schema(one, components) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    item = _item(annotation)
    if item is not None:
        return {"type": "array", "items": schema(item, components)}
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"enum": list(annotation.__members__)}
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _reference(annotation, components)
    raise TypeError(f"an operation's argument or result cannot be JSON: {annotation!r}")


def _reference(kind: type, components: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in components:
        components[kind.__name__] = described = {"type": "object"}  # first, for one that refers to itself
        described.update(_object(kind, components))
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _object(kind: type, components: dict[str, Any]) -> dict[str, Any]:
    documentation = attribute_docstrings(kind)
    properties = {}
    for name, annotation in field_types(kind).items():
        properties[name] = schema(annotation, components)
        if name in documentation:
            properties[name]["description"] = documentation[name]
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "required": list(properties),
    }


def field_types(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
