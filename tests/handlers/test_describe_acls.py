"""DescribeAcls, CreateAcls, DeleteAcls: with an authorizer, and without one; unknown types end the connection."""

from __future__ import annotations

import itertools

import pytest

from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.metadata.acl_changes import CHANGES_MAX
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.security.acls import StandardAuthorizer
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from oncelog.wire.schema import Message
from tests.harness.metadata_node import StandInNode
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated_work

ANY, UNKNOWN, MATCH, LITERAL, PREFIXED = 1, 0, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, ALTER, ALLOW, DENY = 3, 7, 3, 2
DISABLED, INVALID = ErrorCode.SECURITY_DISABLED, ErrorCode.INVALID_REQUEST
ALL_ACLS = (ANY, None, ANY, None, None, ANY, ANY)


class AuthorizingNode(StandInNode):
    """A node with an authorizer, which only has to be there."""

    def __init__(self) -> None:
        super().__init__()
        self.authorization.authorizer = StandardAuthorizer()

    def create(self, *rows: tuple[int, str, int, str, str, int, int]) -> list[int]:
        results = self.call(CreateAclsRequest([AclCreation(*row) for row in rows]), 3).results
        return [row.error_code for row in results]

    def describe(self, *wanted: object) -> list[tuple[object, ...]]:
        resources = self.call(DescribeAclsRequest(*wanted), 3).resources  # type: ignore[arg-type]
        return [
            (
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for one in resources
            for acl in one.acls
        ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer(version: int) -> None:
    node = StandInNode()
    response = node.call(DescribeAclsRequest(*ALL_ACLS), version)
    assert (response.error_code, response.resources) == (DISABLED, [])
    creation = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    results = node.call(CreateAclsRequest([creation] * 3), version).results
    assert [row.error_code for row in results] == [DISABLED] * 3
    wanted = DeleteAclsFilter(*ALL_ACLS)
    rows = node.call(DeleteAclsRequest([wanted] * 2), version).filter_results
    assert [(row.error_code, row.matching_acls) for row in rows] == [(DISABLED, [])] * 2
    assert not node.call(DeleteAclsRequest(), version).filter_results


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("node", [StandInNode, AuthorizingNode])
def test_unknown_kinds(place: int, node: type[StandInNode]) -> None:
    kinds = [2, 3, 3, 3]
    kinds[place] = UNKNOWN
    requests: list[Message] = [
        DescribeAclsRequest(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:]),
        CreateAclsRequest([AclCreation(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:])]),
        DeleteAclsRequest([DeleteAclsFilter(kinds[0], "t", kinds[1], "User:a", "*", *kinds[2:])]),
    ]
    for request in requests:
        with pytest.raises(CloseConnection):
            node().call(request, 3)


ROWS = [
    (TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW),
    (TOPIC, "t", LITERAL, "User:b", "10.0.0.1", READ, DENY),
    (TOPIC, "*", LITERAL, "User:a", "*", READ, ALLOW),
    (TOPIC, "te", PREFIXED, "User:a", "*", READ, ALLOW),
    (GROUP, "t", LITERAL, "User:a", "*", ALTER, ALLOW),
    (CLUSTER, "kafka-cluster", LITERAL, "User:a", "*", ALTER, ALLOW),
]


def test_what_is_created_is_described_and_deleted_by_filters() -> None:
    node = AuthorizingNode()
    assert node.create(*ROWS, ROWS[0]) == [0] * 7
    assert node.create(ROWS[1]) == [0]
    assert len(node.records) == len(ROWS)
    assert sorted(node.describe(*ALL_ACLS)) == sorted(ROWS)
    assert node.describe(TOPIC, "t", LITERAL, None, None, ANY, ANY) == ROWS[:2]
    assert node.describe(TOPIC, "t", MATCH, None, None, ANY, ANY) == ROWS[:3]
    assert node.describe(TOPIC, "test", MATCH, None, None, ANY, ANY) == ROWS[2:4]
    assert node.describe(TOPIC, "te", ANY, None, None, ANY, ANY) == ROWS[3:4]
    assert node.describe(ANY, None, ANY, "User:b", "10.0.0.1", READ, DENY) == ROWS[1:2]
    assert node.describe(ANY, None, ANY, "User:b", "*", READ, DENY) == []
    assert node.describe(99, None, ANY, None, None, ANY, ANY) == []
    filters = [
        DeleteAclsFilter(TOPIC, "test", MATCH, None, None, ANY, ANY),
        DeleteAclsFilter(TOPIC, None, ANY, None, None, READ, 9),
        DeleteAclsFilter(TOPIC, None, ANY, "User:a", None, READ, ANY),
    ]
    found = node.call(DeleteAclsRequest(filters), 3).filter_results
    assert [(one.error_code, len(one.matching_acls)) for one in found] == [(0, 2), (INVALID, 0), (0, 3)]
    assert node.describe(*ALL_ACLS) == [ROWS[1], *ROWS[4:]]


def test_what_cannot_be_created() -> None:
    node = AuthorizingNode()
    bad = [
        (CLUSTER, "other", LITERAL, "User:a", "*", READ, ALLOW),
        (TOPIC, "", LITERAL, "User:a", "*", READ, ALLOW),
        (ANY, "t", LITERAL, "User:a", "*", READ, ALLOW),
        (8, "t", LITERAL, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", MATCH, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "a", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "*", ANY, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "*", 16, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "*", READ, ANY),
        (TOPIC, "t", LITERAL, "User:a", "*", READ, -1),
    ]
    rows = list(itertools.chain.from_iterable((row, ROWS[0]) for row in bad))
    assert node.create(*rows) == [INVALID, 0] * len(bad)
    assert node.describe(*ALL_ACLS) == ROWS[:1]


def test_a_request_changes_a_limited_number() -> None:
    node = AuthorizingNode()
    rows = [(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW) for number in range(CHANGES_MAX + 1)]
    assert set(node.create(*rows)) == {ErrorCode.POLICY_VIOLATION}
    assert set(node.create(*rows[1:], rows[1])) == {0}
    assert node.create(rows[0]) == [0]
    wanted = [DeleteAclsFilter(GROUP, None, ANY, None, None, ANY, ANY), DeleteAclsFilter(*ALL_ACLS)]
    found = node.call(DeleteAclsRequest(wanted), 3).filter_results
    assert [(one.error_code, one.matching_acls) for one in found] == [(INVALID, [])] * 2
    assert len(node.describe(*ALL_ACLS)) == len(rows)


def test_many_acls_are_described_and_deleted_in_slices() -> None:
    """Another client has its turn before the response, and what it deletes meanwhile is no error."""

    async def others_turn(
        client: SimClient, other: SimClient, request: Message, response: type[Message]
    ) -> None:
        await client.send(request, 3)
        await other.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert client.unread() == 0

    @simulated_work(steps=1)
    async def run() -> None:
        config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
        async with SimBroker(config=config) as broker:
            client, other = broker.connect(), broker.connect()
            rows = [
                AclCreation(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW) for number in range(300)
            ]
            created = await client.call(CreateAclsRequest(rows), 3, CreateAclsResponse)
            assert {row.error_code for row in created.results} == {0}
            await others_turn(client, other, DescribeAclsRequest(*ALL_ACLS), DescribeAclsResponse)
            assert len((await client.receive(DescribeAclsResponse, 3)).resources) == 300

            everything = DeleteAclsFilter(*ALL_ACLS)
            await others_turn(client, other, DeleteAclsRequest([everything] * 2), DeleteAclsResponse)
            one = DeleteAclsFilter(TOPIC, "t7", LITERAL, None, None, ANY, ANY)
            await other.call(DeleteAclsRequest([one]), 3, DeleteAclsResponse)
            results = (await client.receive(DeleteAclsResponse, 3)).filter_results
            assert [len(result.matching_acls) for result in results] == [300, 300]
            assert not broker.node.metadata.image.acls.by_id

    run()
