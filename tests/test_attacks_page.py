"""Each row of docs/reference/attacks.md names a test that is there, and that pytest would run."""

from __future__ import annotations

import ast
import pathlib
import re
from functools import cache

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "attacks.md"
LINK = re.compile(r"\[`(\w+)`\]\(\.\./\.\./([^)]+)\)")
COLUMNS = 3


@cache
def collected_from(path: str) -> frozenset[str]:
    """The functions of a file that pytest runs: those of its top level, and not skipped whatever happens."""
    file = ROOT / path
    if (
        not path.startswith(("tests/", "compat_tests/"))
        or not file.name.startswith("test_")
        or not file.exists()
    ):
        return frozenset()
    return frozenset(
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not any(re.search(r"\bmark\.(skip|xfail)\b", ast.unparse(one)) for one in node.decorator_list)
    )


def rows(page: str) -> list[str]:
    """The rows of all tables, without their heads."""
    lines = page.splitlines()
    heads = {at + offset for at, line in enumerate(lines) if line.startswith("|---") for offset in (-1, 0)}
    return [line for at, line in enumerate(lines) if line.startswith("|") and at not in heads]


def problems(page: str) -> list[str]:
    """A line for each row without a test, and each test that is not there."""
    found = []
    for row in rows(page):
        cells = row.strip("|").split(" | ")
        links = LINK.findall(cells[-1])
        if len(cells) != COLUMNS or not links or len(links) != cells[-1].count("[`"):
            found.append(f"expected an attack, what comes of it, and links to tests: {row}")
        found += [f"{path} has no {name}" for name, path in links if name not in collected_from(path)]
    return found


def test_each_attack_has_a_test_that_exists() -> None:
    page = PAGE.read_text()
    assert len(rows(page)) > 50
    assert problems(page) == []


def test_a_dead_row_is_reported() -> None:
    here, head = pathlib.Path(__file__).relative_to(ROOT), "| a | b | c |\n|---|---|---|\n"
    good = f"| x | y | [`test_a_dead_row_is_reported`](../../{here}) |\n"
    assert problems(head + good) == []
    for bad in (
        "| x | y | by nobody |\n",
        "| x | [`test_a_dead_row_is_reported`](../../tests/test_attacks_page.py) |\n",
        f"| x | y | [`test_that_is_gone`](../../{here}) |\n",
        f"| x | y | [`problems`](../../{here}) |\n",
        "| x | y | [`test_a_dead_row_is_reported`](../../tests/test_gone.py) |\n",
        f"| x | y | [`test_a_dead_row_is_reported`](../../{here}), [`test_other`](tests/test_other.py) |\n",
    ):
        assert len(problems(head + bad)) == 1, bad
