"""A Python program of a few lines in a process of its own, where it may do what a test must not do in pytest's."""

import subprocess
import sys

LIMIT_S = 120


def output_of(program: str) -> str:
    """Run the program; return what it printed. It must end with exit code 0."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
