"""Reads docstrings for the descriptions of routes and of what they return."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import NamedTuple


class Description(NamedTuple):
    """A docstring: its first sentence, in one line, and all of it."""

    summary: str
    text: str


def description(function: Callable[..., object]) -> Description:
    """Return an operation's description, as Markdown."""
    text = _markdown(inspect.getdoc(function) or "")
    summary = re.split(r"(?<=\.)\s", text, maxsplit=1)[0].rstrip(".")
    return Description(" ".join(summary.split()), text)


def attribute_docstrings(kind: type) -> dict[str, str]:
    """Return the texts that stand below the attributes of a class, by name. None without its source."""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for attribute, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[attribute.target.id] = _markdown(" ".join(below.value.value.split()))
    return found


def _markdown(text: str) -> str:
    return text.replace("``", "`")
