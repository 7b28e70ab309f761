"""Lets Python import oncelog as it is.

pytest rewrites the assertions of every module of a project that has a plugin, so that a failed one shows its values.
For the hundred and fifty modules of a broker that takes a second or two, in each run that finds no cache (as in CI),
and nobody reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def install_plain_imports() -> Callable[[], None]:
    """Find the modules of oncelog before pytest does. Returns a function that ends it."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)

    def remove() -> None:
        with suppress(ValueError):
            sys.meta_path.remove(finder)

    return remove


class _Finder:
    """Finds ``oncelog.…`` where Python does."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("oncelog."):
            return None
        return PathFinder.find_spec(fullname, path, target)
