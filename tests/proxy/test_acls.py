"""ACLs of a proxy's own, where a table of requests does not show them: sessions, changes, and what is forwarded."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.opening import open_connection
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.compiler import AT_ONCE_ELEMENTS_MAX
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.push_telemetry import PushTelemetryRequest
from tests.client.security.test_login import password
from tests.common.batches import batch
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, fetch_request, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated, simulated_work
from tests.harness.steps import LongestTurn
from tests.proxy.sim_proxy import HOST, PORT, SimProxy
from tests.proxy.test_logins import BOOTSTRAP, MECHANISMS

__all__ = ["lines"]

CONFIG = {
    **MECHANISMS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
USERS = {"app": "app-secret", "admin": "x"}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BY_NAME = 12


def guarded(broker: SimBroker, *acls: str) -> SimProxy:
    return SimProxy(
        broker.open_transport, BOOTSTRAP, CONFIG, listeners=("SASL_PLAINTEXT",), users=USERS, acls=acls
    )


async def logged_in(proxy: SimProxy, name: str = "app") -> ClientConnection:
    return await open_connection(
        proxy.open_transport, HOST, PORT + 1, security=password("PLAIN", name, USERS[name])
    )


@simulated
async def test_denied_rows_are_refused_and_the_others_go_on() -> None:
    async with SimBroker() as broker, guarded(broker, "User:app Write topic:mine") as proxy:
        client = await logged_in(proxy)
        admin = await logged_in(proxy, "admin")
        names = ["mine", "yours"]
        await admin.call(MetadataRequest([MetadataRequestTopic(name=name) for name in names]))
        request = produce_request("mine", batch())
        request.topic_data += produce_request("yours", batch()).topic_data
        response = await client.call(request, BY_NAME)
        found = {row.name: row.partition_responses[0].error_code for row in response.responses}
        assert found == {"mine": 0, "yours": DENIED}
        ends = {name: broker.node.logs.get(name, 0).log_end_offset for name in names}
        assert ends["mine"] == ends["yours"] + 1


def test_a_denied_row_is_logged_once(lines: list[str]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker, guarded(broker, "User:app Write topic:mine") as proxy:
            client = await logged_in(proxy)
            await client.call(produce_request("yours", batch()), BY_NAME)

    run()
    [line] = [one for one in lines if "denied" in one]
    assert "topic yours" in line
    assert "left_out" not in line


@simulated
async def test_a_session_shows_nothing_of_a_topic_whose_right_was_lost() -> None:
    async with SimBroker() as broker, guarded(broker, "User:app Read topic:t") as proxy:
        admin = await logged_in(proxy, "admin")
        await admin.call(MetadataRequest([MetadataRequestTopic(name="t")]))
        await admin.call(produce_request("t", batch()), BY_NAME)
        client = await logged_in(proxy)
        request = fetch_request("t", 0)
        request.session_epoch = 0
        first = await client.call(request, BY_NAME)
        assert first.session_id
        assert first.responses[0].partitions[0].records
        where = DeleteAclsFilter(2, "t", 3, None, None, 1, 1)
        assert (await admin.call(DeleteAclsRequest([where]))).filter_results[0].matching_acls
        again = FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=0, max_bytes=1 << 20)
        response = await client.call(again, BY_NAME)
        [partition] = response.responses[0].partitions
        assert (partition.error_code, partition.records or b"") == (DENIED, b"")


@simulated
async def test_a_new_acl_holds_for_the_next_request() -> None:
    async with SimBroker() as broker, guarded(broker) as proxy:
        admin, client = await logged_in(proxy, "admin"), await logged_in(proxy)
        await admin.call(MetadataRequest([MetadataRequestTopic(name="t")]))
        asked = MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        assert (await client.call(asked)).topics[0].error_code == DENIED
        acl = AclCreation(2, "t", 3, "User:app", "*", 8, 3)
        assert (await admin.call(CreateAclsRequest([acl]))).results[0].error_code == 0
        assert (await client.call(asked)).topics[0].error_code == 0


@simulated
async def test_an_unknown_topic_id_is_looked_up_before_its_right_is_asked_for() -> None:
    async with SimBroker() as broker, guarded(broker, "User:app Read topic:other") as proxy:
        await create_topic(broker.connect(), "t")
        topic_id = broker.node.metadata.image.topics["t"].topic_id
        client = await logged_in(proxy)
        rows = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, fetch_offset=0)])]
        response = await client.call(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=rows))
        assert response.responses[0].partitions[0].error_code == DENIED


class Produces(Interceptor):
    """Notes the topics of each Produce, and its errors; forwards it itself if it ``handles``."""

    apis = frozenset({"Produce"})

    def __init__(self, proxy: SimProxy, *, handles: bool = False) -> None:
        self.asked: list[list[str]] = []
        self.told: list[list[int]] = []
        self.done = 0
        self._proxy = proxy
        self._handles = handles

    async def on_request(self, context: RequestContext) -> Any:
        self.asked.append([topic.name for topic in context.request.topic_data])
        return (
            await self._proxy.proxy.dispatcher.handle_behind_interceptors(context) if self._handles else None
        )

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        self.told.append(sorted(row.partition_responses[0].error_code for row in response.responses))
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        self.done += 1


@pytest.mark.parametrize("handles", [False, True], ids=["reads", "forwards"])
@simulated
async def test_whoever_is_installed_sees_what_is_denied_and_cannot_pass_it_by(handles: bool) -> None:
    async with SimBroker() as broker, guarded(broker, "User:app Write topic:mine") as proxy:
        seen = Produces(proxy, handles=handles)
        proxy.proxy.dispatcher.interception.install(seen)
        client = await logged_in(proxy)
        admin = await logged_in(proxy, "admin")
        names = ["mine", "yours"]
        await admin.call(MetadataRequest([MetadataRequestTopic(name=name) for name in names]))
        for asked in (["yours"], names):
            request = produce_request(asked[0], batch())
            for name in asked[1:]:
                request.topic_data += produce_request(name, batch()).topic_data
            await client.call(request, BY_NAME)
        assert seen.asked == [["yours"], names]
        assert seen.told == [[DENIED], [0, DENIED]]
        assert seen.done == 2
        assert broker.node.logs.get("yours", 0).log_end_offset == 0
        assert broker.node.logs.get("mine", 0).log_end_offset == 1


@simulated
async def test_rights_are_asked_for_what_is_forwarded() -> None:
    """As in a broker, whose handlers stand behind all interceptors: a filter may have renamed the topic."""

    class Rename(Interceptor):
        apis = frozenset({"Produce"})

        async def on_request(self, context: RequestContext) -> None:
            context.request.topic_data[0].name = "mine"

    async with SimBroker() as broker, guarded(broker, "User:app Write topic:mine") as proxy:
        proxy.proxy.dispatcher.interception.install(Rename())
        client, admin = await logged_in(proxy), await logged_in(proxy, "admin")
        await admin.call(MetadataRequest([MetadataRequestTopic(name="mine")]))
        response = await client.call(produce_request("other", batch()), BY_NAME)
        assert response.responses[0].partition_responses[0].error_code == 0


@simulated
async def test_metrics_of_clients_need_no_right() -> None:
    metrics = {"oncelog.client.metrics.enable": "true"}
    async with SimBroker(config=metrics) as broker, guarded(broker) as proxy:
        client = await logged_in(proxy)
        asked = await client.call(GetTelemetrySubscriptionsRequest())
        assert asked.error_code == 0
        push = PushTelemetryRequest(asked.client_instance_id, asked.subscription_id)
        assert (await client.call(push)).error_code == 0


@pytest.mark.slow
@simulated_work(steps=2)
async def test_topics_are_asked_for_upstream_in_turns() -> None:
    """A user without any right names many topics. Would upstream create them? The proxy asks what there is."""
    longest = []
    async with SimBroker() as broker, guarded(broker, "User:app Describe group:mine") as proxy:
        client = await logged_in(proxy)
        for count in (10, 2_100, 3_100):
            request = MetadataRequest(
                [MetadataRequestTopic(name=f"{count}-{number}") for number in range(count)]
            )
            turn = LongestTurn()
            response = await client.call(request, 4, timeout_s=inf)
            turn.end()
            assert {row.error_code for row in response.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            longest.append(turn.lines)
    assert longest[2] - longest[1] < 6 * 1_000, turn.where.most_common(8)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 2_500])
@simulated_work(steps=2)
async def test_each_denied_row_of_a_large_request_stands_beside_the_others(count: int) -> None:
    """The rows between two turns are few, and the work for each does not grow with their number."""
    config = {"auto.create.topics.enable": "false"}
    async with SimBroker(config=config) as broker, guarded(broker, "User:app Describe group:mine*") as proxy:
        client = await logged_in(proxy)
        names = [f"{'mine' if number % 2 else 'yours'}-{number}" for number in range(count)]
        await client.call(FindCoordinatorRequest(coordinator_keys=names))
        turn = LongestTurn()
        response = await client.call(DescribeGroupsRequest(names), 5, timeout_s=inf)
        turn.end()
        found = {group.group_id: group.error_code for group in response.groups}
        assert list(found) == names
        assert [found[name] == ErrorCode.GROUP_AUTHORIZATION_FAILED for name in names] == [
            name.startswith("yours") for name in names
        ]
        if count > AT_ONCE_ELEMENTS_MAX:
            assert turn.lines < 20 * count, turn.where.most_common(8)
