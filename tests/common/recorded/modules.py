"""The test modules of a checkout as text: what each defines at its top, and what a definition names."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterator
from typing import Any

SUITES = ("compat_tests", "spark_it", "tests", "conftest")
LOCKS = ("requirements.lock", "requirements-spark.lock")
CALLS_WITH_PATHS = frozenset(("Path", "glob", "joinpath", "rglob", "with_name"))
NOT_IN_TEXT = frozenset(("ctx", "kind", "type_comment", "type_params"))
Node = tuple[str, str]
"""A module and a name in it; the name is "" for the whole module."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition:
    """A statement at the top of a module, and what it names."""

    def __init__(self, statement: ast.stmt) -> None:
        self.names: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        """Such as ("facts", "IS_4_4")."""
        self.strings: set[str] = set()
        self.paths: set[str] = set()
        """Strings that stand where a path is put together."""
        self.imports: dict[str, Node] = {}
        self.text = self._read(statement)

    def _read(self, value: Any) -> str:
        """The syntax as text, without what does not count: docstrings, imports, annotations of functions. It is the
        same in each version of Python, which that of `ast.unparse` is not.
        """
        if isinstance(value, list):
            return f"[{','.join(self._read(one) for one in value if not self._says_nothing(one))}]"
        if not isinstance(value, ast.AST):
            return repr(value)
        self._look(value)
        left_out = NOT_IN_TEXT
        if isinstance(value, Function):
            left_out = NOT_IN_TEXT | {"returns"}
        elif isinstance(value, ast.arg):
            left_out = NOT_IN_TEXT | {"annotation"}
        fields = (
            f"{name}={self._read(found)}"
            for name, found in ast.iter_fields(value)
            if name not in left_out and found is not None and found != []
        )
        return f"{type(value).__name__}({','.join(fields)})"

    def _says_nothing(self, statement: Any) -> bool:
        if isinstance(statement, ast.ImportFrom):
            for one in statement.names:
                self.imports[one.asname or one.name] = statement.module or "", one.name
        elif isinstance(statement, ast.Import):
            for one in statement.names:
                self.imports[one.asname or one.name.partition(".")[0]] = one.name, ""
        else:
            return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        return True

    def _look(self, node: ast.AST) -> None:
        parts: list[ast.expr] = []
        if isinstance(node, ast.Name):
            self.names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            self.attributes.add((node.value.id, node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.strings.add(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [node.right]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            parts = node.args if called in CALLS_WITH_PATHS else []
        self.paths.update(
            part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )


class Module:
    """The definitions and imports of one file."""

    def __init__(self, name: str, path: pathlib.Path) -> None:
        self.name = name
        self.folder = path.parent
        self.definitions: dict[str, list[Definition]] = {}
        self.imports: dict[str, Node] = {}
        self.fixtures: dict[str, tuple[tuple[str, ...], bool]] = {}
        """By the name of a fixture, its parameters, and whether every test uses it."""
        self.parameters: dict[str, tuple[str, ...]] = {}
        """Those of its functions, and of its classes' methods together."""
        self.places: list[tuple[int, str]] = []
        """The first line of each function and class at the top, and its name."""
        for statement in ast.parse(path.read_text()).body:
            decorators = getattr(statement, "decorator_list", [])
            line = min(one.lineno for one in (statement, *decorators))
            self.places.append((line, getattr(statement, "name", "")))
            self._look_for_fixtures(statement)
            # An import at the top, too, and those below an `if`, are imports of a definition.
            definition = Definition(ast.If(ast.Constant(True), [statement], []))
            self.imports |= definition.imports
            for bound in _bound(statement):
                self.definitions.setdefault(bound, []).append(definition)

    def _look_for_fixtures(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ClassDef):
            methods = [one for one in statement.body if isinstance(one, Function)]
            self.parameters[statement.name] = tuple(name for one in methods for name in _parameters(one))
        elif isinstance(statement, Function):
            self.parameters[statement.name] = _parameters(statement)
            for decorator in map(ast.unparse, statement.decorator_list):
                if decorator.startswith("pytest.fixture"):
                    always = "autouse=True" in decorator
                    self.fixtures[statement.name] = self.parameters[statement.name], always


def _parameters(function: Function) -> tuple[str, ...]:
    return tuple(one.arg for one in (*function.args.args, *function.args.kwonlyargs))


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module binds; of one that binds none, those that it names."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in names if isinstance(node.ctx, ast.Store)} or {node.id for node in names}


class Tree:
    """The test modules of a checkout, each parsed once."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module of our tests; None if it is somebody else's, or does not exist."""
        if name not in self._modules:
            self._modules[name] = self._parse(name) if name.partition(".")[0] in SUITES else None
        return self._modules[name]

    def _parse(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return Module(name, file)
        return None

    def name_of(self, path: pathlib.Path) -> str:
        """The name of the module in a file; "" if it is none of our tests."""
        if not path.is_relative_to(self.root):
            return ""
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__") if parts[0] in SUITES else ""

    def conftests(self, name: str) -> Iterator[str]:
        """The modules with fixtures for the tests of a module, the nearest first."""
        parts = name.split(".")[:-1]
        while parts:
            if self.module(".".join([*parts, "conftest"])) is not None:
                yield ".".join([*parts, "conftest"])
            parts.pop()
        yield "conftest"

    @functools.cached_property
    def locked_versions(self) -> dict[str, str]:
        """The versions of the packages that the lock files pin, by their names."""
        found: dict[str, str] = {}
        for file in (self.root / name for name in LOCKS):
            for line in file.read_text().splitlines() if file.exists() else ():
                package, equal, version = line.partition("==")
                if equal and not line.startswith((" ", "#")):
                    found.setdefault(package, version.split()[0])
        return found
