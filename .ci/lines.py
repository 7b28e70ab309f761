"""Count the lines of code of each folder, and compare them with its ceiling in `.ci/lines.txt`.

A line of code is no blank line, comment, docstring or import; lines of imports are counted by themselves. Generated
code is left out. A folder above its ceiling fails: write less, or raise the ceiling and say why in the commit.

    python .ci/lines.py            one line for each folder above its ceiling; exit code 1 where there is any
    python .ci/lines.py --write    set each ceiling to today's count
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
CEILINGS = ROOT / ".ci/lines.txt"
PRODUCT = ("oncelog", "wire", "coordinator", "broker", "spark_it")
LEFT_OUT = (
    "broker/embedded/sync_api",
    "spark_it/tests",
    "oncelog/wire",
    "oncelog/coordinator",
    "oncelog/broker",
)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def lines_of(path: Path) -> tuple[int, int]:
    """Return the numbers of lines of code, and of imports."""
    imports: set[int] = set()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - imports - docstrings), len(imports)


def counts() -> dict[str, int]:
    """Return the lines of code by folder, and those of all imports."""
    result: Counter[str] = Counter()
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(LEFT_OUT):
                continue
            code, imports = lines_of(path)
            folder = "/".join(name.split("/")[:2]) if name.count("/") > 1 else top
            result[folder] += code
            result["imports"] += imports
    result["all"] = sum(result.values()) - result["imports"]
    return dict(result)


def main() -> int:
    found = counts()
    if "--write" in sys.argv:
        CEILINGS.write_text("".join(f"{name} {count}\n" for name, count in sorted(found.items())))
        return 0
    ceilings = {name: int(count) for name, count in map(str.split, CEILINGS.read_text().splitlines())}
    above = {name: count for name, count in found.items() if count > ceilings.get(name, 0)}
    for name, count in sorted(above.items()):
        print(f"{name} has {count} lines; its ceiling in .ci/lines.txt is {ceilings.get(name, 0)}")
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
