"""The recipes of the docs about tests, as files of projects."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("testing", "testing-clients", "share-groups", "security", "faults", "nodes", "prove")
    ),
    ROOT / "README.md",
)

_HEADING = re.compile(r"^##+ (.+)$")
_FILE = re.compile(r"^# ([\w-]+\.(py|toml|properties))$")


class Recipe(NamedTuple):
    """One section's files."""

    title: str
    files: dict[str, str]

    def write(self, folder: pathlib.Path) -> None:
        """Write the files into a folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text)


def all_recipes() -> dict[str, Recipe]:
    """Return the recipes that have a test, of all `PAGES`, by heading."""
    found: dict[str, Recipe] = {}
    for page in PAGES:
        tested = {title: one for title, one in recipes(page).items() if any(map(is_test, one.files))}
        assert not found.keys() & tested.keys(), f"{page.name}: {found.keys() & tested.keys()} stands twice"
        found |= tested
    return found


def is_test(name: str) -> bool:
    """Whether pytest collects a file of that name."""
    return name.startswith("test_") and name.endswith(".py")


def recipes(page: pathlib.Path) -> dict[str, Recipe]:
    """Return the sections of a page that have files, by heading. What stands above the first one is "Quick start"."""
    found = {"Quick start": Recipe("Quick start", {})}
    title, name = "Quick start", ""
    for line in page.read_text().splitlines():
        if heading := _HEADING.match(line):
            title, name = heading[1], ""
            found[title] = Recipe(title, {})
        elif line and not line.startswith("    "):
            name = ""
        elif line.startswith("    ") and (file := _FILE.match(line[4:])):
            name = file[1]
            assert name not in found[title].files, f"{title}: {name} stands there twice"
            found[title].files[name] = line[4:] + "\n"
        elif name:
            found[title].files[name] += line[4:] + "\n"
    return {title: recipe for title, recipe in found.items() if recipe.files}
