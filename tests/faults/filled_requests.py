"""Requests of every API and version, with a value of its own in every field."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.schema import Field, Message, Struct
from tests.common.batches import batch

VALUES = {
    "resource_type": 2,
    "key_type": 0,
    "acks": 1,
    "config_operation": 0,
    "upgrade_type": 1,
    "match_type": 0,
}
"""Numbers that Kafka's parsers check. Others are counted up."""
ACL_VALUES = {"resource_type", "resource_type_filter", "resource_pattern_type", "pattern_type_filter"}

CASES = [
    (handler.name, version)
    for handler in HANDLERS.values()
    for version in range(handler.min_version, handler.max_version + 1)
]


class Filling:
    """Makes requests in which every field has a value of its own and every list two elements."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.count = 0

    def fill(self, struct: type[Struct]) -> Any:
        filled: Any = struct()
        for field in struct.FIELDS:
            if field.versions[0] <= self.version <= field.versions[1]:
                setattr(filled, field.name, self.value(field))
        return filled

    def value(self, field: Field) -> Any:
        self.count += 1
        match field.kind:
            case "array":
                element: Any = field.element
                return [
                    self.fill(element) if isinstance(element, type) else self.value(element) for _ in range(2)
                ]
            case "struct":
                made: Any = field.element
                return self.fill(made)
            case "string":
                return f"s{self.count}"
            case "bytes":
                return b"b%d" % self.count
            case "records":
                return batch(base_timestamp=1)
            case "uuid":
                return bytes(15) + bytes([self.count])
            case "bool":
                return False
            case "float64":
                return float(self.count)
        return VALUES.get(field.name, 3 if field.kind == "int8" else self.count)


def requests_of(name: str, version: int) -> list[Message]:
    """A request with rows, one without, and one that asks for all there are where it can."""
    kind = api_of(name).request
    filled: Message = Filling(version).fill(kind)
    empty: Any = Filling(version).fill(kind)
    every: Any = Filling(version).fill(kind)
    for field in kind.FIELDS:
        if field.kind == "array" and field.versions[0] <= version <= field.versions[1]:
            setattr(empty, field.name, [])
            can_be_null = field.nullable[0] <= version <= field.nullable[1]
            setattr(every, field.name, None if can_be_null else [])
    return [filled, empty, every] if name not in NO_NULL else [filled, empty]


NO_NULL = ("describe_user_scram_credentials",)
"""Kafka fails itself to refuse these (NullPointerException)."""


@lru_cache
def api_of(name: str) -> Api:
    [handler] = [handler for handler in HANDLERS.values() if handler.name == name]
    return Api(handler)
