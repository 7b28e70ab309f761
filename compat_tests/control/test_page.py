"""The examples of docs/how-to/control-api.md: curl's are run, the others stand in the programs that are run."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
from confluent_kafka import Producer

from compat_tests.control.programs import GO_FOLDER, JAVA_SOURCE, JS_FOLDER
from tests.common.jars import require
from tests.common.oncelog_process import Serve, serve

__all__ = ["serve"]  # a fixture

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "control-api.md"
PROGRAMS = {
    "Java": JAVA_SOURCE,
    "Go": GO_FOLDER / "main.go",
    "JavaScript": JS_FOLDER / "lost_commit.mjs",
}
NOW_THE_PROGRAM_RUNS = re.compile(r"(#|//) now the program runs")
TIMEOUT_S = 30


def example(heading: str) -> list[str]:
    """The lines of code below a heading of the page, without their indentation."""
    _, _, after = PAGE.read_text().partition(f"\n### {heading}\n")
    section = re.split(r"(?m)^##", after)[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("language", PROGRAMS)
def test_an_example_is_part_of_the_program(language: str) -> None:
    program = {line.strip() for line in PROGRAMS[language].read_text().splitlines()}
    lines = example(language)
    assert len(lines) > 8
    assert [line for line in lines if line not in program and not NOW_THE_PROGRAM_RUNS.match(line)] == []


def test_the_examples_of_curl(serve: Serve) -> None:
    if shutil.which("curl") is None:
        require("no curl on the PATH")
    ready = serve("--port", "0", "--control", "127.0.0.1:0", "--memory").wait_ready()
    printed = []
    for line in example("curl"):
        if NOW_THE_PROGRAM_RUNS.match(line):
            producer = Producer({"bootstrap.servers": ready["address"], "transactional.id": "app"})
            producer.init_transactions(TIMEOUT_S)
            for value in (b"first", b"second"):
                producer.begin_transaction()
                producer.produce("orders", value)
                producer.commit_transaction(TIMEOUT_S)
            continue
        run = subprocess.run(
            line.replace("curl", "curl -sS --fail-with-body", 1),
            shell=True,
            env={"CONTROL": ready["control"], "PATH": "/usr/local/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, f"{line}\n{run.stdout}{run.stderr}"
        printed.append(run.stdout)
    assert '"value":"tea"' in printed[1]
    assert '"fired":1' in printed[3]
    assert '"value":"second"' in printed[4]
    assert '"what":"segments deleted"' in printed[5]
