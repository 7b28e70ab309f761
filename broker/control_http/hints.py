"""`type_hints`: of functions and classes whose modules import some of the types for type checkers only."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
import typing
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any


def type_hints(owner: Any) -> dict[str, Any]:
    """Return what `typing.get_type_hints` does, which alone raises NameError for names under ``TYPE_CHECKING``."""
    return typing.get_type_hints(owner, localns=dict(_names_for_types(owner.__module__)))


@cache
def _names_for_types(module_name: str) -> Mapping[str, Any]:
    """Return what a module imports under ``if TYPE_CHECKING:``."""
    module = sys.modules[module_name]
    found: dict[str, Any] = {}
    for block in ast.parse(inspect.getsource(module)).body:
        if (
            isinstance(block, ast.If)
            and isinstance(block.test, ast.Name)
            and block.test.id == "TYPE_CHECKING"
        ):
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module is not None:
                    imported = importlib.import_module(node.module)
                    for alias in node.names:
                        found[alias.asname or alias.name] = getattr(imported, alias.name)
    return MappingProxyType({name: one for name, one in found.items() if not hasattr(builtins, name)})
