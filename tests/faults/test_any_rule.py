"""Whatever is written as a rule is either a rule, and follows the schema, or a RuleError."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.faults.files import RuleFileError, load_rules
from oncelog.broker.faults.rule import parse_rule
from oncelog.broker.faults.schema import rule_schema
from oncelog.broker.faults.words import WORDS, RuleError
from oncelog.broker.handlers.table import api_names

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        [*api_names(), *WORDS, "close", "hang", "NOT_LEADER_OR_FOLLOWER", "*", "3-5", "9+", "after append"]
    ),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)
)

# Mostly right, so that some are.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "on": st.sampled_from(["*", "Produce", "Fetch", "EndTxn", "ListGroups", ["Produce", "Fetch"]]),
    "topic": st.sampled_from(["t", ["t", "u"]]),
    "version": st.sampled_from([9, "4", "3-5", "4+", [3, "9+"]]),
    "partition": st.sampled_from([0, [0, 1]]),
    "nth": st.integers(0, 3),
    "with_probability": st.floats(-0.5, 1.5),
    "seed": st.integers(),
    "error": st.sampled_from(["NOT_COORDINATOR", "NONE", "NOT_LEADER"]),
    "delay_ms": st.floats(-1, 10),
    "drop_response": st.sampled_from(["close", "hang", True]),
    "hold": st.booleans(),
    "crash_at": st.sampled_from(["after append", "before response", "append"]),
}
LESS = {word: values for word, values in LIKELY.items() if word != "on"}
RULES = st.one_of(
    st.fixed_dictionaries({}, optional={word: st.one_of(LIKELY.get(word, VALUES), VALUES) for word in WORDS}),
    st.fixed_dictionaries({"on": LIKELY["on"]}, optional=LESS),
    VALUES,
)
VALIDATOR = jsonschema.Draft202012Validator(rule_schema())


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(RULES)
def test_a_rule_or_an_error(data: Any) -> None:
    wrong: RuleError | None = None
    try:
        rule = parse_rule(data)
    except RuleError as error:
        wrong = error
    if wrong is not None:
        assert str(wrong)
        assert wrong.word is None or wrong.word in data
        return
    VALIDATOR.validate(data)
    assert parse_rule(rule.data) == rule
    assert rule.text


@settings(max_examples=60, deadline=None)
@given(st.lists(RULES, max_size=3), st.integers(0, 200), st.sampled_from(["r.json", "r.toml", "r.yaml"]))
def test_a_file_or_an_error(rules: list[Any], cut: int, name: str) -> None:
    text = json.dumps({"rules": rules}, indent=1)
    with suppress(RuleFileError):
        load_rules(text, name)
    with suppress(RuleFileError):
        load_rules(text[:cut], name)
