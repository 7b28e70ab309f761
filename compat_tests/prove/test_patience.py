"""A program that ends again and again, and looks as if it had nothing more to do meanwhile."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

import oncelog
from compat_tests.prove.places import PROGRAMS
from compat_tests.prove.restarted import source_of

pytestmark = pytest.mark.slow

QUIET_S = 0.2
# After a restart it reads to the end, makes no receipt, and ends after five times as long as it must be quiet.
PROGRAM = source_of(
    "",
    f"""
if is_restarted:
    time.sleep(5 * {QUIET_S})
    raise SystemExit("no receipt for this order")
producer.produce("receipts", order.value())
producer.flush()
""",
)


def prove(source: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> oncelog.Verdict:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    (folder / "app.py").write_text(source)
    return oncelog.prove(
        [sys.executable, str(folder / "app.py")],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake"]},
        outputs="receipts",
        quiet=QUIET_S,
        jobs=1,
        **how,
    )


def proved(
    source: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[oncelog.Verdict, oncelog.Problem]:
    """Prove a program in one trial; return the verdict and its only problem."""
    verdict = prove(source, folder, monkeypatch, trials=1)
    [finding] = verdict.findings
    [problem] = finding.problems
    return verdict, problem


def test_it_is_stuck(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has its time to catch up; after the last one it is not judged by what it has not written yet."""
    verdict, problem = proved(PROGRAM, tmp_path, monkeypatch)
    assert (verdict.word, problem.kind) == ("stuck", "stuck"), verdict.basis
    assert "ends again and again" in problem.text
    assert "no receipt for this order" in problem.text


# Its second process stands still at the first order; another one would go on.
STANDS_STILL = source_of(
    """
starts = len(list(pathlib.Path(FOLDER).glob("start-*")))
pathlib.Path(FOLDER, f"start-{starts}").touch()
""",
    """
if starts == 1:
    time.sleep(600)
producer.produce("receipts", order.value())
producer.flush()
""",
)


def test_what_comes_after_another_start_was_not_lost(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict, problem = proved(STANDS_STILL, tmp_path, monkeypatch)
    assert (verdict.word, problem.kind) == ("stuck", "stuck"), verdict
    assert "started again, it did the rest" in problem.text


# It waits as long as librdkafka may before it looks for its coordinator again: several long polls.
TRIES_AGAIN_LATE = source_of(
    "",
    """
errors = [True]
while errors:
    errors = []
    producer.produce("receipts", order.value(), on_delivery=lambda error, _: error and errors.append(error))
    producer.flush()
    if errors:
        time.sleep(3)
""",
)


def test_what_is_tried_again_late_is_not_lost(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"on": "Produce", "nth": 1, "error": "INVALID_RECORD", "listener": "INSTANCE1"}
    refused = [{"kind": "refuse for good", "rule": rule}]
    verdict = prove(TRIES_AGAIN_LATE, tmp_path, monkeypatch, again=refused)
    assert verdict.word == "the finding did not come again", verdict
