"""The judge: what a trial's outputs and offsets say beside those of undisturbed runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.types import Record
from oncelog.broker.prove.judging.judge import (
    Problem,
    baseline_of,
    is_behind,
    is_kept,
    judged_problems,
    problems_of,
    word_of,
)
from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.trials.trial_result import TrialResult

PLAN = ProofPlan(("app",), {"orders": 1, "receipts": 1}, {"orders": ({"value": "1"},)}, ("receipts",))


def result_with(*outputs: str, offset: int = 3, **more: Any) -> TrialResult:
    """A trial whose outputs are given as "key=value" each."""
    records = [
        Record("receipts", 0, number, value.encode(), key.encode())
        for number, (key, _, value) in enumerate(one.partition("=") for one in outputs)
    ]
    return TrialResult((), records={"receipts": records}, offsets={"g": {"orders": {0: offset}}}, **more)


def problems(*outputs: str, plan: ProofPlan = PLAN, **more: Any) -> list[Problem]:
    """What is wrong with these outputs, where a=1, b=2, a=3 are right."""
    undisturbed = [result_with("a=1", "b=2", "a=3"), result_with("a=1", "b=2", "a=3")]
    baseline, difference = baseline_of(plan, undisturbed)
    assert baseline is not None, difference
    return problems_of(plan, baseline, result_with(*outputs, **more))


def kinds(*outputs: str, **more: Any) -> list[str]:
    return [one.kind for one in problems(*outputs, **more)]


def test_the_same_outputs_are_right() -> None:
    assert kinds("a=1", "b=2", "a=3") == []


def test_the_order_of_different_keys_does_not_matter() -> None:
    assert kinds("b=2", "a=1", "a=3") == []


def test_what_is_missing_is_lost() -> None:
    [problem] = problems("a=1", "a=3")
    assert (problem.kind, problem.jepsen) == ("lost", "lost-write")
    assert "receipts 'b': '2'" in problem.text


def test_what_has_not_come_yet_is_not_lost() -> None:
    """The trial has seen whether it comes when the program is started again."""
    [problem] = problems("a=1", "b=2", offset=2, stuck="it stood still")
    assert (problem.kind, problem.text) == ("stuck", "it stood still")


def test_what_does_not_come_is_lost_even_if_inputs_are_not_committed() -> None:
    [problem] = problems("a=1", "b=2", offset=2)
    assert problem.kind == "lost"


def test_what_came_twice_is_doubled() -> None:
    [problem] = problems("a=1", "b=2", "b=2", "a=3")
    assert (problem.kind, problem.jepsen) == ("doubled", "duplicate")


def test_an_output_in_place_of_another_one_is_changed() -> None:
    assert kinds("a=1", "b=9", "a=3") == ["changed"]


def test_another_order_within_a_key_is_reordered() -> None:
    assert kinds("a=3", "b=2", "a=1") == ["reordered"]


def test_an_order_that_is_right_but_for_repeats_is_only_doubled() -> None:
    assert kinds("a=1", "a=1", "b=2", "a=3", "a=1", "a=3") == ["doubled"]


def test_offsets_behind_are_read_again() -> None:
    [problem] = problems("a=1", "b=2", "a=3", offset=2)
    assert problem.kind == "offsets"
    assert "records are read again" in problem.text


def test_a_stuck_trial_says_why() -> None:
    [problem] = problems("a=1", stuck="it waits")
    assert (problem.kind, problem.text) == ("stuck", "it waits")


def test_another_output_of_the_check_may_still_change() -> None:
    baseline, _ = baseline_of(PLAN, [result_with("a=1", check_output="1 row")] * 2)
    assert baseline is not None
    assert is_behind(PLAN, baseline, result_with("a=1", check_output="no row"))
    assert not is_behind(PLAN, baseline, result_with("a=1", check_output="1 row"))


def test_another_output_of_the_check_counts_beside_other_problems() -> None:
    """Found by a user: the promise to do all at least once was kept, with a wrong number in the database."""
    baseline, _ = baseline_of(PLAN, [result_with("a=1", check_output="1 row")] * 2)
    assert baseline is not None
    found = problems_of(PLAN, baseline, result_with("a=1", "a=1", check_output="2 rows"))
    assert [one.kind for one in found] == ["doubled", "check"]
    assert not is_kept("at-least-once", [one.kind for one in found])


@pytest.mark.parametrize(
    ("lines", "kinds", "text"),
    [
        pytest.param("tea 1\ncake 2\ntea 1", [], "", id="in another order"),
        pytest.param("cake 2\ntea 1", ["lost"], "1 line of --check missing: tea 1", id="one less"),
        pytest.param(
            "cake 2\n" * 3 + "tea 1\n" * 2, ["doubled"], "2 lines of --check came once more: ", id="more"
        ),
        pytest.param(
            "cake 2\ntea 1\ntea 1\npie",
            ["doubled"],
            "1 line of --check that no undisturbed run has: pie",
            id="new",
        ),
        pytest.param(
            "cake 3\ntea 1\ntea 1", ["check"], "missing: cake 2; 1 line of --check that ", id="another one"
        ),
        pytest.param(
            "cake 2\ncake 2\ntea 1", ["check"], "missing: tea 1; 1 line of --check came ", id="both"
        ),
    ],
)
def test_the_lines_of_the_check_are_compared_as_outputs_are(lines: str, kinds: list[str], text: str) -> None:
    baseline, _ = baseline_of(PLAN, [result_with("a=1", check_output="tea 1\ntea 1\ncake 2\n")] * 2)
    assert baseline is not None
    found = problems_of(PLAN, baseline, result_with("a=1", check_output=lines))
    assert [one.kind for one in found] == kinds
    assert text in "".join(one.text for one in found)
    assert is_kept("at-least-once", kinds) == (kinds in ([], ["doubled"]))


def test_a_check_that_fails_shows_nothing() -> None:
    """Whether rows are there is unknown: it is neither lost nor doubled alone."""
    baseline, _ = baseline_of(PLAN, [result_with("a=1", check_output="")] * 2)
    assert baseline is not None
    [problem] = problems_of(PLAN, baseline, result_with("a=1", check_error="exit code 3: no such table"))
    assert (problem.kind, problem.text) == ("check", "--check ended with exit code 3: no such table")


INPUTS = [Record("orders", 0, number, b"", b"") for number in range(3)]


@pytest.mark.parametrize(
    ("offset", "rest", "kind"),
    [
        pytest.param(1, ("a=1", "b=2", "a=3"), "unfinished", id="its offset says where it goes on"),
        pytest.param(1, ("a=1", "a=1", "b=2", "a=3"), "unfinished", id="and it repeats something"),
        pytest.param(3, ("a=1", "b=2", "a=3"), "unfinished", id="it knows from elsewhere where to go on"),
        pytest.param(3, ("a=1", "a=1", "b=2", "a=3"), "lost", id="it does everything again"),
        pytest.param(1, ("a=1",), "lost", id="started again, it does not bring it"),
        pytest.param(1, None, "lost", id="it was not started again"),
    ],
)
def test_a_job_that_ended_too_early_has_lost_nothing_yet(
    offset: int, rest: tuple[str, ...] | None, kind: str
) -> None:
    baseline, _ = baseline_of(PLAN, [result_with("a=1", "b=2", "a=3", inputs=INPUTS)] * 2)
    assert baseline is not None
    again = None if rest is None else result_with(*rest)
    result = result_with("a=1", offset=offset, inputs=INPUTS, rest=again)
    [problem] = problems_of(PLAN, baseline, result)
    assert problem.kind == kind
    assert "2 missing: receipts 'b': '2', receipts 'a': '3'" in problem.text
    assert ("offset 1 of orders-0 is next for group g" in problem.text) == (
        kind == "unfinished" and offset == 1
    )


def test_offsets_may_be_left_out() -> None:
    without = replace(PLAN, ignore=("offsets",))
    assert problems("a=1", "b=2", "a=3", plan=without, offset=2) == []
    without.validate()


def test_offsets_of_a_program_that_leaves_some_uncommitted_are_not_judged() -> None:
    """How many it leaves depends on the order in which it reads its partitions."""
    inputs = [Record("orders", 0, number, b"", b"") for number in range(3)]
    undisturbed = [result_with("a=1", offset=2, inputs=inputs)] * 2
    baseline, _ = baseline_of(PLAN, undisturbed)
    assert baseline is not None
    assert problems_of(PLAN, baseline, result_with("a=1", offset=1, inputs=inputs)) == []


def test_undisturbed_runs_that_differ_are_no_measure() -> None:
    baseline, difference = baseline_of(PLAN, [result_with("a=1"), result_with("a=2")])
    assert baseline is None
    assert "the second has 1 more: receipts 'a': '2'; 1 less: receipts 'a': '1'" in difference


def test_at_least_once_how_often_an_output_comes_may_differ() -> None:
    plan = ProofPlan(**{**PLAN.to_data(), "promise": "at-least-once"})
    once, twice = result_with("a=1", "b=1"), result_with("a=1", "a=1", "b=1")
    assert baseline_of(PLAN, [once, twice])[0] is None
    for runs in ([once, twice], [twice, once]):
        baseline, _ = baseline_of(plan, runs)
        assert baseline is not None
        assert [problem.kind for problem in problems_of(plan, baseline, result_with("b=1"))] == ["lost"]
        assert problems_of(plan, baseline, once) == []
    assert baseline_of(plan, [once, result_with("a=1")])[0] is None


def test_offsets_that_differ_in_undisturbed_runs_do_not_count() -> None:
    baseline, _ = baseline_of(PLAN, [result_with("a=1", offset=3), result_with("a=1", offset=1)])
    assert baseline is not None
    assert problems_of(PLAN, baseline, result_with("a=1", offset=2)) == []


def test_what_is_ignored_may_differ() -> None:
    plan = ProofPlan(**{**PLAN.to_data(), "ignore": ("$.at", "$.lines[*].id")})
    one = json.dumps({"n": 1, "at": 5, "lines": [{"id": 1, "what": "tea"}]})
    two = json.dumps({"lines": [{"what": "tea", "id": 2}], "at": 6, "n": 1})
    baseline, _ = baseline_of(plan, [result_with(f"a={one}"), result_with(f"a={two}")])
    assert baseline is not None


def test_with_a_key_one_output_for_each_counts() -> None:
    plan = ProofPlan(**{**PLAN.to_data(), "key": "$.order"})
    baseline, _ = baseline_of(
        plan, [result_with('a={"order": 1, "at": 5}'), result_with('a={"at": 6, "order": 1}')]
    )
    assert baseline is not None
    [problem] = problems_of(plan, baseline, result_with('a={"order": 1}', 'a={"order": 1, "at": 7}'))
    assert problem.kind == "doubled"


LONG = "x" * 1000
ONE_ID, ANOTHER_ID = (json.dumps({"lines": [{"id": 1}, {"id": last}]}) for last in (2, 3))


@pytest.mark.parametrize(
    ("changes", "one", "another"),
    [
        pytest.param({}, f"a={LONG}1", f"a={LONG}2", id="the end of a long value"),
        pytest.param({"key": "lines[*].id"}, f"a={ONE_ID}", f"a={ANOTHER_ID}", id="a path with a star"),
        pytest.param({"ignore": ("headers",)}, f"a={ONE_ID}", f"a={ANOTHER_ID}", id="beside ignored headers"),
    ],
)
def test_what_differs_is_seen(changes: dict[str, Any], one: str, another: str) -> None:
    plan = ProofPlan(**{**PLAN.to_data(), **changes})
    baseline, _ = baseline_of(plan, [result_with(one), result_with(one)])
    assert baseline is not None
    assert problems_of(plan, baseline, result_with(one)) == []
    assert [problem.kind for problem in problems_of(plan, baseline, result_with(another))] == ["changed"]


def test_bytes_that_are_no_text_are_told_apart() -> None:
    results = [
        TrialResult((), records={"receipts": [Record("receipts", 0, 0, value, key)]})
        for key, value in ((b"\xf0", b"\xf1"), (b"\xf0", b"\xf2"), (b"\xf3", b"\xf1"))
    ]
    baseline, _ = baseline_of(PLAN, results[:1])
    assert baseline is not None
    assert [bool(problems_of(PLAN, baseline, one)) for one in results] == [False, True, True]


def test_a_path_that_begins_as_headers_do() -> None:
    plan = ProofPlan(**{**PLAN.to_data(), "ignore": ("header_id",)})
    one, two = (result_with(f'a={{"header_id": {number}}}') for number in (1, 2))
    assert baseline_of(plan, [one, two])[0] is not None


def test_a_judge_of_the_users_own() -> None:
    def judge(inputs: Any, outputs: Any) -> list[str]:
        total = sum(int(one.value) for one in outputs["receipts"])
        return [] if total == 6 else [f"the sum is {total}"]

    assert judged_problems(judge, result_with("a=1", "b=2", "a=3")) == []
    assert [one.text for one in judged_problems(judge, result_with("a=1"))] == ["the sum is 1"]
    with pytest.raises(InvalidArgumentError, match="it returned True; expected texts that say what is wrong"):
        judged_problems(lambda inputs, outputs: True, result_with("a=1"))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("found", "word", "kept"),
    [
        ((), "exactly once", ("exactly-once", "at-least-once", "at-most-once")),
        (("doubled",), "at least once", ("at-least-once",)),
        (("offsets",), "at least once", ("at-least-once",)),
        (("lost",), "at most once", ("at-most-once",)),
        (("lost", "doubled"), "lost and doubled", ()),
        (("changed",), "lost and doubled", ()),
        (("reordered",), "reordered", ("at-least-once", "at-most-once")),
        (("read what was aborted",), "read what was aborted", ()),
        (("stuck",), "stuck", ()),
        (("unfinished",), "unfinished", ("at-most-once",)),
    ],
)
def test_the_verdict_over_all_trials(found: tuple[str, ...], word: str, kept: tuple[str, ...]) -> None:
    assert word_of(found) == word
    promises = ("exactly-once", "at-least-once", "at-most-once")
    assert tuple(one for one in promises if is_kept(one, found)) == kept
