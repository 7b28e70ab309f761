"""The lines of the output of ``--check`` beside those of the undisturbed runs: each is an output, in any order."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class ChangedLines(NamedTuple):
    """The difference of two outputs."""

    missing: Counter[str]
    doubled: Counter[str]
    """Lines that came more often."""
    unknown: Counter[str]
    """Lines that no undisturbed run has."""

    @property
    def signed(self) -> tuple[str, ...]:
        """All of them: those that are missing begin with ``-``, the others with ``+``."""
        more = self.doubled + self.unknown
        return (*(f"-{one}" for one in self.missing.elements()), *(f"+{one}" for one in more.elements()))

    def __bool__(self) -> bool:
        return any(self[:])


def changed_lines(before: str | None, after: str | None) -> ChangedLines:
    """Compare two outputs."""
    wanted, found = (Counter((text or "").splitlines()) for text in (before, after))
    more = found - wanted
    doubled = Counter({line: count for line, count in more.items() if line in wanted})
    return ChangedLines(wanted - found, doubled, more - doubled)


def listed_lines(what: str, lines: Counter[str], shown: int) -> str:
    """Return the first lines as text; an empty one if there is none."""
    if not lines:
        return ""
    count = lines.total()
    first = "; ".join(list(lines.elements())[:shown])
    more = "; ..." if count > shown else ""
    return f"{count} {'line' if count == 1 else 'lines'} of --check {what}: {first}{more}"
