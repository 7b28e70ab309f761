"""Of what a test is made: its own text, and that of all that it uses, as one digest.

A test uses a definition if its text names it: a function, a class, a constant, a fixture (by a parameter), and
whatever those name in turn, in our test modules. Files count if the text names them (a Java program, a folder of a Go
program, a page), and so do the locked versions of the clients that it imports. Names are resolved as they stand; a
class counts whole.

Comments, docstrings, annotations of parameters and import lines do not count, nor does what only starts and ends
processes (`STARTERS`), nor the product: Kafka's answers depend on none of them. Whether something is missing here is
looked at while Kafka is asked (witness.py).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import pathlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[3]
SUITES = ("compat_tests", "spark_it", "tests", "conftest")
STARTERS = frozenset(
    (
        "compat_tests.docker_kafka",
        "compat_tests.nodes.oncelog_cluster",
        "compat_tests.on_demand",
        "compat_tests.oncelog_server",
        "compat_tests.proxied",
        "compat_tests.proxy.oncelog_proxy",
        "compat_tests.proxy.ports",
        "compat_tests.proxy.running_proxy",
        "tests.common.class_archive",
        "tests.common.jars",
        "tests.common.local_broker",
        "tests.common.oncelog_process",
        "tests.common.process",
        "tests.common.recorded",
    )
)
"""Modules that start and end oncelog, its proxy and other processes: they decide whether there is an answer, not
which."""
LOCKS = ("requirements.lock", "requirements-spark.lock")
CLIENTS = {
    "aiokafka": "aiokafka",
    "confluent_kafka": "confluent-kafka",
    "delta": "delta-spark",
    "kafka": "kafka-python",
    "pyspark": "pyspark",
}
"""The packages whose versions count, by the name with which they are imported."""
CALLS_WITH_PATHS = frozenset(("Path", "glob", "joinpath", "rglob", "with_name"))
LEFT_OUT_OF_FOLDERS = frozenset(("__pycache__", "node_modules", "recorded"))
DIGEST_CHARS = 12

Node = tuple[str, str]
"""A module and a name in it; the name is "" for the whole module."""


@dataclass
class Definition:
    """A statement at the top of a module, and what it names."""

    text: str
    names: set[str] = field(default_factory=set)
    attributes: set[tuple[str, str]] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    """Strings that stand where a path is put together."""


class _Stripped(ast.NodeTransformer):
    """Without docstrings, imports, and the annotations of functions."""

    def visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not _says_nothing(one)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Import | ast.ImportFrom)


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
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            self._import(node)
        for statement in tree.body:
            self._look_for_fixtures(statement)
            self._place(statement)
        for statement in ast.fix_missing_locations(_Stripped().visit(tree)).body:
            self._define(statement)

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                self.imports[one.asname or one.name] = node.module or "", one.name
        elif isinstance(node, ast.Import):
            for one in node.names:
                self.imports[one.asname or one.name.partition(".")[0]] = one.name, ""

    def _place(self, statement: ast.stmt) -> None:
        decorators = getattr(statement, "decorator_list", [])
        line = min(one.lineno for one in (statement, *decorators))
        self.places.append((line, getattr(statement, "name", "")))

    def _look_for_fixtures(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ClassDef):
            methods = [one for one in statement.body if isinstance(one, ast.FunctionDef)]
            self.parameters[statement.name] = tuple(name for one in methods for name in _parameters(one))
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        self.parameters[statement.name] = _parameters(statement)
        for decorator in map(ast.unparse, statement.decorator_list):
            if decorator.startswith("pytest.fixture"):
                found = re.search(r"\bname='(\w+)'", decorator)
                name = found[1] if found else statement.name
                self.fixtures[name] = self.parameters[statement.name], "autouse=True" in decorator
                self.imports.setdefault(name, (self.name, statement.name))

    def _define(self, statement: ast.stmt) -> None:
        definition = Definition(ast.unparse(statement))
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                definition.names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                definition.attributes.add((node.value.id, node.attr))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                definition.strings.add(node.value)
            definition.paths.update(_paths(node))
        for name in _bound(statement):
            self.definitions.setdefault(name, []).append(definition)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    return tuple(one.arg for one in (*function.args.args, *function.args.kwonlyargs))


def _paths(node: ast.AST) -> Iterator[str]:
    """The strings of which a path is put together."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [node.right]
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        parts = node.args if called in CALLS_WITH_PATHS else []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module binds; of one that binds none, those that it names."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in names if isinstance(node.ctx, ast.Store)} or {node.id for node in names}


@functools.cache
def module(name: str) -> Module | None:
    """A module of our tests; None if it is somebody else's, or does not exist."""
    if name.partition(".")[0] not in SUITES:
        return None
    path = ROOT.joinpath(*name.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return Module(name, file)
    return None


class Ingredients:
    """Of what one test is made. `definitions` has all that were found, by module and name."""

    def __init__(self, test: Node, more: Iterable[Node] = ()) -> None:
        self.definitions: dict[Node, list[Definition]] = {}
        self.files: set[pathlib.Path] = set()
        self.clients: set[str] = set()
        self._conftests = list(_conftests(test[0]))
        self._waiting: list[Node] = [test, (test[0], "pytestmark"), *more]
        self._seen: set[Node] = set()
        places = [test[0], *self._conftests]
        every = [(one, name) for one in places for name, (_, always) in _fixtures(one).items() if always]
        self._waiting += every
        found = module(test[0])
        assert found is not None
        assert test[1] in found.definitions, test
        self._ask_for_fixtures(test[0], found.parameters.get(test[1], ()))
        while self._waiting:
            self._visit(*self._waiting.pop())

    @property
    def digest(self) -> str:
        """The digest of all of them."""
        texts = {f"{name}\n{one.text}" for (_, name), found in self.definitions.items() for one in found}
        texts |= {f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in self.files}
        texts |= {f"{client} {locked_versions().get(client)}" for client in self.clients}
        return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()[:DIGEST_CHARS]

    def _ask_for_fixtures(self, of: str, parameters: Iterable[str]) -> None:
        for name in parameters:
            for place in dict.fromkeys((of, *self._conftests)):
                found = module(place)
                if found is not None and name in (*found.fixtures, *found.imports):
                    self._waiting.append((place, name))
                    break

    def _visit(self, name: str, wanted: str) -> None:
        if (name, wanted) in self._seen:
            return
        self._seen.add((name, wanted))
        if name.partition(".")[0] in CLIENTS:
            self.clients.add(CLIENTS[name.partition(".")[0]])
        found = module(name)
        if found is None or name in STARTERS or name.rpartition(".")[0] in STARTERS:
            return
        if not wanted:
            self._waiting += [(name, one) for one in found.definitions]
        if wanted in found.fixtures:
            self._ask_for_fixtures(name, found.fixtures[wanted][0])
        if wanted in found.definitions:
            self.definitions[name, wanted] = found.definitions[wanted]
            for one in found.definitions[wanted]:
                self._visit_named(found, one)
        elif wanted in found.imports and found.imports[wanted] != (name, wanted):
            self._follow(*found.imports[wanted])
        elif wanted:
            self._waiting.append((f"{name}.{wanted}", ""))

    def _follow(self, of: str, wanted: str) -> None:
        """What an import names: a module, or something in one."""
        inner = f"{of}.{wanted}" if wanted else of
        self._waiting.append((inner, "") if module(inner) is not None else (of, wanted))

    def _visit_named(self, found: Module, one: Definition) -> None:
        qualified = set()
        for base, attribute in one.attributes:
            target = found.imports.get(base)
            inner = None if target is None else ".".join(filter(None, target))
            if inner is not None and module(inner) is not None:
                qualified.add(base)
                self._waiting.append((inner, attribute))
        for name in one.names - qualified:
            if name in found.definitions or name in found.imports:
                self._waiting.append((found.name, name))
        for text in one.strings:
            if re.fullmatch(rf"({'|'.join(SUITES)})(\.\w+)+", text):
                self._waiting.append((text, ""))
            elif text in found.fixtures:  # getfixturevalue("…")
                self._waiting.append((found.name, text))
            elif "." in text:
                self._add_file(found, text)
        for text in one.paths:
            self._add_files(found, text)

    def _add_file(self, found: Module, text: str) -> None:
        if not text.isprintable() or len(text) > 100:
            return
        for folder in (found.folder, ROOT):
            path = folder / text
            if path.is_file() and path.is_relative_to(ROOT):
                self._add_path(path.resolve())

    def _add_files(self, found: Module, text: str) -> None:
        if not text.strip("./") or text.startswith("/"):
            return
        for folder in dict.fromkeys((found.folder, ROOT)):
            if folder == ROOT and "/" not in text:
                continue
            for path in folder.glob(text):
                inside = path.rglob("*") if path.is_dir() else (path,)
                for one in inside:
                    if one.is_file() and not LEFT_OUT_OF_FOLDERS & set(one.parts):
                        self._add_path(one.resolve())

    def _add_path(self, path: pathlib.Path) -> None:
        inner = path.relative_to(ROOT)
        name = ".".join(inner.with_suffix("").parts)
        if path.suffix == ".py" and inner.parts[0] in SUITES:
            self._waiting.append((name, ""))
        else:
            self.files.add(path)


@functools.cache
def locked_versions() -> dict[str, str]:
    """The versions of the packages that the lock files pin, by their names."""
    found: dict[str, str] = {}
    for name in LOCKS:
        for line in (ROOT / name).read_text().splitlines():
            package, equal, version = line.partition("==")
            if equal and not line.startswith((" ", "#")):
                found.setdefault(package, version.split()[0])
    return found


def _conftests(name: str) -> Iterator[str]:
    """The modules with fixtures for a test's module, the nearest first."""
    parts = name.split(".")[:-1]
    while parts:
        if module(".".join([*parts, "conftest"])) is not None:
            yield ".".join([*parts, "conftest"])
        parts.pop()
    yield "conftest"


def _fixtures(name: str) -> dict[str, tuple[tuple[str, ...], bool]]:
    found = module(name)
    return {} if found is None else found.fixtures
