"""DescribeClientQuotas and AlterClientQuotas; DescribeUserScramCredentials where there are none."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, QuotaAlteration
from oncelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)
from oncelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.harness.metadata_node import StandInNode

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID, UNSUPPORTED = ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("components", "code"), [
    ([], 0),
    ([("user", EXACT, "a"), ("client-id", SPECIFIED, None)], 0),
    ([("ip", DEFAULT, None)], 0),
    ([("ip", DEFAULT, None), ("user", SPECIFIED, None)], INVALID),
    ([("user", EXACT, "a"), ("user", EXACT, "b")], INVALID),
    ([("user", EXACT, None)], INVALID),
    ([("user", DEFAULT, "a")], INVALID),
    ([("user", 3, None)], INVALID),
    ([("", SPECIFIED, None)], INVALID),
    ([("group", SPECIFIED, None)], UNSUPPORTED),
])  # fmt: skip
def test_there_are_no_quotas(components: list[tuple[str, int, str | None]], code: int) -> None:
    request = DescribeClientQuotasRequest([ComponentData(*component) for component in components])
    response = StandInNode().call(request, 1)
    assert (response.error_code, response.entries) == (code, None if code else [])


def test_there_are_no_scram_credentials() -> None:
    node = StandInNode()
    nobody: list[UserName] | None
    for nobody in (None, []):
        response = node.call(DescribeUserScramCredentialsRequest(nobody), 0)
        assert (response.error_code, response.results) == (0, [])
    users = [UserName(name) for name in ("a", "b", "a")]
    rows = node.call(DescribeUserScramCredentialsRequest(users), 0).results
    missing, twice = ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE
    assert [(row.user, row.error_code) for row in rows] == [("a", twice), ("b", missing)]


Names = dict[str, str | None]


def alter(
    node: StandInNode, *entries: tuple[Names, dict[str, float | None]], validate_only: bool = False
) -> list[int]:
    """The error code of each entity."""
    rows = [
        QuotaAlteration(
            [EntityData(*pair) for pair in names.items()],
            [OpData(key, value or 0.0, value is None) for key, value in values.items()],
        )
        for names, values in entries
    ]
    response = node.call(AlterClientQuotasRequest(rows, validate_only), 1)
    return [row.error_code for row in response.entries]


def described(
    node: StandInNode, *components: tuple[str, int, str | None], strict: bool = False
) -> list[object]:
    request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
    return [
        (
            {name.entity_type: name.entity_name for name in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in node.call(request, 1).entries
    ]


ALICE: Names = {"user": "alice"}
ALICES_APP: Names = {"user": "alice", "client-id": "app"}
ANY_APP: Names = {"client-id": None}
ADDRESS: Names = {"ip": "10.0.0.1"}


def test_quotas_are_stored_and_found() -> None:
    node = StandInNode()
    entries: list[tuple[Names, dict[str, float | None]]] = [
        (ALICE, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
        (ALICES_APP, {"consumer_byte_rate": 1.0}),
        (ANY_APP, {"controller_mutation_rate": 0.5}),
        (ADDRESS, {"connection_creation_rate": 3.0}),
    ]
    assert alter(node, *entries, validate_only=True) == [0] * 4
    assert described(node) == []
    assert alter(node, *entries) == [0] * 4
    assert described(node) == entries
    assert described(node, ("user", EXACT, "alice")) == entries[:2]
    assert described(node, ("user", EXACT, "alice"), strict=True) == entries[:1]
    assert described(node, ("client-id", SPECIFIED, None)) == entries[1:3]
    assert described(node, ("client-id", DEFAULT, None)) == entries[2:3]
    assert described(node, ("ip", EXACT, "10.0.0.2")) == []
    written = len(node.records)
    assert alter(node, entries[0]) == [0]
    assert len(node.records) == written, "nothing has changed"
    assert alter(node, (ALICE, {"producer_byte_rate": None, "consumer_byte_rate": None})) == [0]
    assert described(node, *ALL_OF_ALICE, strict=True) == [(ALICE, {"request_percentage": 12.5})]
    assert alter(node, (ALICE, {"request_percentage": None})) == [0]
    assert described(node) == entries[1:]


ALL_OF_ALICE = (("user", EXACT, "alice"),)


@pytest.mark.parametrize(("names", "values"), [
    ({}, {"producer_byte_rate": 1.0}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({"group": "a"}, {"producer_byte_rate": 1.0}),
    ({"user": "a", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    ({"ip": "no address"}, {"connection_creation_rate": 1.0}),
    ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    ({"user": "a"}, {"connection_creation_rate": 1.0}),
    ({"user": "a"}, {"producer_byte_rat": 1.0}),
    ({"user": "a"}, {"producer_byte_rate": -1.0}),
    ({"user": "a"}, {"producer_byte_rate": 0.0}),
    ({"user": "a"}, {"producer_byte_rate": 1.5}),
    ({"user": "a"}, {"consumer_byte_rate": 1e19}),
    ({"ip": None}, {"connection_creation_rate": 2.0**31}),
])  # fmt: skip
def test_bad_alterations_are_refused_each_by_itself(names: Names, values: dict[str, float | None]) -> None:
    node = StandInNode()
    assert alter(node, (ALICE, {"producer_byte_rate": 1.0}), (names, values)) == [0, INVALID]
    assert described(node) == [(ALICE, {"producer_byte_rate": 1.0})]


def test_an_entity_twice_is_refused() -> None:
    node = StandInNode()
    assert alter(node, (ALICE, {"producer_byte_rate": 1.0}), (ALICE, {"consumer_byte_rate": 1.0})) == [
        INVALID
    ]
    ops = [OpData("producer_byte_rate", 2.0), OpData("producer_byte_rate", 3.0)]
    twice = AlterClientQuotasRequest([QuotaAlteration([EntityData("user", "bob")], ops)])
    assert [row.error_code for row in node.call(twice, 1).entries] == [INVALID]
    assert described(node, ("user", EXACT, "bob")) == []


def test_too_many_changes() -> None:
    node = StandInNode()
    entries = [({"user": str(number)}, {"producer_byte_rate": 1.0}) for number in range(10_001)]
    assert set(alter(node, *entries)) == {ErrorCode.POLICY_VIOLATION}  # type: ignore[arg-type]
    assert described(node) == []
