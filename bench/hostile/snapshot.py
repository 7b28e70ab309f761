"""A snapshot of a megabyte that unpacks to a gigabyte: what a start with it says, and the memory that it takes."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from zipfile import ZIP_DEFLATED, ZipFile

import oncelog
from compat_tests.oncelog_server import ROOT

SNAPSHOT = "A snapshot of a megabyte that unpacks to a gigabyte"
MIB = 1 << 20
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def refused_snapshot() -> str:
    """Start `oncelog serve` with it; return what it says, in how many seconds and with how much memory."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        path = pathlib.Path(folder, "seed")
        with oncelog.Broker() as kafka:
            path.write_bytes(kafka.snapshot_bytes())
        with (
            ZipFile(path, "a", ZIP_DEFLATED) as archive,
            archive.open("data/t-0/more", "w", force_zip64=True) as file,
        ):
            for _ in range(1024):
                file.write(bytes(MIB))
        command = [
            sys.executable,
            "-m",
            "oncelog.broker.command.cli",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--memory",
        ]
        command += ["--from-snapshot", str(path)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        began = time.perf_counter()
        # By a small process: the most memory of a child counts from its parent's on.
        run = subprocess.run(
            [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, env=env, check=True
        )
        took = time.perf_counter() - began
        told = run.stderr.strip().replace(folder, "FOLDER")
        return f"{path.stat().st_size:,} bytes, {took:.2f} s, at most {int(run.stdout) // 1024} MiB: {told}"
