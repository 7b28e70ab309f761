"""A program that does not fail each time: one repeat that fails is enough for a finding."""

from __future__ import annotations

import pathlib
import sys

import pytest

import oncelog
from compat_tests.prove.places import PROGRAMS
from compat_tests.prove.restarted import source_of

pytestmark = pytest.mark.slow

# After a restart it skips an order without a receipt, in the runs that its last argument names.
PROGRAM = source_of(
    """
count_file, bad_runs = pathlib.Path(sys.argv[1]), sys.argv[2].split(",")
is_bad = False
if is_restarted:
    count = int(count_file.read_text()) + 1 if count_file.exists() else 1
    count_file.write_text(str(count))
    is_bad = str(count) in bad_runs
""",
    """
if not is_bad:
    producer.produce("receipts", order.value())
    producer.flush()
is_bad = False
""",
)


@pytest.mark.parametrize(
    ("bad_runs", "word", "unsteady"),
    [("1,4", "at most once", 0), ("1", "exactly once", 1)],
    ids=["fails again later", "never again"],
)
def test_a_trial_is_repeated(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, bad_runs: str, word: str, unsteady: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    (tmp_path / "app.py").write_text(PROGRAM)
    verdict = oncelog.prove(
        [sys.executable, str(tmp_path / "app.py"), str(tmp_path / "count"), bad_runs],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake"]},
        outputs="receipts",
        trials=1,
        jobs=1,
    )
    assert (verdict.word, len(verdict.unsteady)) == (word, unsteady), verdict.basis
    [shown] = verdict.findings or verdict.unsteady
    assert [one.kind for one in shown.problems] == ["lost"]
    # Each trial starts it again; one that has lost something, once more.
    assert int((tmp_path / "count").read_text()) == 5
