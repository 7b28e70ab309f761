"""A run ends: a test that hangs fails, and what a worker has started ends with it."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.common import orphans
from tests.suites.project import Project

pytestmark = pytest.mark.slow

HANGS = """
import pathlib, subprocess, sys, threading, time

def test_before():
    pass

def test_that_hangs():
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    pathlib.Path("pid").write_text(str(started.pid))
    lock = threading.Lock()
    lock.acquire()
    try:
        lock.acquire()
    finally:
        time.sleep(1000)

def test_after():
    pass
"""
STARTS = """
import subprocess, sys
from tests.common import orphans
orphans.end_with_this_process()
command = [sys.executable, "-c", "import time; print('started', flush=True); time.sleep(1000)"]
child = subprocess.Popen(command, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
ENDED_WITHIN_S = 60


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + ENDED_WITHIN_S
    while (
        pathlib.Path(f"/proc/{pid}").exists()
        and "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    ):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.05)  # it is nobody's child any more: nothing else tells


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_test_that_hangs_fails_and_the_others_go_on(tmp_path: pathlib.Path, workers: str) -> None:
    project = Project(tmp_path)
    marking = "from tests.common import orphans\norphans.end_with_this_process()\n"
    project.change("conftest.py", "pytest_plugins", f"{marking}pytest_plugins")
    project.write("compat_tests/test_hangs.py", HANGS)
    limit = ("-o", "faulthandler_timeout=2", "-o", "faulthandler_exit_on_timeout=true")
    shown = project.run("compat_tests/test_hangs.py", "-n", workers, "--dist", "loadfile", *limit)
    assert "1 failed, 2 passed" in shown
    assert re.search(
        r"worker 'gw\d' crashed while running 'compat_tests/test_hangs.py::test_that_hangs'", shown
    )
    assert 'test_hangs.py", line 13 in test_that_hangs' in shown  # where it hung
    wait_for_end(int((project.folder / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_process_has_started_ends_with_it(number: signal.Signals) -> None:
    root = str(pathlib.Path(orphans.__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert pathlib.Path(f"/proc/{child}").exists()
        parent.send_signal(number)
    wait_for_end(child)
