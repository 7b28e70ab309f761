"""Hypothesis strategies for values of declared messages: plain dictionaries for any encoder."""

import functools
from collections.abc import Iterator
from typing import Any, cast

from hypothesis import strategies as st

from oncelog.wire.schema import NO_VERSIONS, ZERO_UUID, Field, Struct

Values = dict[str, Any]

NUMBERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
LONG = 200  # needs a varint of two bytes


@functools.cache
def values(cls: type[Struct]) -> st.SearchStrategy[Values]:
    """All fields of a struct in any version; fields that are nullable in some version are sometimes null."""
    return st.fixed_dictionaries({field.name: _value(field) for field in cls.FIELDS})


def _value(field: Field) -> st.SearchStrategy[Any]:
    strategy = _present(field)
    absent = field.kind == "struct" and field.default is None
    if field.nullable != NO_VERSIONS or absent:
        return st.none() | strategy
    return strategy


def _present(field: Field) -> st.SearchStrategy[Any]:
    kind = field.kind
    if kind in NUMBERS:
        low, high = NUMBERS[kind]
        return st.integers(low, high) | st.just(cast(int, field.default))
    if kind == "struct":
        return values(cast("type[Struct]", field.element))
    if kind == "array":
        element = field.element
        one = values(element) if isinstance(element, type) else _present(cast(Field, element))
        return st.lists(one, max_size=2)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16) | st.just(ZERO_UUID),
        "string": st.text(max_size=5) | st.just("é" * LONG),
        "bytes": st.binary(max_size=5) | st.just(bytes(LONG)),
        "records": st.binary(max_size=5) | st.just(bytes(LONG)),
    }
    return simple[kind]


def sample(cls: type[Struct], numbers: Iterator[int]) -> Values:
    """All fields set to different small values, so that swapped fields are detected."""
    return {field.name: _sample(field, numbers) for field in cls.FIELDS}


def _sample(field: Field, numbers: Iterator[int]) -> Any:
    kind, element = field.kind, field.element
    if kind == "array":
        one = (
            [sample(element, numbers)]
            if isinstance(element, type)
            else [_sample(cast(Field, element), numbers)]
        )
        return one * 2
    if kind == "struct":
        return sample(cast("type[Struct]", element), numbers)
    number = next(numbers)
    simple = {
        "bool": number % 2 == 1,
        "float64": number + 0.5,
        "uuid": number.to_bytes(16, "big"),
        "string": f"s{number}",
        "bytes": b"b%d" % number,
        "records": b"r%d" % number,
    }
    return simple.get(kind, number)


def in_version(cls: type[Struct], drawn: Values, version: int) -> Values:
    """The drawn values as this version can hold them: other fields get their defaults, null becomes empty."""
    return {field.name: _in_version(field, drawn[field.name], version) for field in cls.FIELDS}


def _in_version(field: Field, value: Any, version: int) -> Any:
    if not within(version, field.versions):
        return default(field)
    if value is None:
        absent = field.kind == "struct" and field.default is None and within(version, field.tagged)
        return None if within(version, field.nullable) or absent else empty(field)
    element = field.element
    if isinstance(element, type):
        if field.kind == "array":
            return [in_version(element, one, version) for one in value]
        restricted = in_version(element, value, version)
        # A tagged struct with Kafka's default value is not sent, so a reader gets none.
        absent = field.default is None and field.nullable == NO_VERSIONS
        return None if absent and build(element, restricted) == element() else restricted
    return value


def within(version: int, versions: tuple[int, int]) -> bool:
    return versions[0] <= version <= versions[1]


def default(field: Field) -> Any:
    if field.kind == "array":
        return None if field.default is None else []
    if field.kind == "struct":
        return None if field.default is None else empty(field)
    return field.default


def empty(field: Field) -> Any:
    if field.kind == "struct":
        element = cast("type[Struct]", field.element)
        return {inner.name: default(inner) for inner in element.FIELDS}
    return {"string": "", "bytes": b"", "records": b"", "array": []}[field.kind]


def build(cls: type[Struct], restricted: Values) -> Any:
    """The message with these values."""
    made = {}
    for field in cls.FIELDS:
        value, element = restricted[field.name], field.element
        if isinstance(element, type) and isinstance(value, list):
            value = [build(element, one) for one in value]
        elif isinstance(element, type) and value is not None:
            value = build(element, value)
        made[field.name] = value
    return cls(**made)
