"""README's first screen: each of its commands works in a fresh clone, with an empty home directory."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from tests.common.archives import ROOT
from tests.common.process import Lines

FIRST_SCREEN = (ROOT / "README.md").read_text().partition("\n## ")[0]
FIRST_TEST = "A broker in each test"
LIMIT_S = 300
STOP_S = 60
READY = "oncelog ready "


def commands(text: str) -> list[str]:
    """The lines of the blocks, without what stands behind a `#`."""
    lines = re.findall(r"(?m)^    (.*)$", text)
    return [line.partition(" #")[0].strip() for line in lines]


@pytest.fixture
def clone(tmp_path: pathlib.Path) -> pathlib.Path:
    """The files that git has, or would take, and nothing that was built."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folder = tmp_path / "oncelog"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files of a clone are known by git")
def test_its_commands(clone: pathlib.Path, tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    left_out = ("VIRTUAL_ENV", "PYTHON", "PYTEST", "ONCELOG", "KAFKA", "MAKE", "UV_", "XDG_")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    environment |= {"HOME": str(home), "ARGS": "--port 0"}  # 9092 may be taken

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], cwd=clone, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    found = commands(FIRST_SCREEN)
    assert [one for one in found if "make serve" in one] == ["make serve"]
    for command in found:
        if command != "make serve":
            run(command)
            continue
        with subprocess.Popen(
            ["sh", "-c", command],
            cwd=clone,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as serving:
            assert serving.stdout is not None
            shown = Lines(serving.stdout)
            try:
                assert shown.wait_for(READY, LIMIT_S), shown.text()
            finally:
                os.killpg(serving.pid, signal.SIGINT)  # as a terminal does for Ctrl-C
                serving.wait(STOP_S)
            shown.close()

    [text] = re.findall(rf"## {FIRST_TEST}\n\n((?:    .*\n|\n)+)", (ROOT / "README.md").read_text())
    (clone / "test_orders.py").write_text(re.sub(r"(?m)^    ", "", text))
    said = run(
        "cd ../shop && mv ../oncelog/test_orders.py . && bin/pytest -p no:cacheprovider test_orders.py"
    )
    assert " 1 passed" in said
