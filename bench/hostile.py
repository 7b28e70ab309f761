"""`python -m bench.hostile`: how long does one request with very many elements delay other connections?

For every supported API and every array in its request (according to Kafka's own definitions) it sends a request of up
to `FRAME_BYTES`, nearly all of whose elements are in that array: once with the shortest values, and once with existing
names, and once with a name of its own for each element. Another connection sends ApiVersions all the time. The output
has its longest wait, the worst first, with the outcome of the request. With ``--denied`` the broker has an authorizer
and no ACLs: nobody has any right.
"""

import argparse
import itertools
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from compat_tests.definitions import (
    Fields,
    _Writer,
    api_key,
    api_names,
    definition,
    is_flexible,
    snake,
    versions_of,
)
from compat_tests.frames import Connection
from compat_tests.oncelog_server import Oncelog
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.compiler import REQUEST_ELEMENTS_MAX

FRAME_BYTES = 4 * 1024 * 1024 - 4096
TOPIC = "here"
GROUP = "group"
PARTITIONS = 10
RESPONSE_TIMEOUT_S = 120
NUMBERED = "#0000"
"""Stands in an element for a name that is another one in each of its copies."""
DENIED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}

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


class Bystander(threading.Thread):
    """Sends ApiVersions on one connection again and again; `longest` is the longest wait in seconds."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(bootstrap)
        self._connection.socket.settimeout(RESPONSE_TIMEOUT_S)
        self.longest = 0.0

    def run(self) -> None:
        while True:
            began = time.perf_counter()
            try:
                response = self._connection.call("ApiVersions", 0)
            except OSError:
                return
            if response == "closed":
                return
            self.longest = max(self.longest, time.perf_counter() - began)
            time.sleep(0.002)


def send_request(bootstrap: str, api: str, version: int, data: bytes) -> str:
    """Send a request; returns its outcome as text."""
    with Connection(bootstrap) as connection:
        connection.socket.settimeout(RESPONSE_TIMEOUT_S)
        head = connection.header(api_key(api), version, flexible=is_flexible(api, version))
        try:
            connection.send_frame(head + data)
            response = connection.receive_frame()
        except OSError as error:
            return type(error).__name__
        return "closed" if response is None else f"{len(response):,} bytes"


def measure(broker: Oncelog, options: argparse.Namespace) -> list[tuple[float, str]]:
    with Connection(broker.bootstrap) as connection:
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        response = connection.call("CreateTopics", 7, {"topics": [topic], "timeout_ms": 9000})
        for key_type in (0, 1):  # creates the internal topics
            connection.call("FindCoordinator", 4, {"key_type": key_type, "coordinator_keys": [GROUP]})
        known = known_values(response["topics"][0].get("topic_id") or bytes(16))
        numbered = {
            name: NUMBERED if isinstance(value, str) and value not in ("consumer",) else value
            for name, value in known.items()
        }
    bystander = Bystander(broker.bootstrap)
    bystander.start()
    results = []
    for api in api_names():
        handler = HANDLERS.get(api_key(api))
        if handler is None or options.api.lower() not in api.lower() or options.not_api in api:
            continue
        versions = (
            {handler.max_version, handler.min_version} if options.all_versions else {handler.max_version}
        )
        for version, kind in itertools.product(sorted(versions & set(versions_of(api))), options.kinds):
            for path in arrays(f"{api}Request", version):
                values = {"shortest": {}, "existing": known, "numbered": numbered}[kind]
                data, count = largest(f"{api}Request", version, path, values, options.elements, options.bytes)
                time.sleep(0.05)
                bystander.longest = 0.0
                began = time.perf_counter()
                outcome = send_request(broker.bootstrap, api, version, data)
                took = time.perf_counter() - began
                time.sleep(0.02)
                row = (
                    f"{bystander.longest * 1000:8.0f} ms  {api} v{version} {'.'.join(path)} ({kind}): "
                    f"{count:,} in {len(data):,} bytes, {took:.2f} s: {outcome}"
                )
                print(row, file=sys.stderr, flush=True)
                results.append((bystander.longest, row))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.hostile", description=__doc__)
    parser.add_argument("--api", default="", help="only APIs with this text in their name")
    parser.add_argument(
        "--elements",
        type=int,
        default=REQUEST_ELEMENTS_MAX,
        help="the largest number of elements in a request",
    )
    parser.add_argument("--not-api", default="-", help="no APIs with this text in their name")
    parser.add_argument("--all-versions", action="store_true", help="also the lowest version of each API")
    parser.add_argument("--bytes", type=int, default=FRAME_BYTES, help="the largest size of a request")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=("shortest", "existing", "numbered"),
        default=("shortest", "existing", "numbered"),
        help="what the elements of a request name",
    )
    parser.add_argument("--denied", action="store_true", help="with an authorizer, and without any ACL")
    parser.add_argument("--rows", type=int, default=20, help="the number of rows in the output")
    options = parser.parse_args()
    with Oncelog(DENIED if options.denied else None) as broker:
        results = measure(broker, options)
    for _, row in sorted(results, reverse=True)[: options.rows]:
        print(row)


if __name__ == "__main__":
    main()
