"""The lint that keeps the outside world behind `broker/seams` finds what it is there for."""

import pathlib
import subprocess
import sysconfig
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
[PAGE] = (ROOT / "docs").rglob("invariants.md")
RUFF = pathlib.Path(sysconfig.get_path("scripts")) / "ruff"

FORBIDDEN = [
    "import time",
    "from time import monotonic",
    "import os",
    "import socket",
    "import threading",
    "import uuid",
    "import logging",
    "import random\n\nrandom.random()",
    "from datetime import datetime\n\ndatetime.now()",
    'open("file")',
    "import trio\n\ntrio.to_thread.run_sync(print)",
    "import trio\n\ntrio.current_time()",
    "from trio import sleep",
    "import trio\n\ntrio.move_on_after(1)",
]


def complaints(code: str, path: str) -> str:
    command = [str(RUFF), "check", "--quiet", "--select", "TID251,PTH123", "--stdin-filename", path, "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, cwd=ROOT, check=False).stdout


@pytest.mark.parametrize("code", FORBIDDEN)
def test_the_product_does_not_touch_the_outside(code: str) -> None:
    for path in ("broker/log/new.py", "coordinator/new.py", "wire/new.py"):
        assert complaints(code, path), path
    assert complaints(code, "broker/seams/new.py") == ""


def test_who_else_touches_the_outside_is_on_the_page() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    exempt = {path for path, rules in ruff["lint"]["per-file-ignores"].items() if "TID251" in rules}
    outside = {path for path in exempt if path.startswith("{.ci,") or path == "conftest.py"}
    table = PAGE.read_text().split("\n## Structure\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in row.split("`")[1::2]} == exempt - outside
