"""Of what a test is made: its own text, and that of all that it uses, as one digest.

A test uses a definition if its text names it: a function, a class, a constant, a fixture (by a parameter), and
whatever those name in turn, in our test modules. Files count if the text names them (a Java program, a folder of a Go
program, a page), and so do the locked versions of the clients that it imports. Names are resolved as they stand; a
class counts whole.

Comments, docstrings, annotations of parameters and import lines do not count, nor does what only starts and ends
processes (`STARTERS`), nor the product: Kafka's answers depend on none of them. Only where Kafka reads what oncelog
has written, the folders of the product count that the test names. Whether something is missing here is looked at
while Kafka is asked (witness.py).
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.common.recorded.modules import SUITES, Definition, Module, Node, Tree

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
        "tests.common.exchanges",
        "tests.common.jars",
        "tests.common.local_broker",
        "tests.common.oncelog_process",
        "tests.common.process",
        "tests.common.recorded",
    )
)
"""Modules that start and end oncelog, its proxy and other processes: they decide whether there is an answer, not
which."""
CLIENTS = {
    "aiokafka": "aiokafka",
    "confluent_kafka": "confluent-kafka",
    "delta": "delta-spark",
    "kafka": "kafka-python",
    "pyspark": "pyspark",
}
"""The packages whose versions count, by the name with which they are imported."""
LEFT_OUT_OF_FOLDERS = frozenset(("__pycache__", "node_modules", "recorded"))
DIGEST_CHARS = 12
NAME_OF_A_MODULE = re.compile(rf"({'|'.join(SUITES)})(\.\w+)+")
PATH_CHARS_MAX = 100


@dataclass
class Links:
    """What one definition leads to."""

    nodes: set[Node] = field(default_factory=set)
    files: set[pathlib.Path] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    """Those that may be names of fixtures: ``getfixturevalue("…")``."""


class Ingredients:
    """Of what one test is made. `definitions` has all that were found, by module and name."""

    def __init__(self, library: Library, test: Node, product: Sequence[str] = ()) -> None:
        """Find those of a test; all that is in the files and folders `product` counts, too."""
        self.definitions: dict[Node, list[Definition]] = {}
        self.files: set[pathlib.Path] = set()
        self._clients: set[str] = set()
        self._library = library
        self._tree = library.tree
        self._places = [test[0], *self._tree.conftests(test[0])]
        """Where the fixtures are: the nearest one of a name counts, also for fixtures farther off."""
        self._waiting: list[Node] = [test, (test[0], "pytestmark")]
        self._seen: set[Node] = set()
        for place in self._places:
            fixtures = getattr(self._tree.module(place), "fixtures", {})
            self._waiting += [(place, name) for name, (_, always) in fixtures.items() if always]
        module = self._tree.module(test[0])
        assert module is not None
        assert test[1] in module.definitions, test
        for name in module.parameters.get(test[1], ()):
            self._ask_for_fixture(name)
        for path in _modules_in(self._tree.root / one for one in product):
            for name, found in library.product_module(path).definitions.items():
                self.definitions[str(path), name] = found
        while self._waiting:
            node = self._waiting.pop()
            if node not in self._seen:
                self._seen.add(node)
                self._visit(*node)

    @property
    def digest(self) -> str:
        """The digest of all of them."""
        texts = {f"{name}\n{one.text}" for (_, name), found in self.definitions.items() for one in found}
        texts |= {f"{path.name} {self._library.digest_of(path)}" for path in self.files}
        texts |= {f"{client} {self._tree.locked_versions.get(client)}" for client in self._clients}
        return hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()[:DIGEST_CHARS]

    def _ask_for_fixture(self, name: str, asking: Node | None = None) -> None:
        """Add the fixture of this name; one that asks for its own name gets that of a place farther off."""
        places = self._places
        if asking is not None and asking[1] == name:
            places = places[places.index(asking[0]) + 1 :] if asking[0] in places else []
        for place in places:
            module = self._tree.module(place)
            if module is not None and (name in module.fixtures or name in module.imports):
                self._waiting.append((place, name))
                break

    def _visit(self, of: str, name: str) -> None:
        if (package := of.partition(".")[0]) in CLIENTS:
            self._clients.add(CLIENTS[package])
        module = self._tree.module(of)
        if module is None or is_starter(of):
            return
        if not name:
            self._waiting += [(of, one) for one in module.definitions]
        elif name in module.definitions:
            for parameter in module.fixtures.get(name, ((), False))[0]:
                self._ask_for_fixture(parameter, (of, name))
            self.definitions[of, name] = module.definitions[name]
            links = self._library.links(module, name)
            self._waiting += links.nodes
            self.files |= links.files
            for text in links.strings:
                self._ask_for_fixture(text)
        elif name in module.imports:
            self._waiting.append(self._library.imported(module.imports[name]))
        else:
            self._waiting.append((f"{of}.{name}", ""))


def _modules_in(places: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    for place in places:
        assert place.exists(), place
        yield from sorted(place.rglob("*.py")) if place.is_dir() else (place,)


class Library:
    """What each definition of a tree leads to, looked up once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._links: dict[Node, Links] = {}
        self._digests: dict[pathlib.Path, str] = {}
        self._product: dict[pathlib.Path, Module] = {}

    def digest_of(self, path: pathlib.Path) -> str:
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[path]

    def product_module(self, path: pathlib.Path) -> Module:
        if path not in self._product:
            self._product[path] = Module("", path)
        return self._product[path]

    def imported(self, target: Node) -> Node:
        """What an import names: a module, or something in one."""
        inner = ".".join(filter(None, target))
        return (inner, "") if self.tree.module(inner) is not None else target

    def links(self, module: Module, name: str) -> Links:
        """What the definitions of a name lead to."""
        node = module.name, name
        if node not in self._links:
            self._links[node] = Links()
            for one in module.definitions[name]:
                self._add_names(module, one, self._links[node])
                self._add_texts(module, one, self._links[node])
        return self._links[node]

    def _add_names(self, module: Module, one: Definition, links: Links) -> None:
        qualified = set()
        for base, attribute in one.attributes:
            if base in module.imports:
                of, whole = self.imported(module.imports[base])
                if not whole and self.tree.module(of) is not None:
                    qualified.add(base)
                    links.nodes.add((of, attribute))
        known = one.names - qualified
        links.nodes |= {
            (module.name, name) for name in known if name in module.definitions or name in module.imports
        }

    def _add_texts(self, module: Module, one: Definition, links: Links) -> None:
        for text in one.strings:
            if text.isidentifier():
                links.strings.add(text)
            elif NAME_OF_A_MODULE.fullmatch(text):
                links.nodes.add((text, ""))
            elif "." in text and text.isprintable() and len(text) <= PATH_CHARS_MAX:
                for folder in (module.folder, self.tree.root):
                    self._add_file(folder / text, links)
        for text in one.paths:
            if text.strip("./") and not text.startswith("/"):
                for folder in (module.folder, *([self.tree.root] if "/" in text else [])):
                    self._add_matching(folder, text, links)

    def _add_matching(self, folder: pathlib.Path, pattern: str, links: Links) -> None:
        for path in folder.glob(pattern):
            for one in path.rglob("*") if path.is_dir() else (path,):
                if not LEFT_OUT_OF_FOLDERS & set(one.parts):
                    self._add_file(one, links)

    def _add_file(self, path: pathlib.Path, links: Links) -> None:
        if not path.is_file() or not (path := path.resolve()).is_relative_to(self.tree.root):
            return
        if path.suffix == ".py" and (name := self.tree.name_of(path)):
            links.nodes.add((name, ""))
        else:
            links.files.add(path)


def is_starter(name: str) -> bool:
    """Whether a module, or the package it is in, is one of STARTERS."""
    return name in STARTERS or name.rpartition(".")[0] in STARTERS
