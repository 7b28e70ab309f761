"""`oncelog.prove` with bad input: an error that names the argument as Python has it."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest

import oncelog
from oncelog.broker.prove.plan import ProofPlan, new_record, record_data

GOOD: dict[str, Any] = {
    "topics": ["orders", "receipts"],
    "inputs": {"orders": ["tea"]},
    "outputs": "receipts",
}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topics": "orders"}, r"topics='orders': expected names, or partitions by name"),
        ({"inputs": ["tea"]}, r"inputs=\['tea'\]: expected records by topic"),
        ({"inputs": {"orders": "tea"}}, r"inputs=\{'orders': 'tea'\}: expected a list of records"),
        ({"inputs": {"orders": []}}, "input orders: there are no records"),
        ({"inputs": {}}, r"there is no input: .*inputs="),
        ({"outputs": ()}, r"there is no output: .*outputs="),
        ({"outputs": "recipts"}, "output recipts: there is no topic 'recipts'; did you mean receipts"),
        ({"instances": 9}, "instances 9: expected 1 to 8"),
        ({"nodes": 0}, "nodes 0: expected 1 to 9"),
        (
            {"nodes": 3, "upstream": "kafka:9092"},
            "nodes 3: they are for brokers of oncelog, not for the cluster",
        ),
        ({"config": {"log.dirs": "/x"}, "upstream": "kafka:9092"}, "log.dirs is for a broker of oncelog"),
        ({"quiet": 0}, "quiet 0: expected more than 0 and less than 3600 seconds"),
        ({"key": ""}, "--key: '' is no path in a JSON value"),
        ({"from_snapshot": "x", "upstream": "kafka:9092"}, "a snapshot is for brokers of oncelog"),
        ({"mechanism": "OAUTHBEARER"}, "mechanism OAUTHBEARER: expected one of "),
        ({"user": "billing"}, "user: expected a pair of name and password"),
        ({"user": ("billing", "")}, "the program logs in as billing, and findings have no passwords"),
        ({"judge": "check"}, "judge='check': expected a function"),
        ({"promise": "once"}, "promise='once': expected one of exactly-once, "),
        ({"again": "no.json"}, "no.json: No such file or directory"),
    ],
)
def test_a_mistake_is_named(given: dict[str, Any], error: str) -> None:
    with pytest.raises(oncelog.OncelogError, match=error):
        oncelog.prove(["sh", "-c", "exit"], **{**GOOD, **given})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tea", "is no finding of oncelog prove"),
        ("[]", "is no finding of oncelog prove"),
        ('{"format": 1}', "is no finding of oncelog prove"),
        ('{"format": 9, "disturbances": [], "plan": {}}', "has format 9, and this release reads 1"),
        (
            '{"format": 1, "disturbances": [{"kind": "flood"}], "plan": {}}',
            "is no disturbance of oncelog prove",
        ),
    ],
)
def test_a_file_that_is_no_finding(text: str, error: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "1.json"
    file.write_text(text)
    with pytest.raises(oncelog.InvalidArgumentError, match=error):
        oncelog.prove(["sh", "-c", "exit"], again=file, **GOOD)


def test_a_plan_is_what_its_data_say() -> None:
    """Its file repeats the trial with the same snapshot and the same bytes."""
    headers = [("id", b"\xfe"), ("of", b"text"), ("none", None)]
    inputs = {"orders": (record_data({"value": b"\xff", "key": b"tea", "headers": headers}),)}
    plan = ProofPlan(("app",), {"orders": 1}, inputs, ("orders",), from_snapshot="orders.oncelog")
    again = ProofPlan.of_data(json.loads(json.dumps(plan.to_data())))
    assert again == plan
    [record] = again.inputs["orders"]
    found = new_record(record)
    assert (found.value, found.key, list(found.headers)) == (b"\xff", b"tea", headers)
    assert ProofPlan.of_data(replace(plan, from_snapshot=b"content").to_data()).from_snapshot is None
