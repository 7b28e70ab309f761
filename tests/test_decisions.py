"""Every decision says when it was made and whether it holds."""

import datetime
import pathlib
import re

import pytest

DECISIONS = {
    path.name[:4]: path
    for path in sorted((pathlib.Path(__file__).parents[1] / "docs").rglob("decisions/[0-9]*.md"))
}
HEAD = re.compile(
    r"# (?P<number>\d+)\. \S.*\n\n"
    r"(?P<date>\d{4}-\d\d-\d\d)\. (Holds|Superseded by \[decision \d+\]\((?P<by>\d{4})-[\w-]+\.md\))\.\n\n"
)


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_has_a_number_a_date_and_a_state(name: str) -> None:
    head = HEAD.match(DECISIONS[name].read_text())
    assert head is not None, (
        "expected: # 7. Title, then 2026-11-21. Holds. or: Superseded by [decision 9](0009-….md)."
    )
    assert int(head["number"]) == int(name)
    assert datetime.date.fromisoformat(head["date"])
    assert head["by"] is None or (head["by"] in DECISIONS and head["by"] > name)


def test_the_numbers_have_no_gap() -> None:
    assert [int(name) for name in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert len(DECISIONS) > 10
