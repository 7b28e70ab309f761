"""A Java, a Go and a JavaScript program lose the response of their second EndTxn, read records and move time, all
through the control API of `oncelog serve --control`."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.control.programs import go_program, java_program, javascript_program
from tests.common.jars import RealPartMissing, require
from tests.common.oncelog_process import Serve, serve

__all__ = ["serve"]  # a fixture

PROGRAM_TIMEOUT_S = 120
DAY_MS = 86_400_000

LANGUAGES = {
    "java": java_program,
    "go": go_program,
    "javascript": javascript_program,
}
COMMITTED_AGAIN = ("committed second", ["responded", "closed", "responded"])
"""Java's client and franz-go send the EndTxn again, on a new connection, and their program notices nothing."""
WHAT_IT_SEES = {
    "java": COMMITTED_AGAIN,
    "go": COMMITTED_AGAIN,
    # KafkaJS gives up, and its program takes a committed transaction for one that failed.
    "javascript": ("failed second KafkaJSConnectionClosedError: Closed connection", ["responded", "closed"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_lost_commit_response(language: str, serve: Serve, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    build: Callable[[pathlib.Path], list[str]] = LANGUAGES[language]
    try:
        command = build(folder)
    except RealPartMissing as missing:
        require(str(missing))
    ready = serve("--port", "0", "--control", "127.0.0.1:0", "--memory").wait_ready()
    run = subprocess.run(
        [*command, ready["address"], ready["control"]],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, second, *rows = run.stdout.splitlines()
    assert first == "committed first"
    expected, outcomes = WHAT_IT_SEES[language]
    assert second == expected
    seen: dict[str, Any] = {name: json.loads(text) for name, text in (row.split(" ", 1) for row in rows)}
    [rule] = seen["rules"]
    assert rule["fired"] == 1
    assert [row["outcome"] for row in seen["requests"]] == outcomes
    assert [row["value"] for row in seen["records"]] == ["first", "second"]  # committed either way
    assert {"segments deleted", "transactional id expired", "producer expired"} == {
        row["what"] for row in seen["moved"]
    }
    assert min(row["at_ms"] for row in seen["moved"]) >= seen["records"][0]["timestamp"] + 7 * DAY_MS
    assert seen["left"] == []
