"""Regular expressions of clients: what they match, and what bounds the work."""

from __future__ import annotations

import gc

import pytest
import re2  # type: ignore[import-untyped]

from oncelog.coordinator.regular_expressions import (
    MATCH_WORK_MAX,
    ExpressionError,
    RegularExpression,
    steps_of,
)


def test_whole_texts_match() -> None:
    texts = ["t", "ta", "at", "\u00e9"]
    for expression, found in (("t", {"t"}), ("t.*", {"t", "ta"}), ("", set()), ("(?i)T", {"t"})):
        assert set(filter(RegularExpression(expression).matches, texts)) == found
    for expression in (".", "\\pL", "\u00e9", "[\u00e8-\u00ea]"):
        assert RegularExpression(expression).matches("\u00e9")


def test_a_slow_expression_is_not_slow() -> None:
    """An expression for which a backtracking matcher takes exponential time."""
    assert not RegularExpression("(a*)*(a*)*b").matches("a" * 200)


def test_the_work_of_a_match_is_bounded() -> None:
    large = RegularExpression(".*a" * 100)
    assert large.work("b" * 250) < MATCH_WORK_MAX
    large.matches("b" * 250)
    with pytest.raises(ExpressionError, match="too large for a text of 32767 characters"):
        large.matches("b" * 32_767)
    assert RegularExpression("app-.*").matches("app-" + "b" * 32_763)


def test_what_costs_more_has_more_steps() -> None:
    small, large = RegularExpression("t-.*"), RegularExpression("[^\\pL]" * 9)
    assert len(list(steps_of(small.compile_work))) < 3
    assert len(list(steps_of(large.compile_work))) > 100
    assert large.work("t" * 200) > 50 * small.work("t" * 200)


@pytest.mark.slow
def test_nothing_of_an_expression_stays() -> None:
    program = type(re2.compile("x"))
    expressions = [RegularExpression(f"t-{number}") for number in range(5)]
    assert living(program) >= 5
    del expressions
    assert living(program) <= 3, "those of re2 itself, and the one above"


def living(kind: type) -> int:
    gc.collect()
    return sum(isinstance(one, kind) for one in gc.get_objects())


@pytest.mark.parametrize("expression", ["a(", "(?=a)", "\udc80", "a" * 8193, "{" * 51])
def test_what_is_none(expression: str) -> None:
    with pytest.raises(ExpressionError):
        RegularExpression(expression)
