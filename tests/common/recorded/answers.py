"""The files with what Kafka answered: one for each file of tests, as text.

    # Kafka 4.4.0
    0348cf7ca51e test_versions[4]
            -
            ('Fetch v4', {'throttle_time_ms': 0, …})

A line without a tab is a test that Kafka has passed, after the digest of what it was made of (ingredients.py). A dash
begins what a comparison in it observed, and a line with a tab is one observation. The tests stand in the order of
their names.
"""

from __future__ import annotations

import ast
import base64
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Observations = list[Any]


@dataclass
class Entry:
    """What is recorded of one test."""

    digest: str
    comparisons: list[list[str]] = field(default_factory=list)
    """Of each comparison, in their order, the lines of its observations."""

    def observations(self, number: int) -> Observations | None:
        """What a comparison of the test observed; None if it is not recorded."""
        if number >= len(self.comparisons):
            return None
        return [ast.literal_eval(line) for line in self.comparisons[number]]


def as_lines(observations: Iterable[Any]) -> list[str]:
    """Give the observations as they stand in a file. Raises ValueError for one that is no literal."""
    return [_as_literal(one) for one in observations]


def _as_literal(value: Any) -> str:
    """As `repr`, with fewer spaces."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{_as_literal(key)}:{_as_literal(one)}' for key, one in value.items())}}}"
    if type(value) is list:
        return f"[{','.join(map(_as_literal, value))}]"
    if type(value) is tuple:
        return f"({''.join(f'{_as_literal(one)},' for one in value)})"
    ast.literal_eval(text := repr(value))
    return text


BASE64 = b"base64"
"""Before what is no text."""
LINE_BYTES = 90


def as_observations(output: bytes) -> Observations:
    """The output of a program, line by line if it is text."""
    try:
        return output.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        parts = (output[at : at + LINE_BYTES] for at in range(0, len(output), LINE_BYTES))
        return [BASE64, *(base64.b64encode(part).decode() for part in parts)]


def as_bytes(observations: Observations) -> bytes:
    """The output of which they were made."""
    if observations[:1] == [BASE64]:
        return b"".join(map(base64.b64decode, observations[1:]))
    return "".join(observations).encode()


class Answers:
    """One file with what Kafka answered. A file that is missing, or of another version of Kafka, has none."""

    def __init__(self, path: pathlib.Path, version: str) -> None:
        self._path = path
        self._first_line = f"# Kafka {version}"
        self.entries: dict[str, Entry] = {}
        if path.exists():
            self._read(path.read_text().split("\n"))

    def _read(self, lines: list[str]) -> None:
        if lines[0] != self._first_line:
            return
        entry = Entry("")
        for line in lines[1:]:
            if line == "\t-":
                entry.comparisons.append([])
            elif line.startswith("\t"):
                entry.comparisons[-1].append(line[1:])
            elif line:
                digest, _, test = line.partition(" ")
                entry = self.entries[test] = Entry(digest)

    def write(self) -> None:
        """Write the file anew; without entries, remove it."""
        if not self.entries:
            self._path.unlink(missing_ok=True)
            return
        lines = [self._first_line]
        for test, entry in sorted(self.entries.items()):
            lines.append(f"{entry.digest} {test}")
            for observations in entry.comparisons:
                lines += ["\t-", *(f"\t{line}" for line in observations)]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join(lines) + "\n")
