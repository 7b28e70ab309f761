"""The blocks of docs/how-to/mistakes.md: lines of the zoo's programs, the wrong ones and those that mend them."""

from __future__ import annotations

import re
from typing import NamedTuple

from compat_tests.prove.places import PROGRAMS, ROOT
from oncelog.broker.prove.judging.mistakes import anchor

PAGE = ROOT / "docs" / "how-to" / "mistakes.md"
_HEADING = re.compile(r"^## (.+)$")
_FILE = re.compile(r"^    (?:#|//) (\w+\.(?:py|mjs))$")
_BETWEEN = "    ..."


class Block(NamedTuple):
    """A block of the page."""

    section: str
    """The anchor of its heading."""
    file: str
    hunks: tuple[tuple[str, str], ...]
    """Lines as the program has them, and as they are mended: the same where the block mends nothing."""

    @property
    def mends(self) -> bool:
        """Whether it has lines that mend."""
        return any(wrong != right for wrong, right in self.hunks)

    def mended(self) -> str:
        """The program's text, mended."""
        text = (PROGRAMS / self.file).read_text()
        for wrong, right in self.hunks:
            assert text.count(wrong) == 1, f"{self.file} must have these lines once:\n{wrong}"
            text = text.replace(wrong, right)
        return text


def sections() -> list[str]:
    """The anchors of the page's sections."""
    return [anchor(found[1]) for line in PAGE.read_text().splitlines() if (found := _HEADING.match(line))]


def blocks() -> list[Block]:
    """Every block of the page that names a program."""
    found: list[Block] = []
    heading, section, lines, file = "", "", [""], ""
    for line in [*PAGE.read_text().splitlines(), "end"]:
        if title := _HEADING.match(line):
            heading = anchor(title[1])
        if name := _FILE.match(line):
            section, file, lines = heading, name[1], []
        elif file and (line.startswith("    ") or not line):
            lines.append(line)
        elif file:
            found.append(Block(section, file, _hunks(lines)))
            file = ""
    return found


def _hunks(lines: list[str]) -> tuple[tuple[str, str], ...]:
    hunks: list[list[str]] = [[]]
    for line in lines:
        if line == _BETWEEN:
            hunks.append([])
        elif line:
            hunks[-1].append(line[4:])
    return tuple(
        (
            "".join(f"{line[2:]}\n" for line in hunk if line[0] in " -"),
            "".join(f"{line[2:]}\n" for line in hunk if line[0] in " +"),
        )
        for hunk in hunks
    )
