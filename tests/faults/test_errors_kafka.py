"""The response to a request that a rule refuses as a whole is the one of Kafka's ``getErrorResponse``, for every API
and version. Kafka's own classes are the judge (`ErrorOracle.java`).
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from oncelog.broker.faults.active_rule import ActiveRule
from oncelog.broker.faults.rule import parse_rule
from oncelog.broker.faults.words import LOGIN_APIS
from oncelog.broker.handlers.table import api_name
from oncelog.broker.refusal.row_refusal import Refusal
from oncelog.broker.refusal.rows import rows_of_request
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import Message, Struct
from tests.faults.filled_requests import CASES, api_of, requests_of
from tests.harness.kafka_oracle import Oracle

pytestmark = pytest.mark.slow

ORACLE = pathlib.Path(__file__).with_name("ErrorOracle.java")
ERRORS = (
    ("NOT_LEADER_OR_FOLLOWER", None),
    ("UNSUPPORTED_VERSION", None),
    ("NOT_LEADER_OR_FOLLOWER", "ours"),
    ("UNKNOWN_SERVER_ERROR", "ours"),
)
"""Errors and their messages: a rule's has none, a handler's may have one."""


QUESTIONS = [
    (name, version, error, message, request)
    for name, version in CASES
    for error, message in ERRORS
    if message is not None or api_name(name) not in LOGIN_APIS
    for request in requests_of(name, version)
]


def refused(name: str, version: int, error: str, message: str | None, request: Message) -> Any:
    """The response of a rule without filters; for an error with a message that of the dispatcher."""
    if message is not None:
        return api_of(name).refuse(request, version, KafkaError(ErrorCode[error], message))
    active = ActiveRule(1, parse_rule({"on": api_name(name), "error": error}), None, lambda: None)
    rows = rows_of_request(name, request, version, lambda _: None)
    return Refusal(api_of(name), version, rows, active, KafkaError(active.rule.value)).response()


@pytest.fixture(scope="module")
def kafkas(oracle: Oracle) -> dict[str, list[Any]]:
    """Kafka's responses, by the API's name."""
    given = "".join(
        f"{api_of(name).row.api_key} {version} {error} {message or '-'} {request.encode(version).hex()}\n"
        for name, version, error, message, request in QUESTIONS
    )
    found: dict[str, list[Any]] = {}
    answers = oracle(ORACLE, given.encode()).decode().split()
    for (name, version, error, message, request), answer in zip(QUESTIONS, answers, strict=True):
        response = api_of(name).response.decode(bytes.fromhex(answer), version)
        found.setdefault(name, []).append((version, error, message, request, response))
    return found


KAFKAS_TEXT = (
    "add_raft_voter",
    "alter_client_quotas",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
    "delete_share_group_state",
    "describe_configs",
    "describe_quorum",
    "describe_share_group_offsets",
    "find_coordinator",
    "initialize_share_group_state",
    "read_share_group_state",
    "read_share_group_state_summary",
    "remove_raft_voter",
    "unregister_broker",
    "unregister_controller",
    "write_share_group_state",
)
"""Whatever the error says, these have Kafka's own sentence about its code; InitializeShareGroupState and
DeleteShareGroupState have it where a right is missing, and nothing where ``getErrorResponse`` answers. oncelog puts the
error's message there.
"""


def plain(value: Any, *, with_messages: bool) -> Any:
    """A message as tables and lists, without the order of lists: some of Kafka's come out of hash tables."""
    if isinstance(value, Struct):
        return {
            field.name: plain(getattr(value, field.name), with_messages=with_messages)
            for field in value.FIELDS
            if with_messages or "error_message" not in field.name
        }
    if isinstance(value, list):
        return sorted((plain(one, with_messages=with_messages) for one in value), key=repr)
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_a_refused_request_gets_kafkas_response(name: str, kafkas: Any) -> None:
    with_messages = name not in KAFKAS_TEXT
    for version, error, message, request, kafkas_response in kafkas[name]:
        response = refused(name, version, error, message, request)
        sent = api_of(name).response.decode(response.encode(version), version)
        ours = plain(sent, with_messages=with_messages)
        assert ours == plain(kafkas_response, with_messages=with_messages), (version, error, message)
