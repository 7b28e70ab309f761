"""What docs/invariants.md names is there: files, classes with their members, functions, constants."""

from __future__ import annotations

import pathlib
import re
from functools import cache

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "invariants.md"
TOP = ("wire", "coordinator", "broker", "tests", "compat_tests")
WORD = re.compile(r"[A-Za-z_]\w*")


def named() -> list[str]:
    return sorted(set(re.findall(r"`([^`]+)`", PAGE.read_text())))


@cache
def sources() -> dict[str, str]:
    found = {}
    for top in TOP:
        for path in (ROOT / top).rglob("*.py"):
            found[str(path.relative_to(ROOT))] = path.read_text()
    return found


def is_there(name: str) -> bool:
    """Whether it is a path, or a name that is defined somewhere; of ``Class.member`` both, in one file."""
    if "/" in name or name.endswith(".py"):
        return (ROOT / name).exists() or any(path.endswith("/" + name) for path in sources())
    owner, _, member = name.rpartition(".")
    pattern = rf"\b(class|def) {member}\b|^ *(self\.)?{member}\b[^=\n]*="
    return any(
        re.search(pattern, text, re.MULTILINE) and (not owner or re.search(rf"\bclass {owner}\b", text))
        for text in sources().values()
    )


@pytest.mark.parametrize("name", [name for name in named() if name not in TOP and name != "make lint"])
def test_what_the_invariants_name_is_there(name: str) -> None:
    if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=\d)?", name):
        assert any(f'"{name.partition("=")[0]}"' in text for text in sources().values()), "no such setting"
    else:
        assert is_there(name)


def test_a_name_that_is_not_there_is_noticed() -> None:
    for name in ("broker/log/nowhere.py", "PartitionLog.nothing", "NoSuchClass", "nowhere.py"):
        assert not is_there(name)
