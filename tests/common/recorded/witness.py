"""Looks, while Kafka is asked, whether something takes part that `Ingredients` did not find.

It sees which functions of our test modules are called, which files of the repository are opened, and which are named
to a process that begins. A part that nobody found could change without Kafka being asked again.
"""

from __future__ import annotations

import bisect
import pathlib
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from tests.common.recorded.ingredients import LEFT_OUT_OF_FOLDERS, Ingredients, is_starter
from tests.common.recorded.modules import SUITES, Tree

PLACES = (*SUITES, "docs")
NOT_LOOKED_AT = ("pom.xml",)


USED_BY_STARTERS = frozenset(("tests.common.threads",))
"""What a process is ended with. It counts only for tests that reach it otherwise."""


class Witness:
    """Between `begin` and `end`, all that takes part. One is made for a process, since a hook for audits stays."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._called: set[CodeType] = set()
        self._named: set[str] = set()
        self._looks = False
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        self._called.clear()
        self._named.clear()
        self._looks = True
        threading.settrace(self._see)
        sys.settrace(self._see)

    def end(self, found: Ingredients) -> list[str]:
        """Stop looking; returns what took part and was not found."""
        sys.settrace(None)
        threading.settrace(None)
        self._looks = False
        # Other threads go on, and add to the sets.
        called, named = self._called.copy(), self._named.copy()
        known = {(name, definition) for name, definition in found.definitions}
        missing = {
            f"{name}.{top}"
            for name, top in map(self._definition_of, called)
            if name and not is_starter(name) and name not in USED_BY_STARTERS and (name, top) not in known
        }
        missing |= {
            str(path.relative_to(self._tree.root))
            for path in map(pathlib.Path, named)
            if path.is_file() and path.suffix != ".py" and path not in found.files and self._is_ours(path)
        }
        return sorted(missing)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        self._called.add(frame.f_code)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._looks:
            return
        if event == "open" and isinstance(arguments[0], str):
            self._named.add(arguments[0])
        elif event == "subprocess.Popen":
            self._named.update(one for one in map(str, arguments[1] or ()) if one.startswith("/"))

    def _is_ours(self, path: pathlib.Path) -> bool:
        if not path.is_relative_to(self._tree.root) or path.name in NOT_LOOKED_AT:
            return False
        inner = path.relative_to(self._tree.root).parts
        return inner[0] in PLACES and not LEFT_OUT_OF_FOLDERS & set(inner)

    def _definition_of(self, code: CodeType) -> tuple[str, str]:
        """The module and the definition at its top in which the code stands; empty for somebody else's."""
        name = self._tree.name_of(pathlib.Path(code.co_filename))
        found = self._tree.module(name)
        if found is None or code.co_name == "<module>":
            return "", ""
        at = bisect.bisect_right(found.places, code.co_firstlineno, key=lambda place: place[0]) - 1
        top = found.places[at][1] if at >= 0 else ""
        return (name, top) if top and not top.startswith("pytest_") else ("", "")
