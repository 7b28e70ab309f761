"""Makes docs/contributing/files.md of the modules' first sentences: ``python -m tests.files_page``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOPS = ("oncelog", "broker", "coordinator", "wire", "spark_it", "bench", "tests/harness")
LEFT_OUT = ("broker/embedded/sync_api", "wire/messages", "spark_it/tests")
"""What is made of other code, declarations alike for every API, and tests."""

HEAD = """\
# Files

What stands where, in the words of each module: the first sentence of its docstring. `make docs` makes this page, and a
test compares. [Architecture](architecture.md) says how the parts go together. Not listed are `wire/messages`, where a
module for each API declares its request and its response; `broker/embedded/sync_api`, which `.ci/unasync.py` makes of
`async_api`; and tests, of which `tests/README.md` and `compat_tests/README.md` tell.
"""


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring, in one line, as a cell of a table."""
    sentence = re.split(r"(?<=[.?!])\s+(?=\S)|\n\n", docstring.strip(), maxsplit=1)[0]
    return " ".join(sentence.split()).replace("``", "`").replace("|", "\\|")


def modules(top: str) -> list[Path]:
    """Return the modules below a folder that have anything to say, in order; links are not followed."""
    found = [
        path
        for path in sorted((ROOT / top).rglob("*.py"))
        if not any(path.relative_to(ROOT).is_relative_to(folder) for folder in LEFT_OUT)
        and not any(parent.is_symlink() for parent in path.parents)
    ]
    return [path for path in found if ast.parse(path.read_text()).body]


def page() -> str:
    """Return the text of docs/contributing/files.md: a section for each folder."""
    sections: dict[Path, list[str]] = {}
    abouts: dict[Path, str] = {}
    for path in (path for top in TOPS for path in modules(top)):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, f"{path} has no docstring"
        about = first_sentence(docstring)
        rows = sections.setdefault(path.parent, [])
        if path.name == "__init__.py":
            abouts[path.parent] = about
        else:
            rows.append(f"| `{path.name}` | {about} |\n")
    text = HEAD
    for folder, rows in sections.items():
        text += f"\n## {folder.relative_to(ROOT)}\n"
        if folder in abouts:
            text += f"\n{abouts[folder]}\n"
        if rows:
            text += "\n| file | what |\n|---|---|\n" + "".join(rows)
    return text


if __name__ == "__main__":
    print(page(), end="")
