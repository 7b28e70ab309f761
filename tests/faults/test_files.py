"""Files of rules: their formats, the line of a mistake, and the schema that is published."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import jsonschema
import pytest

from oncelog.broker.faults.files import RuleFileError, load_rules
from oncelog.broker.faults.rule import TargetLimits, parse_rule
from oncelog.broker.faults.schema import rule_schema, rules_schema
from oncelog.broker.faults.words import WORDS, RuleError
from tests.faults.test_rules import WRONG

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "reference"

RULES: list[dict[str, Any]] = [
    {"on": "EndTxn", "transactional_id": "a", "nth": 2, "drop_response": "close"},
    {"on": ["Produce", "Fetch"], "topic": ["t", "u"], "partition": 0, "error": "NOT_LEADER_OR_FOLLOWER"},
    {"on": "*", "client_id": "app", "version": "3-5", "delay_ms": 20, "with_probability": 0.1, "seed": 7},
    {"on": "Fetch", "version": [4, "9+"], "damage_crc": True, "always": True},
    {"on": "Produce", "topic": "later", "topic_exists": False, "drop_request": "hang", "every": 3},
    {"on": "Produce", "duplicate": True, "first": 1, "listener": "PLAINTEXT"},
    {"pause": True, "client_id": "zombie"},
    {"refuse_connections": True, "nth": 1},
]

AS_TOML = """\
# Comments and quotes are TOML's.
[[rules]]
on = "EndTxn"
transactional_id = "a"
nth = 2
drop_response = "close"

[[rules]]
on = ["Produce", "Fetch"]
topic = ["t", "u"]
partition = 0
error = "NOT_LEADER_OR_FOLLOWER"

[[rules]]
on = "*"
client_id = "app"
version = "3-5"
delay_ms = 20
with_probability = 0.1
seed = 7
"""

AS_YAML = """\
rules:
  - on: EndTxn
    transactional_id: a
    nth: 2
    drop_response: close
  - on: [Produce, Fetch]
    topic: [t, u]
    partition: 0
    error: NOT_LEADER_OR_FOLLOWER
  - {on: "*", client_id: app, version: 3-5, delay_ms: 20, with_probability: 0.1, seed: 7}
"""


def test_the_formats_have_the_same_words() -> None:
    expected = [parse_rule(rule) for rule in RULES[:3]]
    assert load_rules(json.dumps({"rules": RULES[:3]}), "r.json") == expected
    assert load_rules(AS_TOML, "r.toml") == expected
    assert load_rules(AS_YAML, "r.yaml") == load_rules(AS_YAML, "R.YML") == expected


JSON_START = '{"$schema": "x [", "rules": [\n {"on": "Fetch", "hold": true},\n {\n  "on": "Fetch",\n  "topic": "a,{",\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "r.json",
            JSON_START + '  "nth": 0, "hold": true}]}',
            "r.json, line 6, rule 2: nth is a number from 1 on, not 0",
        ),
        (
            "r.json",
            JSON_START + '  "nth": 1}]}',
            "r.json, line 3, rule 2: the rule says nothing to do: one of",
        ),
        ("r.json", '{"rules": [\n7]}', "r.json, line 2, rule 1: a rule is a table of words, not 7"),
        ("r.json", '{"rules": [\n,]}', "r.json, line 2, column 1: Expecting value"),
        ("r.json", '{"rules": [], "rules": []}', "r.json: 'rules' stands twice in one table"),
        ("r.json", '{"rule": []}', 'r.json: the rules are a list under "rules"'),
        ("r.json", "[]", 'r.json: the rules are a list under "rules"'),
        ("r.json", '{"rules": [], "rulez": 1}', "r.json: unknown word 'rulez': did you mean rules?"),
        (
            "r.toml",
            AS_TOML.replace("NOT_LEADER_OR_FOLLOWER", "NOT_LEADER"),
            "r.toml, line 12, rule 2: unknown error 'NOT_LEADER'",
        ),
        ("r.toml", AS_TOML.replace("delay_ms = 20\n", ""), "r.toml, line 14, rule 3: the rule says nothing"),
        ("r.toml", 'rules = [{on = "X", hold = true}]', "r.toml, rule 1: unknown API 'X'"),
        ("r.toml", "rules = \n", "r.toml: Invalid value (at line 1, column 9)"),
        ("r.yaml", AS_YAML.replace("EndTxn", "EndTx"), "r.yaml, line 2, rule 1: unknown API 'EndTx'"),
        ("r.yaml", AS_YAML.replace("seed", "sead"), "r.yaml, line 10, rule 3: unknown word 'sead'"),
        (
            "r.yaml",
            "rules: [",
            "r.yaml, line 1, column 9: expected the node content, but found '<stream end>'",
        ),
        ("r.yaml", "", 'r.yaml: the rules are a list under "rules"'),
        ("r.txt", "", "r.txt: a file of rules ends in .json, .toml, .yaml or .yml"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_word(name: str, text: str, message: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        load_rules(text, name)
    assert str(caught.value).startswith(message)


def test_a_listener_that_the_target_does_not_have_is_named_with_its_line() -> None:
    rule = '{"rules": [{"on": "Fetch",\n"listener": ["INTERNAL", "plaintext"],\n"hold": true}]}'
    [loaded] = load_rules(rule, "r.json")
    assert loaded.filters["listener"] == ("INTERNAL", "plaintext")
    target = TargetLimits(listeners=["INTERNAL", "PLAINTEXT"])
    with pytest.raises(RuleFileError) as caught:
        load_rules(rule, "r.json", target)
    told = "r.json, line 2, rule 1: listener 'plaintext' does not exist: did you mean PLAINTEXT?"
    assert str(caught.value) == told
    refuse = '[[rules]]\nrefuse_connections = true\nlistener = "EXTERNAL-EAST"'
    with pytest.raises(RuleFileError, match=r"line 3, .*does not exist \(there are SASL, PLAINTEXT\)"):
        load_rules(refuse, "r.toml", TargetLimits(listeners=["SASL", "PLAINTEXT"]))


def test_without_pyyaml_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(RuleFileError, match="YAML needs PyYAML: pip install 'pyyaml>=6'"):
        load_rules(AS_YAML, "r.yaml")


def test_the_published_schema_is_current() -> None:
    """``python -m oncelog.broker.faults.schema > docs/reference/faults.schema.json`` makes it so."""
    assert json.loads((DOCS / "faults.schema.json").read_text()) == rules_schema()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_that_make_sense_follow_the_schema(rule: dict[str, Any]) -> None:
    parse_rule(rule)
    jsonschema.validate({"rules": [rule]}, rules_schema())


# What depends on the API is not in the schema.
NOT_IN_THE_SCHEMA = (
    "is served in",
    "names no",
    "is only for",
    "responses have no",
    "of these versions",
    "combined with",
    "means no version",
)


@pytest.mark.parametrize(("rule", "message"), [(rule, text) for rule, _, text in WRONG], ids=str)
def test_rules_that_make_no_sense_violate_the_schema(rule: Any, message: str) -> None:
    with pytest.raises(RuleError):
        parse_rule(rule)
    violations = list(jsonschema.Draft202012Validator(rule_schema()).iter_errors(rule))
    assert bool(violations) != any(text in message for text in NOT_IN_THE_SCHEMA)


def test_the_words_on_the_page_are_those_of_the_code() -> None:
    page = (DOCS / "faults.md").read_text()
    rows = [f"| `{name}` | {word.kind} | {word.text} |" for name, word in WORDS.items()]
    assert "\n".join(["|---|---|---|", *rows, ""]) in page
