"""DescribeAcls, CreateAcls, DeleteAcls: all rows say that there is no authorizer; unknown types end the connection."""

from __future__ import annotations

import pytest

from oncelog.broker.request import CloseConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from oncelog.wire.schema import Message
from tests.harness.metadata_node import StandInNode

ANY, UNKNOWN = 1, 0
DISABLED = ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer(version: int) -> None:
    node = StandInNode()
    response = node.call(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), version)
    assert (response.error_code, response.resources) == (DISABLED, [])
    creation = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    results = node.call(CreateAclsRequest([creation] * 3), version).results
    assert [row.error_code for row in results] == [DISABLED] * 3
    wanted = DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    rows = node.call(DeleteAclsRequest([wanted] * 2), version).filter_results
    assert [(row.error_code, row.matching_acls) for row in rows] == [(DISABLED, [])] * 2
    assert not node.call(DeleteAclsRequest(), version).filter_results


@pytest.mark.parametrize("place", range(4))
def test_unknown_kinds(place: int) -> None:
    kinds = [2, 3, 3, 3]
    kinds[place] = UNKNOWN
    requests: list[Message] = [
        DescribeAclsRequest(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:]),
        CreateAclsRequest([AclCreation(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:])]),
        DeleteAclsRequest([DeleteAclsFilter(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:])]),
    ]
    for request in requests:
        with pytest.raises(CloseConnection):
            StandInNode().call(request, 3)
