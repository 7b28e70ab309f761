"""How long the tests of each folder take, by the reports of a run: `make test` leaves them in `.runs`.

A test's time has its fixtures' in it, so the first one that asks for a broker pays for its start. What several workers
did at the same time is added up.

    python .ci/minutes.py            a table for each suite
    python .ci/minutes.py --write    also set the minutes in the tables of tests/README.md and compat_tests/README.md
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
RUNS = ROOT / ".runs"


def seconds_by_folder(report: Path) -> dict[str, tuple[int, float]]:
    """The number of tests and their seconds, by folder (`tests/log`; `tests` for the files that stand there)."""
    found: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for case in ElementTree.parse(report).iter("testcase"):
        parents = case.get("classname", "").split(".test_")[0].split(".")
        folder = "/".join(parents[:2])
        count, seconds = found[folder]
        found[folder] = count + 1, seconds + float(case.get("time", 0))
    return dict(found)


def minutes(seconds: float) -> str:
    """In whole minutes; below one, a tenth of it."""
    return f"{seconds / 60:.0f}" if seconds >= 60 else f"{max(seconds / 60, 0.1):.1f}"


def with_minutes(page: str, suite: str, found: dict[str, tuple[int, float]]) -> str:
    """The README of a suite, whose rows ``| `folder/` | minutes | what it shows |`` have the minutes of this run."""

    def row(match: re.Match[str]) -> str:
        of = found.get(f"{suite}/{match[1]}")
        return match[0] if of is None else f"| `{match[1]}/` | {minutes(of[1])} |"

    return re.sub(r"(?m)^\| `(\w+)/` \| [\d.?]+ \|", row, page)


def main() -> int:
    reports = sorted(RUNS.glob("*.xml"))
    if not reports:
        print(f"no run: `make test` leaves its reports in {RUNS.name}/", file=sys.stderr)
        return 1
    for report in reports:
        found = seconds_by_folder(report)
        print(f"\n| {report.stem} | tests | minutes |\n|---|---|---|")
        for folder, (count, seconds) in sorted(found.items()):
            print(f"| `{folder}` | {count} | {minutes(seconds)} |")
        print(f"| all | {sum(n for n, _ in found.values())} | {minutes(sum(s for _, s in found.values()))} |")
        readme = ROOT / report.stem / "README.md"
        if "--write" in sys.argv and readme.exists():
            readme.write_text(with_minutes(readme.read_text(), report.stem, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
