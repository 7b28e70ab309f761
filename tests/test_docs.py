"""Every path, module, setting, class, member, function and constant between backticks in the docs exists."""

from __future__ import annotations

import pathlib
import re
from fnmatch import fnmatch
from functools import cache

import pytest

from oncelog.broker.config.broker_config import is_known

ROOT = pathlib.Path(__file__).parents[1]
PAGES = (
    *(page for page in (ROOT / "docs").glob("*.md") if page.name != "glossary.md"),
    *(ROOT / "docs" / "decisions").glob("*.md"),
    ROOT / "README.md",
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
    | {"CoordinatorOperationExceptionHelper", "Errors", "DumpLogSegments", "exactly_once_v2"}
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
    assert dead_links(text, ROOT / "docs" / "security.md") == {"nowhere.md", "testing.md#nowhere", "#time"}


def test_every_page_that_a_source_names_exists() -> None:
    """In docstrings, comments and messages: ``docs/testing.md``, with an anchor or without."""
    named_pages = {
        (path, name)
        for path, text in sources().items()
        for name in re.findall(r"\bdocs/[\w/-]+\.(?:md|json)(?:#[\w-]+)?", text)
    }
    assert len(named_pages) > 10
    dead = {
        (path, name)
        for path, name in named_pages
        if not (target := ROOT / name.partition("#")[0]).exists()
        or ("#" in name and name.partition("#")[2] not in anchors(target))
    }
    assert dead == set()
