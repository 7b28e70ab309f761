"""docs/how-to/clients.md: the quick starts of each client, run as they stand there."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.common.jars import require
from tests.common.oncelog_process import DEADLINE_S, Serve, serve

__all__ = ["serve"]  # a fixture

pytestmark = pytest.mark.slow

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "how-to" / "clients.md"
ADDRESS = "127.0.0.1:9092"


def snippets() -> dict[str, str]:
    """Return the code to type, by client."""
    found = re.findall(r"(?m)^## ([^\n]*)\n\n((?:    [^\n]*\n|\n)+)", PAGE.read_text())
    return {name: re.sub(r"(?m)^    ", "", code) for name, code in found}


def test_the_snippets_are_found() -> None:
    assert list(snippets()) == [
        "kcat",
        "confluent-kafka",
        "kafka-python",
        "aiokafka",
        "Kafka's console tools",
    ]


@pytest.mark.parametrize("client", ["kcat", "confluent-kafka", "kafka-python", "aiokafka"])
def test_a_quick_start(serve: Serve, client: str) -> None:
    ready = serve("--ephemeral", "--listen", "127.0.0.1:0").wait_ready()
    code = snippets()[client].replace(ADDRESS, ready["address"])
    command = [sys.executable, "-c", code]
    if client == "kcat":
        if shutil.which("kcat") is None:
            require("kcat is not installed")
        command = ["sh", "-ec", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=dict(os.environ))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] in ("hello", "b'hello'")
