"""The response to a request that a rule refuses as a whole is the one of Kafka's ``getErrorResponse``, for every API
and version. Kafka's own classes are the judge (`ErrorOracle.java`).
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from oncelog.broker.faults.active_rule import ActiveRule
from oncelog.broker.faults.refusal import Refusal
from oncelog.broker.faults.rows import locate
from oncelog.broker.faults.rule import parse_rule
from oncelog.broker.faults.words import api_name
from oncelog.wire.schema import Message, Struct
from tests.faults.filled_requests import CASES, api_of, requests_of
from tests.harness.kafka_oracle import ask_oracle

pytestmark = pytest.mark.slow

ORACLE = pathlib.Path(__file__).with_name("ErrorOracle.java")
ERRORS = ("NOT_LEADER_OR_FOLLOWER", "UNSUPPORTED_VERSION")


QUESTIONS = [
    (name, version, error, request)
    for name, version in CASES
    for error in ERRORS
    for request in requests_of(name, version)
]


def refused(name: str, version: int, error: str, request: Message) -> Any:
    """The response of a rule without filters."""
    active = ActiveRule(1, parse_rule({"on": api_name(name), "error": error}), None, lambda: None)
    return Refusal(api_of(name), version, locate(name, request, version, lambda _: None), active).response()


@pytest.fixture(scope="module")
def kafkas() -> dict[str, list[tuple[int, str, Message, Any]]]:
    """Kafka's responses, by the API's name."""
    given = "".join(
        f"{api_of(name).handler.api_key} {version} {error} {request.encode(version).hex()}\n"
        for name, version, error, request in QUESTIONS
    )
    found: dict[str, list[tuple[int, str, Message, Any]]] = {}
    answers = ask_oracle(ORACLE, given=given.encode()).decode().split()
    for (name, version, error, request), answer in zip(QUESTIONS, answers, strict=True):
        response = api_of(name).response.decode(bytes.fromhex(answer), version)
        found.setdefault(name, []).append((version, error, request, response))
    return found


DIFFERENT = {
    "create_delegation_token": "from version 3 on Kafka names nobody as the one who has asked",
    "alter_user_scram_credentials": "the rows of deletions are missing: rows come from one list here",
    "list_partition_reassignments": "Kafka repeats the topics, of which nothing is known",
    "describe_user_scram_credentials": "Kafka adds a row without a user for each user",
}
"""What Kafka adds to the error of the whole request, and no client reads."""


def plain(value: Any) -> Any:
    """A message as tables and lists, without the texts of its errors, and without the order of lists: some of Kafka's
    come out of hash tables.
    """
    if isinstance(value, Struct):
        return {
            field.name: plain(getattr(value, field.name))
            for field in value.FIELDS
            if "error_message" not in field.name
        }
    if isinstance(value, list):
        return sorted((plain(one) for one in value), key=repr)
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_a_refused_request_gets_kafkas_response(name: str, kafkas: Any) -> None:
    for version, error, request, kafkas_response in kafkas[name]:
        response = refused(name, version, error, request)
        sent = api_of(name).response.decode(response.encode(version), version)
        ours, theirs = plain(sent), plain(kafkas_response)
        if name in DIFFERENT and "error_code" not in ours:
            assert all(row in theirs["results"] for row in ours["results"])
        elif name in DIFFERENT:
            assert ours["error_code"] == theirs["error_code"] != 0
        else:
            assert ours == theirs, (version, error)
