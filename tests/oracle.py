"""Kafka's own code as the judge: a Java program beside a test, compiled and run on Kafka's class path."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from compat_tests.real_kafka import RealPartMissing, java, kafka_libs, require

if TYPE_CHECKING:
    import pathlib

ERRORS_SHOWN = 4_000
"""Characters of what a program that failed wrote last."""


def ask_oracle(source: pathlib.Path, *arguments: str, given: bytes = b"", timeout_s: float = 120) -> bytes:
    """What the program writes to its standard output, having read ``given``. It must end with exit code 0.

    Where Java, its compiler or Kafka's jars are missing, the test is skipped (or fails, see `require`).
    """
    try:
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{kafka_libs()}/*"]
    except RealPartMissing as missing:
        require(str(missing))
    ran = subprocess.run(
        [*command, str(source), *arguments], input=given, capture_output=True, timeout=timeout_s, check=False
    )
    problem = ran.stderr.decode(errors="replace")
    if ran.returncode and "jdk.compiler" in problem:
        require("this Java has no compiler (a JDK is needed)")
    assert ran.returncode == 0, problem[-ERRORS_SHOWN:]
    return ran.stdout
