"""An error for some rows of a request, for every API and version that has rows: only they are refused, and the response
has all rows in the order of the request.
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.faults.active_rule import ActiveRule
from oncelog.broker.faults.rule import parse_rule
from oncelog.broker.handlers.table import api_name
from oncelog.broker.refusal.row_refusal import Refusal, copy_of
from oncelog.broker.refusal.rows import FACTS, Row, depths_of, levels_of, rows_of_request
from oncelog.wire.errors import KafkaError
from oncelog.wire.schema import Struct
from tests.faults.filled_requests import CASES, api_of, requests_of

CODE = 6

# Their responses tell of the whole request only, whatever rows it names.
WITHOUT_ROWS = ("describe_log_dirs", "list_partition_reassignments")

ROW_CASES = [
    (name, version, fact)
    for name, version in CASES
    for fact, depth in depths_of(name, api_of(name).request, version).items()
    if depth > 0 and name not in WITHOUT_ROWS
]
NAMES = sorted({name for name, _, _ in ROW_CASES})


def cases_of(wanted: str) -> list[tuple[int, str]]:
    return [(version, fact) for name, version, fact in ROW_CASES if name == wanted]


def names(topic_id: bytes) -> str:
    return f"topic {topic_id.hex()}"


def refusal(name: str, version: int, request: Any, **filters: Any) -> Refusal:
    rule = parse_rule({"on": api_name(name), "error": "NOT_LEADER_OR_FOLLOWER", **filters})
    active = ActiveRule(1, rule, None, lambda: None)
    rows = rows_of_request(name, request, version, names)
    return Refusal(api_of(name), version, rows, active, KafkaError(active.rule.value))


def handled(name: str, version: int, request: Any) -> Any:
    """What a handler might return: a row for each row, without errors."""
    levels = levels_of(name, api_of(name).request, version)
    response = api_of(name).response()
    whole = rows_of_request(name, request, version, names).whole

    def fill(told: Any, row: Row, depth: int) -> None:
        if depth == len(levels):
            return
        rows = levels[depth]
        for inner in row.inner:
            if rows.response is None:
                fill(told, inner, depth + 1)
                continue
            struct = next(field.element for field in told.FIELDS if field.name == rows.response)
            made = struct()
            if getattr(made, "records", b"") is None:
                made.records = b""  # a ShareFetch must have some
            for field, value in inner.key.items():
                if hasattr(made, field):
                    setattr(made, field, value)
            getattr(told, rows.response).append(made)
            fill(made, inner, depth + 1)

    fill(response, whole, 0)
    return response


def errors_of(value: Any) -> list[int]:
    """Every error code of the rows, in order."""
    if isinstance(value, list):
        return [code for one in value for code in errors_of(one)]
    if not isinstance(value, Struct):
        return []
    own = [getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)]
    lists = [getattr(value, field.name) for field in value.FIELDS if field.kind == "array"]
    return own + [code for one in lists for code in errors_of(one)]


GROUPS_WITH_TOPICS = ("offset_fetch", "describe_share_group_offsets")
"""A group that is refused has no topics."""
IDENTIFYING = ("index", "partition", "partition_index", "partition_id", "producer_id", "resource_type")


def without_codes(value: Any, name: str) -> Any:
    """What the rows say beside results: their names, in order."""
    if isinstance(value, Struct):
        return {
            field.name: without_codes(getattr(value, field.name), name)
            for field in value.FIELDS
            if field.kind in ("array", "string", "uuid") or field.name in IDENTIFYING
            if field.name != "error_message"
            if name not in GROUPS_WITH_TOPICS or field.name != "topics" or not hasattr(value, "group_id")
        }
    return [without_codes(one, name) for one in value] if isinstance(value, list) else value


def request_naming(name: str, version: int, fact: str) -> Any:
    request: Any = requests_of(name, version)[0]
    if fact == "transactional_id" and name == "find_coordinator":
        request.key_type = 1
    elif fact == "group" and name.endswith("_configs"):
        for resource in request.resources:
            resource.resource_type = 32
    return request


def leaves(name: str, version: int, request: Any) -> list[Row]:
    return list(rows_of_request(name, request, version, names).whole.leaves())


@pytest.mark.parametrize("name", NAMES)
def test_an_error_for_some_rows(name: str) -> None:
    for version, fact in cases_of(name):
        refuse_some(name, version, fact)


def refuse_some(name: str, version: int, fact: str) -> None:
    request = request_naming(name, version, fact)
    chosen = next(row.facts[fact] for row in reversed(leaves(name, version, request)) if fact in row.facts)
    before = copy_of(request)
    one = refusal(name, version, request, **{fact: chosen})
    assert not one.leaves_nothing
    remaining = one.remaining()
    if name != "fetch":  # all of it is read, for the sake of the fetch session
        kept = [row.facts.get(fact) for row in leaves(name, version, remaining)]
        assert kept == [
            row.facts.get(fact) for row in leaves(name, version, request) if row.facts[fact] != chosen
        ]
    response = one.response(handled(name, version, remaining))
    assert one.is_placed
    assert request == before
    whole = handled(name, version, request)
    assert without_codes(response, name) == without_codes(whole, name)
    codes = errors_of(response)
    assert set(codes) == {0, CODE}
    # As many rows as were named, at the place where the API has errors.
    named = [row for row in leaves(name, version, request) if row.facts.get(fact) == chosen]
    assert 1 <= codes.count(CODE) <= len(named)
    decoded = api_of(name).response.decode(response.encode(version), version)
    assert errors_of(decoded) == errors_of(response)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_for_all_rows_of_a_name(name: str) -> None:
    """Nothing is left to be handled, and only rows have the error."""
    for version, fact in cases_of(name):
        refuse_all(name, version, fact)


def refuse_all(name: str, version: int, fact: str) -> None:
    request = request_naming(name, version, fact)
    every = sorted({row.facts[fact] for row in leaves(name, version, request) if fact in row.facts})
    one = refusal(name, version, request, **{fact: every})
    if name in ("fetch", "share_fetch", "metadata"):  # the rest of their responses matters
        response = one.response(handled(name, version, one.remaining()))
    else:
        assert one.leaves_nothing
        response = one.response()
    assert without_codes(response, name) == without_codes(handled(name, version, request), name)
    assert getattr(response, "error_code", 0) == 0


def test_every_kind_of_row_is_tested() -> None:
    assert {fact for _, _, fact in ROW_CASES} == set(FACTS)
    assert len(NAMES) == 40
