"""What `oncelog prove` shows of a program that cannot be judged, so that its user finds out why."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from compat_tests.prove.zoo import ORDERS

ASKS_ONCE = """
import os, time
from confluent_kafka.admin import AdminClient
AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}).list_topics()
print("nothing to do", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_the_report_has_the_requests_of_a_stuck_program(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "oncelog", "prove", "--topic", "orders:1", "--topic", "receipts:1"]
    command += ["--input", f"orders={ORDERS}", "--output", "receipts", "--timeout", "3"]
    command += ["--json", "--report", str(tmp_path), "--", sys.executable, "-c", ASKS_ONCE]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 3, run.stderr
    verdict = json.loads(run.stdout)
    assert verdict["reason"].endswith("; instance 1 wrote last: nothing to do")
    assert "Metadata" in {row["request"].partition(" ")[0] for row in verdict["undisturbed"]}
    assert "The undisturbed run" in (tmp_path / "report.html").read_text()
