"""DescribeClientQuotas and DescribeUserScramCredentials: the results are empty, but requests are checked."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
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
