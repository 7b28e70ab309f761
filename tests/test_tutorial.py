"""docs/tutorial: a newcomer copies what stands there, page by page, into an empty folder, with the built wheel."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.common.archives import ROOT, UV, build, run

TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = (TUTORIAL / "first-test.md", TUTORIAL / "lost-response.md")
SCREEN_LINES_MAX = 50
TIMEOUT_S = 120
INSTALL = ".venv/bin/pip install "
PYTEST = ".venv/bin/pytest "


def blocks(page: pathlib.Path) -> list[str]:
    """The blocks to copy, and those that show what a command prints, in the page's order."""
    found = re.findall(r"(?m)(?:^    .*\n|^\n)+", page.read_text())
    return [re.sub(r"(?m)^    ", "", block).strip("\n") + "\n" for block in found if block.strip()]


def install(folder: pathlib.Path, packages: str, wheel: pathlib.Path) -> None:
    """As the page says, but oncelog is the wheel, and the others are those of the lock file."""
    names = [str(wheel) if name.endswith("oncelog") else name for name in packages.split()]
    python = folder / ".venv" / "bin" / "python"
    run(UV, "pip", "install", "-q", "--python", python, "-c", ROOT / "requirements.lock", *names, cwd=folder)


def run_pytest(folder: pathlib.Path, command: str) -> str:
    """Run pytest as the page says, and return what it prints."""
    done = subprocess.run(
        [folder / ".venv" / "bin" / "pytest", *shlex.split(command)[1:]],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout + done.stderr


def check_shown(block: str, printed: str) -> None:
    """The block's lines stand in what was printed, in this order."""
    at = 0
    for line in block.splitlines():
        assert line in printed[at:], f"{line!r} is not in\n{printed[at:]}"
        at = printed.index(line, at) + len(line)


@pytest.mark.slow
def test_a_newcomer_follows_the_tutorial(tmp_path: pathlib.Path) -> None:
    _, wheel = build(ROOT, tmp_path / "dist")
    folder = tmp_path / "project"
    folder.mkdir()
    passed = []
    for page in PAGES:
        command = ""
        for block in blocks(page):
            if file := re.match(r"# (\w+\.py)\n", block):
                (folder / file[1]).write_text(block)
            elif block.startswith("python3 -m venv .venv\n"):
                run(UV, "venv", "-q", "--python", sys.executable, folder / ".venv")
                install(folder, block.partition(INSTALL)[2], wheel)
            elif block.startswith(PYTEST):
                command = block
            else:
                check_shown(block, run_pytest(folder, command))
                passed.append(block.splitlines()[-1])
    assert passed == ["1 passed", "1 failed, 1 passed", "2 passed"]
    assert sorted(path.name for path in folder.glob("*.py")) == [
        "orders.py",
        "test_lost_response.py",
        "test_orders.py",
    ]


def test_each_page_leads_to_the_next() -> None:
    assert "(docs/tutorial/first-test.md)" in (ROOT / "README.md").read_text()
    assert f"({PAGES[1].name})" in PAGES[0].read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_of_the_tutorial_is_one_screen(page: pathlib.Path) -> None:
    assert len(page.read_text().splitlines()) <= SCREEN_LINES_MAX
