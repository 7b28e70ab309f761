"""`oncelog prove --user --tls`: a program logs in as its variables say, on brokers of oncelog and on a real Kafka."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from compat_tests.brokers import SharedBrokers
from compat_tests.prove.places import HERE, PROGRAMS

pytestmark = pytest.mark.slow

PASSWORD = "moon-over-tea"
PROOF_TIMEOUT_S = 300


def proof(folder: pathlib.Path, client: str, *options: str) -> dict[str, Any]:
    """Prove the program; return the verdict. The report is in ``folder``."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "oncelog", "prove", "--json", "--report", str(folder)),
            *("--topic", "orders", "--topic", "receipts", "--input", f"orders={HERE / 'orders.jsonl'}"),
            *("--output", "receipts", "--until-exit", "--budget", "1"),
            *("--user", f"billing:{PASSWORD}", *options),
            *("--", sys.executable, str(PROGRAMS / "log_in.py"), client),
        ],
        capture_output=True,
        text=True,
        timeout=PROOF_TIMEOUT_S,
        check=False,
    )
    assert run.stdout, run.stderr
    verdict: dict[str, Any] = json.loads(run.stdout)
    return verdict


@pytest.mark.parametrize(
    ("client", "options"),
    [("confluent-kafka", ()), ("aiokafka", ("--mechanism", "PLAIN", "--tls"))],
    ids=["SCRAM", "PLAIN over TLS"],
)
def test_the_program_logs_in_as_its_variables_say(
    tmp_path: pathlib.Path, client: str, options: tuple[str, ...]
) -> None:
    verdict = proof(tmp_path, client, *options)
    assert (verdict["outputs"], verdict["trials"]) == (10, 1), verdict
    assert not [path.name for path in tmp_path.iterdir() if PASSWORD in path.read_text()]


def test_before_a_cluster_it_logs_in_at_the_proxy(
    tmp_path: pathlib.Path, brokers: SharedBrokers, upstream: str
) -> None:
    verdict = proof(tmp_path, "confluent-kafka", "--tls", "--upstream", brokers[upstream].bootstrap)
    assert (verdict["outputs"], verdict["trials"]) == (10, 1), verdict
