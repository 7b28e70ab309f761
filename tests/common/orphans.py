"""Ends the processes that a run of tests has started and left, once the run or a worker of it has ended, however.

Brokers, JVMs and clients would run on after a worker that was killed, or that the limit of a test has ended. What a
worker starts has the worker's mark in its environment; a watcher beside the worker waits for its end, and looks for the
mark. It needs Linux (/proc, pidfd_open); elsewhere nothing happens.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

MARK = "TESTS_STARTED_BY"
"""The variable with the mark. Its name begins as none of oncelog's and Kafka's, which some tests take away."""

WATCHER = """
import os, select, signal, sys
name, worker = sys.argv[1:]
try:
    ended = select.poll()
    ended.register(os.pidfd_open(int(worker)), select.POLLIN)
    ended.poll()
except ProcessLookupError:
    pass
mark, found = f"{name}={worker}".encode(), True
while found:
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if mark not in environ.read().split(b"\\0"):
                    continue
            os.kill(int(pid), signal.SIGKILL)
            found = True
        except OSError:
            pass
"""

_watchers: list[subprocess.Popen[bytes]] = []


def end_with_this_process() -> None:
    """Mark what this process starts from now on; a watcher ends it once this process has ended."""
    if not pathlib.Path("/proc/self/environ").exists() or not hasattr(os, "pidfd_open"):
        return
    worker = str(os.getpid())
    command = [sys.executable, "-I", "-S", "-c", WATCHER, MARK, worker]
    _watchers.append(subprocess.Popen(command, start_new_session=True, env={}))
    os.environ[MARK] = worker
