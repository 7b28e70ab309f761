"""Medians, ratios and targets, as a table and as JSON."""

import json
import os
import pathlib
import platform
from collections.abc import Iterable
from typing import Any

from bench import librdkafka
from bench.experiment import Experiment, Harness, Row, Target, ratio_at_least
from bench.measure import median
from bench.servers import COMPARED, PATHS, Kind
from tests.common.jars import kafka_version

HEADINGS = (
    *("row", "unit", "ours", "Kafka", "ratio", "target", "met", "client"),
    *("ceiling", "best", "its client", "stub"),
)
PATHS_HEADINGS = (
    *("row", "unit", "direct", "oncelog", "of direct", "Kroxylicious", "of direct", "ratio"),
    *("target", "met"),
)
PATHS_FIGURES = ("direct", "ours", "ours_of_direct", "kroxylicious", "kroxylicious_of_direct", "ratio")
EXPLAINED = """\
client: the cores that the client used. ceiling: the same client with a stub that does nothing; its client, stub: the
cores that both used then. best: the ratio to Kafka if the client had the stub's cores as well; out of reach: even that
misses the target. (In a CPU row the ceiling is the CPU of the stub, or of the client with it.)"""


def figure(value: float | None) -> str:
    """The value with three significant digits and thousands separators; a dash for None."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def summary(harness: Harness, row: Row) -> dict[str, Any]:
    """A row's medians, ratio, verdict and samples."""
    samples = harness.samples.get(row.name, {})
    kinds = (*COMPARED, Kind.CEILING)
    ours, kafka, ceiling = (median(samples[kind]) if samples.get(kind) else None for kind in kinds)
    ratio = ours / kafka if ours is not None and kafka else None
    client, server = (cores.get(row.name, {}) for cores in (harness.client_cores, harness.server_cores))
    ceiling_client, stub = (
        median(cores[Kind.CEILING]) if Kind.CEILING in cores else 0 for cores in (client, server)
    )
    cores = [one for kind in COMPARED for one in client.get(kind, ())]
    best = ceiling / kafka if ceiling is not None and kafka and not row.is_cost else None
    if best and ceiling_client and row.unit.endswith("/s"):
        best *= (ceiling_client + stub) / ceiling_client
    target = row.target
    if target is not None and target.beside is not None:
        target = _beside(harness, target)
    judged = None if target is None else (ratio if target.of == "ratio" else ours)
    possible = best if target is not None and target.of == "ratio" else None
    return {
        "row": row.name,
        "unit": row.unit,
        "ours": ours,
        "kafka": kafka,
        "ratio": ratio,
        "target": None if target is None else target.text(),
        "met": None if target is None or judged is None else target.met(judged),
        "out_of_reach": target is not None and possible is not None and not target.met(possible),
        "client_cores": median(cores) if cores else None,
        "ceiling": ceiling,
        "best": best,
        "ceiling_client_cores": ceiling_client if Kind.CEILING in client else None,
        "stub_cores": stub if Kind.CEILING in server else None,
        "samples": {str(kind): values for kind, values in samples.items()},
    }


def paths_summary(harness: Harness, row: Row) -> dict[str, Any]:
    """A row's medians by the ways to one Kafka: direct, and through each proxy. The ratio is of the proxies."""
    samples = harness.samples.get(row.name, {})
    direct, ours, theirs = (median(samples[kind]) if samples.get(kind) else None for kind in PATHS)
    ratio = ours / theirs if ours is not None and theirs else None
    judged = None if row.target is None else (ratio if row.target.of == "ratio" else ours)
    return {
        "row": row.name,
        "unit": row.unit,
        "direct": direct,
        "ours": ours,
        "kroxylicious": theirs,
        "ratio": ratio,
        "ours_of_direct": ours / direct if ours is not None and direct else None,
        "kroxylicious_of_direct": theirs / direct if theirs is not None and direct else None,
        "target": None if row.target is None else row.target.text(),
        "met": None if row.target is None or judged is None else row.target.met(judged),
        "samples": {str(kind): values for kind, values in samples.items()},
    }


def print_paths(summaries: Iterable[dict[str, Any]]) -> None:
    """Print the table of `paths_summary`; nothing if it has no row."""
    lines: list[tuple[str, ...]] = [PATHS_HEADINGS]
    for one in summaries:
        met = {None: "", True: "yes", False: "NO"}[one["met"]]
        figures = tuple(figure(one[key]) for key in PATHS_FIGURES)
        lines.append((one["row"], one["unit"], *figures, one["target"] or "", met))
    if len(lines) > 1:
        print("\none Kafka, directly and through two proxies; ratio: oncelog's to Kroxylicious'")
        _print_columns(lines)


def _print_columns(lines: list[tuple[str, ...]]) -> None:
    """Print columns: the first two aligned to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        first = f"{line[0]:<{widths[0]}}  {line[1]:<{widths[1]}}"
        rest = "  ".join(f"{cell:>{width}}" for cell, width in zip(line[2:], widths[2:], strict=True))
        print(f"{first}  {rest}".rstrip())


def _beside(harness: Harness, target: Target) -> Target | None:
    """The target with the other row's ratio in it; None if that row was not measured."""
    other = harness.samples.get(target.beside or "", {})
    ours, kafka = (median(other[kind]) if other.get(kind) else None for kind in COMPARED)
    if not ours or not kafka or target.at_least is None:
        return None
    return ratio_at_least(round(ours / kafka + target.at_least, 2))


def print_table(summaries: Iterable[dict[str, Any]]) -> None:
    """Print the table of `summary` in aligned columns; nothing if it has no row."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for one in summaries:
        met = {None: "", True: "yes", False: "out of reach" if one["out_of_reach"] else "NO"}[one["met"]]
        figures = (figure(one[key]) for key in ("ours", "kafka", "ratio"))
        optional = ("client_cores", "ceiling", "best", "ceiling_client_cores", "stub_cores")
        more = (figure(one[key]) if one[key] is not None else "" for key in optional)
        lines.append((one["row"], one["unit"], *figures, one["target"] or "", met, *more))
    if len(lines) > 1:
        _print_columns(lines)
    if any(line[HEADINGS.index("ceiling")] for line in lines[1:]):
        print(EXPLAINED)


def write_json(path: pathlib.Path, summaries: list[dict[str, Any]], harness: Harness, rounds: int) -> None:
    document = {
        "kafka": kafka_version(),
        "librdkafka": librdkafka.version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "scale": harness.scale,
        "rows": summaries,
        "notes": harness.notes,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def selected(experiment: Experiment, pattern: str) -> list[Row]:
    """The experiment's rows that match `pattern`: parts of a row's or experiment's name, separated by |."""
    words = pattern.lower().split("|")
    if any(word in experiment.name.lower() for word in words):
        return list(experiment.rows)
    return [row for row in experiment.rows if any(word in row.name.lower() for word in words)]
