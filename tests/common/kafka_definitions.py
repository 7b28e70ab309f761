"""The definitions of Kafka's messages, as facts: kafka_definitions.txt has a line for each message and each field.

They were read out of the jars of Kafka, in which they are JSON with comments; `python -m
tests.common.kafka_definitions` writes them anew, and compat_tests/every_version/test_definitions.py compares. So no
test needs Java to know a message.

A line of a message is its name, what it is (a request, a stored value, …), its key, its versions, and those that are
flexible. A field's has its name, type and versions, and what else the definition says of it. The fields of a struct
are indented; where several fields share a struct, each has its fields.
"""

import functools
import json
import pathlib
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

from tests.common.jars import kafka_libs

Definition = dict[str, Any]
FILE = pathlib.Path(__file__).with_name("kafka_definitions.txt")
JARS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
)
SAID_OF_MESSAGES = ("apiKey", "validVersions", "flexibleVersions", "latestVersionUnstable", "listeners")
SAID_OF_FIELDS = (
    *("nullableVersions", "taggedVersions", "tag", "default", "ignorable"),
    *("mapKey", "entityType", "zeroCopy", "flexibleVersions"),
)


@functools.cache
def definitions() -> dict[str, Definition]:
    """Kafka's definitions by the name of the message, with the keys of Kafka's JSON."""
    found: dict[str, Definition] = {}
    outer: list[Definition] = []
    for line in FILE.read_text().splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, kind, *said = line.split()
        parsed: Definition = {"name": name, "type": kind}
        del outer[depth:]
        if outer:
            parsed["versions"] = said.pop(0)
            outer[-1].setdefault("fields", []).append(parsed)
        else:
            parsed["fields"] = []
            found[name] = parsed
        for key, _, value in (one.partition("=") for one in said):
            parsed[key] = json.loads(value)
        outer.append(parsed)
    return found


def from_jars(libs: pathlib.Path) -> dict[str, Definition]:
    """The definitions in Kafka's jars, with the fields of shared structs where they are used."""
    found: dict[str, Definition] = {}
    for name in JARS:
        (jar,) = libs.glob(f"{name}-[0-9]*.jar")
        with zipfile.ZipFile(jar) as opened:
            for entry in opened.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", entry):
                    text = re.sub(r"^\s*//.*$", "", opened.read(entry).decode(), flags=re.MULTILINE)
                    one = json.loads(text)
                    shared = {struct["name"]: struct["fields"] for struct in one.get("commonStructs", ())}
                    one["fields"] = _resolved(one.get("fields", []), shared)
                    found[one["name"]] = one
    return found


def _resolved(fields: list[Definition], shared: dict[str, list[Definition]]) -> list[Definition]:
    return [_resolved_field(field, shared) for field in fields]


def _resolved_field(field: Definition, shared: dict[str, list[Definition]]) -> Definition:
    # Some tagged fields have their versions only once.
    found = {**field, "versions": field.get("versions", field.get("taggedVersions"))}
    if inner := field.get("fields") or shared.get(field["type"].removeprefix("[]")):
        found["fields"] = _resolved(inner, shared)
    return found


def lines(found: dict[str, Definition]) -> Iterator[str]:
    """The lines of kafka_definitions.txt for these definitions."""
    for _, one in sorted(found.items()):
        yield " ".join([one["name"], one["type"], *_said(one, SAID_OF_MESSAGES)])
        yield from _lines_of(one["fields"], "  ")


def _lines_of(fields: list[Definition], indent: str) -> Iterator[str]:
    for one in fields:
        yield indent + " ".join([one["name"], one["type"], one["versions"], *_said(one, SAID_OF_FIELDS)])
        yield from _lines_of(one.get("fields", []), indent + "  ")


def _said(one: Definition, keys: tuple[str, ...]) -> Iterator[str]:
    return (f"{key}={json.dumps(one[key], separators=(',', ':'))}" for key in keys if key in one)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(from_jars(kafka_libs())))
