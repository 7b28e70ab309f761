"""Medians, ratios and targets as a table and as JSON."""

import json
import os
import pathlib
import platform
from collections.abc import Iterable
from typing import Any

from bench import librdkafka
from bench.experiment import Experiment, Lab, Row
from bench.measure import median
from bench.servers import Kind
from compat_tests.real_kafka import kafka_version

HEADINGS = ("row", "unit", "ours", "Kafka", "ratio", "target", "met", "client")


def figure(value: float | None) -> str:
    """Three significant digits and thousands separated; a dash for nothing."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def summary(lab: Lab, row: Row) -> dict[str, Any]:
    """One row's medians, ratio and verdict; its samples behind them."""
    samples = lab.samples.get(row.name, {})
    ours, kafka = (median(samples[kind]) if samples.get(kind) else None for kind in Kind)
    ratio = ours / kafka if ours is not None and kafka else None
    target = row.target
    judged = None if target is None else (ratio if target.of == "ratio" else ours)
    cores = [one for of_kind in lab.client_cores.get(row.name, {}).values() for one in of_kind]
    return {
        "row": row.name,
        "unit": row.unit,
        "ours": ours,
        "kafka": kafka,
        "ratio": ratio,
        "target": None if target is None else target.text(),
        "met": None if target is None or judged is None else target.met(judged),
        "client_cores": median(cores) if cores else None,
        "samples": {str(kind): values for kind, values in samples.items()},
    }


def print_table(summaries: Iterable[dict[str, Any]], notes: Iterable[str]) -> None:
    """Plain aligned columns. `client` is how many cores the client took: near 1 or more, it is the limit."""
    lines = [HEADINGS]
    for one in summaries:
        met = {None: "", True: "yes", False: "NO"}[one["met"]]
        figures = (figure(one[key]) for key in ("ours", "kafka", "ratio"))
        client = figure(one["client_cores"]) if one["client_cores"] is not None else ""
        lines.append((one["row"], one["unit"], *figures, one["target"] or "", met, client))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    for line in lines:
        first = f"{line[0]:<{widths[0]}}  {line[1]:<{widths[1]}}"
        rest = "  ".join(f"{cell:>{width}}" for cell, width in zip(line[2:], widths[2:], strict=True))
        print(f"{first}  {rest}".rstrip())
    for note in notes:
        print(f"note: {note}")


def write_json(path: pathlib.Path, summaries: list[dict[str, Any]], lab: Lab, rounds: int) -> None:
    document = {
        "kafka": kafka_version(),
        "librdkafka": librdkafka.version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "scale": lab.scale,
        "rows": summaries,
        "notes": lab.notes,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def selected(experiment: Experiment, wanted: str) -> list[Row]:
    """The rows of an experiment that `wanted` names: a part of a row's name, or of its experiment's."""
    word = wanted.lower()
    if word in experiment.name.lower():
        return list(experiment.rows)
    return [row for row in experiment.rows if word in row.name.lower()]
