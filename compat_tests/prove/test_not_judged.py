"""What `oncelog prove` says of a program that cannot be judged, and of rules that cannot hold, so that its user finds
out why.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from compat_tests.prove.places import PROGRAMS
from compat_tests.prove.zoo import ORDERS

pytestmark = pytest.mark.slow

ASKS_ONCE = """
import os, time
from confluent_kafka.admin import AdminClient
AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}).list_topics()
print("nothing to do", flush=True)
time.sleep(600)
"""
RIGHT = (PROGRAMS / "at_least_once.py").read_text()
INVALID, NOT_JUDGED = 2, 3


def command(folder: pathlib.Path, program: str, *options: str) -> list[str]:
    words = [sys.executable, "-m", "oncelog", "prove", "--topic", "orders:1", "--topic", "receipts:1"]
    words += [
        "--input",
        f"orders={ORDERS}",
        "--output",
        "receipts",
        "--promise",
        "at-least-once",
        "--timeout",
        "4",
    ]
    return [*words, "--report", str(folder), *options, "--", sys.executable, "-c", program]


def environment(folder: pathlib.Path) -> dict[str, str]:
    """That of a proof whose program and rules find their modules."""
    return {**os.environ, "PYTHONPATH": f"{PROGRAMS}{os.pathsep}{folder}"}


def prove(folder: pathlib.Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = command(folder, program, *options)
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=environment(folder)
    )


def test_the_report_has_the_requests_of_a_stuck_program(tmp_path: pathlib.Path) -> None:
    run = prove(tmp_path, ASKS_ONCE, "--json")
    assert run.returncode == NOT_JUDGED, run.stderr
    verdict = json.loads(run.stdout)
    assert verdict["reason"].endswith("; instance 1 wrote last: nothing to do")
    assert "Metadata" in {row["request"].partition(" ")[0] for row in verdict["undisturbed"]}
    assert "The undisturbed run" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ('["orders"]', '["order"]', "; it uses topic 'order'; did you mean orders?"),
        (
            '"receipts"',
            '"receipt"',
            "the program wrote nothing to receipts: it uses topic 'receipt'; did you mean receipts?",
        ),
        (
            "Consumer(CONSUMER)",
            'Consumer({**CONSUMER, "auto.offset.reset": "latest"})',
            "wrote nothing to receipts: it has read no record either; does it begin at the earliest offset",
        ),
    ],
)
def test_a_program_that_reads_or_writes_elsewhere(
    right: str, wrong: str, reason: str, tmp_path: pathlib.Path
) -> None:
    assert right in RIGHT
    run = prove(tmp_path, RIGHT.replace(right, wrong))
    assert run.returncode == NOT_JUDGED, run.stderr
    assert reason in run.stdout


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--check", "echo no such table; exit 3"),
            "--check ended with exit code 3 in an undisturbed run, which must be 0: no such table",
        ),
        (("--key", "$.cent"), "--key $.cent: it is in the JSON value of no output"),
        (("--judge", "rules:fails"), "the judge failed: ZeroDivisionError: division by zero ("),
    ],
)
def test_a_rule_that_cannot_hold_is_an_error(
    options: tuple[str, ...], error: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "rules.py").write_text("def fails(inputs, outputs):\n    return [1 / 0]\n")
    run = prove(tmp_path, RIGHT, *options)
    assert run.returncode == INVALID, run.stdout
    [line] = run.stderr.splitlines()
    assert error in line


def test_a_program_that_commits_nothing_gets_a_note(tmp_path: pathlib.Path) -> None:
    run = prove(
        tmp_path, RIGHT.replace("consumer.commit(order, asynchronous=False)", "pass"), "--budget", "1"
    )
    assert "note: the program committed no offsets in an undisturbed run" in run.stdout, run.stderr


def test_an_interrupted_proof_is_no_proof(tmp_path: pathlib.Path) -> None:
    words = command(tmp_path, RIGHT)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as run:
        assert run.stderr is not None
        assert " classes of steps" in run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        stdout, _ = run.communicate(timeout=60)
    assert run.returncode == NOT_JUDGED
    assert stdout.startswith("verdict: not judged (at-least-once: not judged)\n")
