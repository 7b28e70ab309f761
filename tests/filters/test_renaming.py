"""Other names for topics, groups and transactional ids: one to one, in both directions, and nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

import oncelog
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.loading import install_filters, load_filter
from oncelog.broker.filters.names import Prefix
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from oncelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, list_offset, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import SimProxy

__all__ = ["lines"]  # a fixture

TENANT = "a."
LITERAL, PREFIXED, ANY_PATTERN = 3, 4, 1
TOPIC, GROUP = 2, 3
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
EVERYBODY = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}


async def find_coordinators(broker: SimBroker) -> SimClient:
    """Have the internal topics created, and a topic; return a client."""
    client = broker.connect(client_id="admin")
    for key_type in (0, 1):
        await client.call(FindCoordinatorRequest(key="k", key_type=key_type), 3, FindCoordinatorResponse)
    await create_topic(client, "t")
    return client


async def commit(client: SimClient, group: str, topic: str = "t") -> int:
    rows = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    response = await client.call(OffsetCommitRequest(group, topics=rows), 8, OffsetCommitResponse)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def groups(client: SimClient) -> set[str]:
    response = await client.call(ListGroupsRequest(), 4, ListGroupsResponse)
    return {row.group_id for row in response.groups}


async def topics(client: SimClient, *names: str) -> dict[str | None, int]:
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names] or None)
    request.allow_auto_topic_creation = False
    response = await client.call(request, 12, MetadataResponse)
    return {row.name: row.error_code for row in response.topics}


# -- by a table


@simulated
async def test_a_table_goes_both_ways() -> None:
    async with SimBroker() as broker:
        direct = broker.connect()
        for name in ("shop.orders", "orders", "bills"):
            await create_topic(direct, name)
        await produce(direct, "orders")
        await produce(direct, "shop.orders")
        install_filters([oncelog.rename_topics({"orders": "shop.orders"})], broker.node)
        client = broker.connect()
        assert await topics(client) == {"orders": 0, "bills": 0}  # the cluster's own orders has no name
        assert await topics(client, "orders", "bills") == {"orders": 0, "bills": 0}
        await produce(client, "orders")
        await produce(client, "orders")
        assert (await list_offset(client, "orders", -1)).offset == 3
        refused = {"shop.orders": int(ErrorCode.INVALID_TOPIC_EXCEPTION)}
        assert await topics(client, "shop.orders") == refused


def test_a_table_that_is_not_one_to_one_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the groups a and b are both c in the cluster: names must be one to one"
    ):
        oncelog.rename_groups({"a": "c", "b": "c"})


# -- by a prefix


@simulated
async def test_a_tenant_sees_its_own_groups() -> None:
    async with SimBroker() as broker:
        direct = await find_coordinators(broker)
        assert await commit(direct, "b.billing") == 0
        install_filters([oncelog.rename_groups(prefix=TENANT)], broker.node)
        client = broker.connect()
        assert await commit(client, "billing") == 0
        assert await groups(client) == {"billing"}
        request = FindCoordinatorRequest(coordinator_keys=["billing", "other"])
        found = await client.call(request, 4, FindCoordinatorResponse)
        assert [row.key for row in found.coordinators] == ["billing", "other"]
        deleted = await client.call(DeleteGroupsRequest(["billing", "b.billing"]), 2, DeleteGroupsResponse)
        assert {row.group_id: row.error_code for row in deleted.results} == {
            "billing": 0,
            "b.billing": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert await groups(client) == set()


@simulated
async def test_a_users_own_prefix() -> None:
    """The function is asked for each request; an empty prefix renames nothing."""

    def prefix(context: RequestContext) -> str:
        return "" if context.client_id == "admin" else f"{context.client_id}."

    async with SimBroker() as broker:
        await find_coordinators(broker)
        install_filters([oncelog.rename_groups(prefix=prefix)], broker.node)
        clients = {name: broker.connect(client_id=name) for name in ("a", "b", "admin")}
        assert await commit(clients["a"], "billing") == 0
        assert await commit(clients["b"], "mails") == 0
        assert await groups(clients["a"]) == {"billing"}
        assert await groups(clients["b"]) == {"mails"}
        assert await groups(clients["admin"]) == {"a.billing", "b.mails"}


@simulated
async def test_transactional_ids() -> None:
    async with SimBroker() as broker:
        request = InitProducerIdRequest("b.orders", 60_000)
        await (await find_coordinators(broker)).call(request, 4, InitProducerIdResponse)
        install_filters([oncelog.rename_transactional_ids(prefix=TENANT)], broker.node)
        client = broker.connect()
        await client.call(InitProducerIdRequest("orders", 60_000), 4, InitProducerIdResponse)
        await client.call(InitProducerIdRequest(None, 60_000), 4, InitProducerIdResponse)
        for pattern in (None, "^or.*|x", "orders"):
            asked = ListTransactionsRequest(transactional_id_pattern=pattern)
            listed = await client.call(asked, 2, ListTransactionsResponse)
            assert [row.transactional_id for row in listed.transaction_states] == ["orders"], pattern
        for pattern in (".*)|(.*", "b.*", "(?:", r"\Q)|b\E.*"):
            asked = ListTransactionsRequest(transactional_id_pattern=pattern)
            listed = await client.call(asked, 2, ListTransactionsResponse)
            assert listed.transaction_states == [], pattern
        found = await client.call(FindCoordinatorRequest("orders", 1), 3, FindCoordinatorResponse)
        assert found.error_code == 0


PIECES = [
    r"^",
    r"a",
    r"b",
    r".",
    r"|",
    r"(",
    r"(?:",
    r"(?i)",
    r"(?i:",
    r"(?P<n>",
    r")",
    r"*",
    r"+",
    r"\A",
    r"\.",
    r"[^a]",
    r"[]^]",
    r"[[:alpha:](|^]",
    r"$",
]
PIECES += [r"\Q^|(\E", r"\pL", r"\p{L}", r"\x{61}", r"\b", r"\^"]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.text("ab.^|(", max_size=4))
def test_an_expression_matches_the_same_names_behind_the_prefix(pieces: list[str], name: str) -> None:
    expression, context = "".join(pieces), None
    options = re2.Options()
    options.log_errors = False
    try:
        original = re2.compile(expression, options)
    except re2.error:
        return
    try:
        changed: Any = Prefix("topic", "x+.").expression_to_cluster(expression, context)  # type: ignore[arg-type]
        compiled = re2.compile(changed, options)
    except (KafkaError, re2.error):  # \C, an open \Q, or a repeated ^
        return
    if re2.fullmatch(expression, name, options) is not None:
        assert compiled.fullmatch(f"x+.{name}") is not None, (expression, changed)
    assert compiled.fullmatch(name) is None
    assert original is not None


@simulated
async def test_acls() -> None:
    """What all topics of a tenant are is a prefix in the cluster; nobody sees or deletes ACLs of others."""

    async def create(client: SimClient, *rows: tuple[int, str, int]) -> None:
        creations = [AclCreation(kind, name, pattern, "User:app", "*", 3, 3) for kind, name, pattern in rows]
        response = await client.call(CreateAclsRequest(creations), 3, CreateAclsResponse)
        assert [row.error_code for row in response.results] == [0] * len(rows)

    async def acls(client: SimClient, kind: int = 1, name: str | None = None) -> set[tuple[int, str, int]]:
        request = DescribeAclsRequest(kind, name, ANY_PATTERN, None, None, 1, 1)
        response = await client.call(request, 3, DescribeAclsResponse)
        assert response.error_code == 0, response.error_message
        return {(row.resource_type, row.resource_name, row.pattern_type) for row in response.resources}

    async with SimBroker(config=EVERYBODY) as broker:
        direct = broker.connect(client_id="admin")
        await create(direct, (TOPIC, "b.t", LITERAL), (TOPIC, "*", LITERAL), (GROUP, "g", LITERAL))
        rename = oncelog.rename_topics(prefix=lambda one: "" if one.client_id == "admin" else TENANT)
        install_filters([rename], broker.node)
        client = broker.connect()
        made = {(TOPIC, "t", LITERAL), (TOPIC, "or", PREFIXED), (TOPIC, "*", LITERAL)}
        await create(client, *made)
        assert await acls(client) == made | {(GROUP, "g", LITERAL)}
        assert await acls(client, TOPIC, "t") == {(TOPIC, "t", LITERAL)}
        for kind, name in ((TOPIC, None), (1, None), (1, "t")):
            wanted = DeleteAclsFilter(kind, name, ANY_PATTERN, None, None, 1, 1)
            response = await client.call(DeleteAclsRequest([wanted]), 3, DeleteAclsResponse)
            assert response.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
        for name in ("t", "*", "or"):
            wanted = DeleteAclsFilter(TOPIC, name, ANY_PATTERN, None, None, 1, 1)
            response = await client.call(DeleteAclsRequest([wanted]), 3, DeleteAclsResponse)
            assert [row.resource_name for row in response.filter_results[0].matching_acls] == [name]
        assert await acls(direct) == {(TOPIC, "b.t", LITERAL), (TOPIC, "*", LITERAL), (GROUP, "g", LITERAL)}


@simulated
async def test_the_empty_name_stands_for_none() -> None:
    """It stays, so that the answer is the cluster's."""
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "", ["cleanup.policy"])])
    async with SimBroker() as broker:
        install_filters([oncelog.rename_topics(prefix=TENANT)], broker.node)
        response = await broker.connect().call(request, 4, DescribeConfigsResponse)
        [row] = response.results
        assert (row.resource_name, row.error_code) == ("", ErrorCode.INVALID_TOPIC_EXCEPTION)


@simulated
async def test_pages_of_topics() -> None:
    """A tenant's begin and end with its own; with functions, a page cannot end before the topic of another."""

    def to_client(name: str, context: RequestContext) -> str | None:
        return name[2:] if name[:2] == TENANT else None

    async with SimBroker() as broker:
        for name in ("Y.t", "Z.t", "a.t", "a.u", "b.t"):
            await create_topic(broker.connect(), name)
        rename = oncelog.rename_topics(prefix=lambda context: TENANT if context.client_id == "a" else "")
        functions = oncelog.rename_topics(to_cluster=lambda name, context: TENANT + name, to_client=to_client)
        install_filters([rename], broker.node)
        client, everything = broker.connect(client_id="a"), broker.connect()
        assert await pages(client) == ["t", "u"]
        assert await pages(everything) == ["Y.t", "Z.t", "a.t", "a.u", "b.t"]
    async with SimBroker() as broker:
        for name in ("a.t", "b.t"):
            await create_topic(broker.connect(), name)
        install_filters([functions], broker.node)
        with pytest.raises(ConnectionEndedError):
            await pages(broker.connect())


async def pages(client: SimClient) -> list[str]:
    """The names of all topics, by pages of one partition."""
    request, found = DescribeTopicPartitionsRequest([], 1), []
    while True:
        response = await client.call(request, 0, DescribeTopicPartitionsResponse)
        found += [row.name for row in response.topics]
        request.cursor = response.next_cursor
        if request.cursor is None:
            return found


# -- by functions


@simulated
async def test_functions(lines: Any) -> None:
    def to_cluster(name: str, context: RequestContext) -> str | None:
        return None if name == "secret" else f"{name}@{context.client_id}"

    def to_client(name: str, context: RequestContext) -> str | None:
        name, at, client_id = name.rpartition("@")
        return name if at and client_id == context.client_id else None

    async with SimBroker() as broker:
        await find_coordinators(broker)
        rename = oncelog.rename_groups(to_cluster=to_cluster, to_client=to_client)
        install_filters([rename], broker.node)
        a, b = broker.connect(client_id="a"), broker.connect(client_id="b")
        assert (await commit(a, "billing"), await commit(b, "billing"), await commit(b, "mails")) == (0, 0, 0)
        assert (await groups(a), await groups(b)) == ({"billing"}, {"billing", "mails"})
        assert await commit(b, "secret") == ErrorCode.INVALID_GROUP_ID


@simulated
async def test_functions_that_are_not_one_to_one_fail_at_first_sight(lines: Any) -> None:
    async with SimBroker() as broker:
        await find_coordinators(broker)
        assert await commit(broker.connect(), "B") == 0
        rename = oncelog.rename_groups(
            to_cluster=lambda name, context: name.lower(), to_client=lambda name, context: name.lower()
        )
        install_filters([rename], broker.node)
        client = broker.connect()
        assert await commit(client, "billing") == 0
        assert await commit(client, "Billing") == ErrorCode.UNKNOWN_SERVER_ERROR
        response = await client.call(ListGroupsRequest(), 4, ListGroupsResponse)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def nothing(name: str, context: object) -> str:
    return name


async def waits(name: str, context: object) -> str:
    return name


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: oncelog.rename_topics(), "expected one of these"),
        (lambda: oncelog.rename_topics({}, prefix="a."), "expected one of these"),
        (lambda: oncelog.rename_topics(prefix=""), "prefix='': expected a text, such as 'tenant-a.'"),
        (lambda: oncelog.rename_topics(prefix=5), "prefix=5: expected a text, or a function"),  # type: ignore[arg-type]
        (lambda: oncelog.rename_topics(["a"]), r"\['a'\]: expected a dict"),  # type: ignore[arg-type]
        (lambda: oncelog.rename_topics({"a": ""}), "expected a dict"),
        (
            lambda: oncelog.rename_topics(to_cluster=nothing),
            "to_cluster without to_client: names go both ways",
        ),
        (lambda: oncelog.rename_topics(to_client=nothing), "to_client without to_cluster"),
        (
            lambda: oncelog.rename_topics(to_cluster=str.lower, to_client=nothing),  # type: ignore[arg-type]
            r"to_cluster does not take what it is given: write to_cluster\(name, context\)",
        ),
        (lambda: oncelog.rename_topics(to_cluster=waits, to_client=nothing), "called, not awaited"),  # type: ignore[arg-type]
        (lambda: oncelog.rename_topics(prefix=lambda: "a"), r"write prefix\(context\)"),  # type: ignore[arg-type]
        (
            lambda: load_filter("oncelog:rename_topic,prefix=a."),
            r"oncelog has no rename_topic; did you mean rename_topics\?",
        ),
        (lambda: load_filter("oncelog:rename_topics"), "cannot be made: expected one of these"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(make: Callable[[], Interceptor], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


# -- beside other filters, and in a proxy


@simulated
async def test_a_filter_nearer_to_the_clients_sees_their_names() -> None:
    """Also of a request that was refused behind the renaming, and where it responds itself."""
    seen: list[tuple[str, str]] = []

    class Seen(oncelog.Interceptor):
        apis = frozenset({"OffsetCommit"})

        def __init__(self, place: str, refused: str = "") -> None:
            self.place, self.refused = place, refused

        async def on_request(self, context: RequestContext) -> Any:
            seen.append((self.place, context.request.group_id))
            if context.request.group_id == self.refused:
                raise KafkaError(ErrorCode.POLICY_VIOLATION)

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            seen.append((self.place, f"{context.request.group_id} {response.topics[0].name}"))
            return response

    async with SimBroker() as broker:
        filters = [
            Seen("outer", "refused"),
            oncelog.rename_groups(prefix=TENANT),
            oncelog.rename_topics(prefix=TENANT),
            Seen("inner", "a.refused behind"),
        ]
        await create_topic(await find_coordinators(broker), "a.t")
        install_filters(filters, broker.node)
        client = broker.connect()
        assert await commit(client, "g") == 0
        assert seen == [("outer", "g"), ("inner", "a.g"), ("inner", "a.g a.t"), ("outer", "g t")]
        assert await commit(client, "refused") == ErrorCode.POLICY_VIOLATION
        seen.clear()
        assert await commit(client, "refused behind") == ErrorCode.POLICY_VIOLATION
        assert seen[-1] == ("outer", "refused behind t")


@simulated
async def test_a_proxy_does_not_pass_what_it_cannot_rename() -> None:
    """An API that oncelog does not know may name groups; other filters let it pass."""

    class Fetches(oncelog.Interceptor):
        apis = frozenset({"Fetch"})

    unknown = 88
    async with SimBroker() as broker:

        class More(oncelog.Interceptor):
            apis = frozenset({"ApiVersions"})

            async def on_response(self, context: RequestContext, response: Any) -> Any:
                if response.api_keys:
                    response.api_keys.append(ApiVersion(unknown, 0, 0))
                return response

        install_filters([More()], broker.node)
        async with SimProxy(broker.open_transport, [("simulated", 9092)]) as proxy:

            async def told() -> set[int]:
                request = ApiVersionsRequest("a", "1")
                response = await proxy.connect().call(request, 4, ApiVersionsResponse)
                return {row.api_key for row in response.api_keys}

            install_filters([Fetches()], proxy.proxy)
            assert unknown in await told()
            install_filters([oncelog.rename_groups(prefix=TENANT)], proxy.proxy)
            assert unknown not in await told()
            client = proxy.connect()
            await client.send_frame(b"\0\x58\0\0\0\0\0\x07\xff\xff")
            with pytest.raises(ConnectionEndedError):
                await client.receive_frame()
            plans = proxy.proxy.dispatcher
            assert not plans.plan((0 << 16) | 12).intercepts_requests  # Produce has no groups
            assert plans.plan((8 << 16) | 8).intercepts_requests
