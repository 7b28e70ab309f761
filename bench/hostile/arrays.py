"""Requests with very many elements, for every API and every array in its request (according to Kafka's definitions).

Each has up to so many bytes and elements, nearly all of which are in that array: once with the shortest values, once
with existing names, and once with a name of its own for each element.
"""

import argparse
import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.compiler import REQUEST_ELEMENTS_MAX
from tests.common.definitions import (
    Fields,
    _Writer,
    api_key,
    api_names,
    definition,
    snake,
    versions_of,
)

FRAME_BYTES = 4 * 1024 * 1024 - 4096
TOPIC = "here"
GROUP = "group"
PARTITIONS = 10
NUMBERED = "#0000"
"""Stands in an element for a name that is another one in each of its copies."""

Path = tuple[str, ...]


class Repeated:
    """An array with `count` copies of an element."""

    def __init__(self, element: Any, count: int) -> None:
        self.element = element
        self.count = count


class Writer(_Writer):
    """A writer that encodes the element of a `Repeated` only once."""

    def value(self, field: Fields, kind: str, value: Any) -> None:
        if not isinstance(value, Repeated):
            super().value(field, kind, value)
            return
        if self.flexible:
            self.varint(value.count + 1)
        else:
            self.out += struct.pack(">i", value.count)
        start = len(self.out)
        super().value({**field, "nullableVersions": "none"}, kind[2:], value.element)
        one = bytes(self.out[start:])
        if NUMBERED.encode() in one:
            del self.out[start:]
            for number in range(value.count):
                self.out += one.replace(NUMBERED.encode(), b"%05x" % number)
        else:
            self.out += one * (value.count - 1)


def arrays(name: str, version: int) -> Iterator[Path]:
    """The path of every array in a message: field names from the root on."""
    writer = Writer(definition(name), version)

    def below(fields: list[Fields], path: Path) -> Iterator[Path]:
        for field in fields:
            if not writer.present(field):
                continue
            child = (*path, field["name"])
            if field["type"].startswith("[]"):
                yield child
                if field["type"][2:] not in _PLAIN:
                    yield from below(writer.children(field), child)

    yield from below(writer.root, ())


_PLAIN = {
    "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "bool", "uuid", "string", "bytes", "records",
}  # fmt: skip


def known_values(topic_id: bytes) -> dict[str, Any]:
    """Values by field name, with which a request names existing topics and groups."""
    values: dict[str, Any] = dict.fromkeys(("name", "topic", "topic_name", "resource_name"), TOPIC)
    values |= dict.fromkeys(("group_id", "groups", "groups_names"), GROUP)
    values |= {"topic_id": topic_id, "topic_ids": topic_id, "resource_type": 2, "topic_names": TOPIC}
    values |= {"num_partitions": 1, "replication_factor": 1, "keys": GROUP, "coordinator_keys": GROUP}
    values |= {"timeout_ms": 5000, "session_timeout_ms": 30000, "rebalance_timeout_ms": 30000, "acks": 1}
    values |= {"protocol_type": "consumer", "broker_ids": 1, "max_wait_ms": 1, "session_epoch": -1}
    return values


def request_values(
    writer: Writer, fields: list[Fields], path: Path, count: int, known: dict[str, Any]
) -> Fields:
    """Fields of a message with `count` elements in the array at `path`, and with values from `known`."""
    values: Fields = {}
    for field in fields:
        if not writer.present(field):
            continue
        name, kind = snake(field["name"]), field["type"]
        on_path = bool(path) and field["name"] == path[0]
        if kind.startswith("[]"):
            if on_path:
                values[name] = Repeated(
                    element(writer, field, path[1:], count, known), 1 if path[1:] else count
                )
            elif known and not writer.is_tagged(field) and not writer.nullable(field) and not path:
                values[name] = [element(writer, field, (), 1, known)]  # the innermost array is not empty
        elif name in known:
            values[name] = known[name]
    return values


def element(writer: Writer, field: Fields, path: Path, count: int, known: dict[str, Any]) -> Any:
    kind = field["type"][2:]
    if kind in _PLAIN:
        if snake(field["name"]) in known and kind in ("string", "uuid"):
            return known[snake(field["name"])]
        return {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16)}.get(kind, 0)
    return request_values(writer, writer.children(field), path, count, known)


def body(name: str, version: int, path: Path, count: int, known: dict[str, Any]) -> bytes:
    message = definition(name)
    writer = Writer(message, version)
    return writer.message(request_values(writer, message["fields"], path, count, known))


def elements_of(values: Any) -> int:
    """The number of elements in all arrays together."""
    if isinstance(values, Repeated):
        return values.count * (1 + elements_of(values.element))
    if isinstance(values, dict):
        return sum(map(elements_of, values.values()))
    return sum(1 + elements_of(one) for one in values) if isinstance(values, list) else 0


def largest(
    name: str, version: int, path: Path, known: dict[str, Any], elements_max: int, bytes_max: int
) -> tuple[bytes, int]:
    """A request with at most ``bytes_max`` and `elements_max`, and the number of elements in the array at `path`."""
    each = len(body(name, version, path, 101, known)) - len(body(name, version, path, 1, known))
    message = definition(name)
    one, hundred = (
        elements_of(request_values(Writer(message, version), message["fields"], path, count, known))
        for count in (1, 101)
    )
    count = min((elements_max - one) * 100 // (hundred - one) + 1, bytes_max * 100 // max(each, 100))
    return body(name, version, path, count, known), count


class Generated(NamedTuple):
    """A generated request, without its header."""

    api: str
    version: int
    label: str
    body: bytes


def generated(options: argparse.Namespace, topic_id: bytes) -> Iterator[Generated]:
    """Make the requests that the ``options`` ask for (`add_options`). ``topic_id`` is the id of `TOPIC`."""
    known = known_values(topic_id)
    for api in api_names():
        handler = HANDLERS.get(api_key(api))
        if handler is None or options.api.lower() not in api.lower() or options.not_api in api:
            continue
        versions = (
            {handler.max_version, handler.min_version} if options.all_versions else {handler.max_version}
        )
        for version, kind in itertools.product(sorted(versions & set(versions_of(api))), options.kinds):
            values = {"shortest": {"acks": 1}, "existing": known, "numbered": numbered(known)}[kind]
            for path in arrays(f"{api}Request", version):
                data, count = largest(f"{api}Request", version, path, values, options.elements, options.bytes)
                label = f"{api} v{version} {'.'.join(path)} ({kind}): {count:,}"
                yield Generated(api, version, label, data)


def numbered(known: dict[str, Any]) -> dict[str, Any]:
    """Return the values with another name for each element."""
    return {
        name: NUMBERED if isinstance(value, str) and value != "consumer" else value
        for name, value in known.items()
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose requests."""
    parser.add_argument("--api", default="", help="only APIs with this text in their name")
    parser.add_argument("--not-api", default="-", help="no APIs with this text in their name")
    parser.add_argument("--all-versions", action="store_true", help="also the lowest version of each API")
    parser.add_argument(
        "--elements",
        type=int,
        default=REQUEST_ELEMENTS_MAX,
        help="the largest number of elements in a request",
    )
    parser.add_argument("--bytes", type=int, default=FRAME_BYTES, help="the largest size of a request")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=("shortest", "existing", "numbered"),
        default=("shortest", "existing", "numbered"),
        help="what the elements of a request name",
    )
