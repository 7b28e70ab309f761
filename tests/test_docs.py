"""Every path, module, setting, class, member, function and constant between backticks in the docs exists."""

from __future__ import annotations

import json
import pathlib
import re
from fnmatch import fnmatch
from functools import cache

import pytest

from oncelog.broker.config.broker_config import is_known

ROOT = pathlib.Path(__file__).parents[1]
MADE_OF_NAMES = ("glossary.md", "files.md")
"""What lists names that are not to be used, and what quotes docstrings, which name Kafka's classes."""
PAGES = (
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in MADE_OF_NAMES),
    ROOT / "bench" / "history.md",
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    ROOT / "compat_tests" / "README.md",
    ROOT / "spark_it" / "README.md",
)
TOP = ("oncelog", "wire", "coordinator", "broker", "spark_it", "bench", "tests", "compat_tests")

THEIRS = (
    # Python, Trio, uv
    {"__path__", "random.Random", "sys.settrace", "f_trace_opcodes", "send_all", "receive_some", "recv_into"}
    | {"uv.lock"}
    | {"faststream.kafka", "send_offsets_to_transaction"}
    | {"GroupTransactSession", "processing_guarantee"}
    # Kafka, Spark
    | {
        "CoordinatorOperationExceptionHelper",
        "getErrorResponse",
        "Errors",
        "DumpLogSegments",
        "exactly_once_v2",
    }
    | {"All", "Headers.lastHeader", "IdempotentWrite"}
    | {"current_timestamp", "foreachBatch", "maxRecordsPerPartition"}
    # OpenTelemetry
    | {"MetricsData"}
)
"""Names that others define."""

PATH = re.compile(r"(?!/)[\w.*<>/-]*(/[\w.*<>-]*|\.(py|md|toml|java|xml|lock))")
MODULE = re.compile(rf"({'|'.join(TOP)})(\.\w+)+")
SETTING = re.compile(r"[a-z]+(\.[a-z]+)+")
IDENTIFIER = re.compile(r"(\w+\.)?\w*([a-z][A-Z]|\w_\w|[A-Z][a-z])\w*")


def named(text: str) -> set[str]:
    """The names between backticks, of which a setting stands without its value; examples of code are left out."""
    prose = re.sub(r"(?m)^    .*$", "", text)
    found = {name.partition("=")[0] for name in re.findall(r"`([^`\n]+)`", prose)}
    return {name for name in found if not re.search(r"[ …:$~]", name)} - THEIRS


@cache
def paths() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for top in TOP for path in (ROOT / top).rglob("*")]


@cache
def sources() -> dict[str, str]:
    """Path -> text of the Python files, but this one."""
    own = pathlib.Path(__file__).relative_to(ROOT).as_posix()
    return {path: (ROOT / path).read_text() for path in paths() if path.endswith(".py") and path != own}


@cache
def definitions() -> dict[str, set[str]]:
    """Name -> the files that define it: a class, a function, a variable or an attribute."""
    found: dict[str, set[str]] = {}
    type_ = r"(?:[\w.\"\[\]()]|, | \| )+"
    defined = re.compile(
        r"^ *(?:async )?(?:class|def) (\w+)"
        rf"|^ *(?:self\.)?(\w+(?:, \w+)*)(?:: {type_})? = "
        rf"|^ *(?:self\.)?(\w+): {type_}$",
        re.MULTILINE,
    )
    for path, text in sources().items():
        for names in defined.findall(text):
            for name in "".join(names).split(", "):
                found.setdefault(name, set()).add(path)
    return found


@cache
def strings_and_arguments() -> set[str]:
    """Whatever stands somewhere as a whole string, or is an argument with a default."""
    found = re.compile(r"""["'](?=([^"'\n]+)["'])|[(,] ?(\w+): \w+ = """)
    return {name for text in sources().values() for pair in found.findall(text) for name in pair if name}


def path_exists(name: str, page: pathlib.Path) -> bool:
    """Whether a path exists: from the root, from the page's folder, or as the end of a path below ``TOP``."""
    pattern = re.sub(r"<\w+>", "*", name).rstrip("/")
    if any(list(folder.glob(pattern)) for folder in (ROOT, page.parent)):
        return True
    end = f"*/{pattern}/*" if name.endswith("/") else f"*/{pattern}"
    return any(fnmatch(path, end) for path in paths())


def module_exists(name: str) -> bool:
    """Whether ``package.module`` exists, or ``package.module.name`` where the module defines or imports the name."""
    place = ROOT / name.replace(".", "/")
    if place.is_dir() or place.with_suffix(".py").exists():
        return True
    files = (place.parent.with_suffix(".py"), place.parent / "__init__.py")
    return any(file.exists() and re.search(rf"\b{place.name}\b", file.read_text()) for file in files)


def identifier_exists(name: str) -> bool:
    """Whether it is defined, a string, or an argument with a default, somewhere; of ``Class.member`` both are defined,
    in one file.
    """
    if name in strings_and_arguments():
        return True
    owner, _, member = name.rpartition(".")
    files, owners = definitions().get(member, set()), definitions().get(owner, set())
    if owner.islower():  # an instance, such as config.current
        return bool(files and owners)
    return bool(files & owners if owner else files)


def is_there(name: str, page: pathlib.Path) -> bool:
    if name in TOP or PATH.fullmatch(name):
        return path_exists(name, page)
    if MODULE.fullmatch(name) and module_exists(name):
        return True
    if SETTING.fullmatch(name) and (name.replace(".", "_") in definitions() or is_known(name)):
        return True
    if SETTING.fullmatch(name) or MODULE.fullmatch(name) or IDENTIFIER.fullmatch(name):
        return identifier_exists(name)
    return True  # a word, an option, a value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_name_on_a_page_exists(page: pathlib.Path) -> None:
    names = named(page.read_text())
    assert sorted(name for name in names if not is_there(name, page)) == []


def test_a_name_that_does_not_exist_is_reported() -> None:
    names = {
        *("broker/log/nowhere.py", "nowhere.py", "broker/nowhere/", "tests/log/test_no*.py"),
        *("broker.log.nowhere", "oncelog.broker.log.nowhere", "oncelog.spark.write_twice", "no.such.setting"),
        *("PartitionLog.no_such_member", "NoSuchClass", "NO_SUCH_MAX", "no_such_function"),
    }
    text = "".join(f"See `{name}`.\n" for name in names) + "\n    an example of `code/nowhere.py`\n"
    assert {name for name in named(text) if not is_there(name, ROOT / "README.md")} == names


LINES_MAX = {
    "README.md": 100,
    "docs/contributing/architecture.md": 250,
    "docs/explanation/performance.md": 100,
}
"""How long a page may be that grows into a diary, or a list of everything, if nobody looks."""


@pytest.mark.parametrize(("page", "lines"), LINES_MAX.items())
def test_a_page_stays_short(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= lines


# -- links


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?m)^    .*$", "", page.read_text()))
    found: set[str] = set()
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def dead_links(text: str, page: pathlib.Path) -> set[str]:
    """The links of a page that lead nowhere in the repository."""
    prose = re.sub(r"(?m)^    .*$", "", text)
    found = set()
    for link in re.findall(r"\]\(([^()\s]+)\)", prose):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.add(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: pathlib.Path) -> None:
    assert dead_links(page.read_text(), page) == set()


def test_a_dead_link_is_reported() -> None:
    text = "[a](nowhere.md), [b](testing.md#nowhere), [c](testing.md#time), [d](#time), [e](https://kafka.example/x)"
    assert dead_links(text, ROOT / "docs" / "how-to" / "security.md") == {
        "nowhere.md",
        "testing.md#nowhere",
        "#time",
    }


def test_an_index_names_every_page() -> None:
    """The site's table of contents follows from it (docs/conf.py)."""
    docs = ROOT / "docs"
    pages = {page for page in docs.rglob("*.md") if page.parent not in (docs, docs / "changes")}
    linked = {
        (index.parent / link).resolve()
        for index in docs.rglob("index.md")
        for link in re.findall(r"(?m)^- \[[^\]]*\]\(([^)]+)\)", index.read_text())
    }
    assert pages <= linked
    assert all(page.exists() for page in linked)


def test_an_old_address_says_where_its_page_is() -> None:
    """Those that error texts, help texts and docstrings of the public API have named."""
    moved = [page for page in (ROOT / "docs").glob("*.md") if page.name != "index.md"]
    assert {page.stem for page in moved} >= {
        "testing",
        "security",
        "nodes",
        "proxy",
        "faults",
        "exactly-once",
    }
    for page in moved:
        assert re.fullmatch(r"This page is now \[[^\n]+\n", page.read_text()), page.name
        [first, *_] = re.findall(r"\]\(([^)]+)\)", page.read_text())
        assert (page.parent / first).name == page.name
    schema = json.loads((ROOT / "docs" / "faults.schema.json").read_text())
    assert (ROOT / "docs" / schema["$ref"]).exists()


# -- addresses in what is no page

ADDRESS = re.compile(r"(?<![\w/.-])docs/[\w./*-]*[\w*](?:#[\w-]+)?")
"""``docs/how-to/testing.md``, with an anchor or without; a folder; a pattern."""
ADDRESSED = ("*.py", "*.toml", "*.md", "Makefile", ".ci/*", ".pre-commit-config.yaml")


def tracked(*patterns: str) -> list[pathlib.Path]:
    """The files that git knows, or that an exported tree has, below the folders of the project."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    found |= {ROOT / path for path in paths() for pattern in patterns if fnmatch(path, pattern)}
    return sorted(path for path in found if path.is_file())


def dead_addresses(text: str) -> set[str]:
    """The addresses below docs/ in a text where nothing stands."""
    dead = set()
    for address in ADDRESS.findall(text):
        file, _, anchor = address.partition("#")
        found = list(ROOT.glob(file))
        if not found or (anchor and anchor not in anchors(found[0])):
            dead.add(address)
    return dead


def test_every_address_of_a_page_exists() -> None:
    """In docstrings, comments, messages, README, the Makefile and the checks."""
    own = pathlib.Path(__file__)
    texts = {path: path.read_text() for path in tracked(*ADDRESSED) if path != own}
    assert sum(bool(ADDRESS.search(text)) for text in texts.values()) > 50
    dead = {
        (path.relative_to(ROOT).as_posix(), address)
        for path, text in texts.items()
        for address in dead_addresses(text)
    }
    assert dead == set()


def test_a_dead_address_is_reported() -> None:
    text = "docs/nowhere.md, (docs/how-to/testing.md#nowhere), `docs/how-to/testing.md#time`, docs/reference."
    assert dead_addresses(text) == {"docs/nowhere.md", "docs/how-to/testing.md#nowhere"}
