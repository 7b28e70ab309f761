"""`Output`: a record of an output topic as the judge compares it, without what the plan leaves out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.prove.json_paths import parts_of, remove, values_at
from oncelog.broker.prove.trials.history import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.plan import ProofPlan


class Output(NamedTuple):
    """See the module."""

    topic: str
    key: str | None
    value: str
    """Value and headers as text, without what `--ignore` names; with `--key` what that names."""


def outputs_of(plan: ProofPlan, records: Mapping[str, Iterable[Record]]) -> list[Output]:
    """Return the outputs of a trial, by topic and partition."""
    return [output_of(plan, record) for rows in records.values() for record in rows]


def output_of(plan: ProofPlan, record: Record) -> Output:
    """Return one output."""
    key = None if record.key is None else record.key.decode("utf-8", "backslashreplace")
    if plan.key is not None:
        return Output(record.topic, key, f"{plan.key} {_named(plan.key, record, key)}")
    value = _without(record.value, paths) if (paths := plan.ignored_paths) else None
    if value is None:
        value = text_of_bytes(record.value)
    headers = [
        (name, content)
        for name, content in record.headers
        if "headers" not in plan.ignore and f"header:{name}" not in plan.ignore
    ]
    return Output(record.topic, key, f"{value} {headers}" if headers else value)


def _named(path: str, record: Record, key: str | None) -> str:
    """Return what a path of ``--key`` names in a record, as text."""
    if path == "key":
        return str(key)
    parts = parts_of(path)
    found = []
    with suppress(ValueError):
        found = values_at(json.loads(record.value or b""), parts)
    if not found:
        return f"nothing at {path}"
    return json.dumps(found if "*" in parts else found[0], sort_keys=True)


def _without(value: bytes | None, paths: Iterable[str]) -> str | None:
    """Return a JSON value without what the paths name; None for one that is no JSON."""
    try:
        data = json.loads(value or b"")
    except ValueError:
        return None
    for path in paths:
        remove(data, path)
    return json.dumps(data, sort_keys=True)


def check_paths(plan: ProofPlan, records: Iterable[Record]) -> None:
    """Raises InvalidArgumentError for a path of ``--key`` or ``--ignore`` that is in no output."""
    values = []
    for record in records:
        with suppress(ValueError):
            values.append(json.loads(record.value or b""))
    for option, path in plan.paths:
        if not any(values_at(value, parts_of(path)) for value in values):
            raise InvalidArgumentError(f"{option} {path}: it is in the JSON value of no output")


def orders_of(outputs: Iterable[Output]) -> dict[tuple[str, str], list[str]]:
    """Return the values of each topic and key in their order; outputs without a key have none."""
    orders: dict[tuple[str, str], list[str]] = {}
    for one in outputs:
        if one.key is not None:
            orders.setdefault((one.topic, one.key), []).append(one.value)
    return orders


def output_text(output: Output) -> str:
    """Return an output as text, on one line."""
    text = output.value if output.key is None else f"{output.key!r}: {output.value}"
    return f"{output.topic} {text[:160]}"
