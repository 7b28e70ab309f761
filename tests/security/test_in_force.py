"""ACLs of a running broker: a change holds for the next request; what was remembered of one peer serves no other."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.dispatch.fast_produce import FastProduce
from oncelog.broker.metadata.acl_changes import AclFilter, Deletion, create
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, AclBinding
from oncelog.broker.metadata.store import store_of
from oncelog.broker.requests.authorization import (
    ALL,
    CLUSTER_NAME,
    CLUSTER_RESOURCE,
    DESCRIBE,
    READ,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    WRITE,
)
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.common.batches import TRANSACTIONAL, batch
from tests.harness.log_lines import lines
from tests.harness.requests import create_topic, fetch, produce, produce_request
from tests.harness.sim_broker import WITHOUT_SHORTCUTS, SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated
from tests.harness.steps import count_bytecodes

__all__ = ["lines"]  # a fixture

ROOT, ALICE, BOB = "User:root", "User:alice", "User:bob"
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ROOT}
EVERYTHING = (1, None, 1, None, None, 1, 1)


class Cluster:
    """A broker with an authorizer and the topic "t"; its clients are whom the test says."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker

    async def connect(self, principal: str, host: str = HERE) -> SimClient:
        before = set(self.broker.server_connections())
        client = self.broker.connect(host)
        await trio.testing.wait_all_tasks_blocked()
        [connection] = set(self.broker.server_connections()) - before
        connection.principal = principal
        return client

    def allow(self, principal: str, operation: int = WRITE, host: str = "*", name: str = "t") -> AclBinding:
        return self.add(AclBinding(TOPIC_RESOURCE, name, LITERAL, principal, host, operation, ALLOW))

    def add(self, acl: AclBinding) -> AclBinding:
        assert create(self.broker.node.metadata, [acl]) == [None]
        return acl

    def remove(self, acl: AclBinding) -> None:
        deletion = Deletion(self.broker.node.metadata, [AclFilter(*acl)])
        for _ in deletion.find():
            pass
        deletion.commit()


@asynccontextmanager
async def cluster(*, has_shortcuts: bool = True) -> AsyncIterator[Cluster]:
    async with SimBroker(config=CONFIG if has_shortcuts else CONFIG | WITHOUT_SHORTCUTS) as broker:
        found = Cluster(broker)
        await create_topic(await found.connect(ROOT), "t")
        yield found


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every request that the fast path was asked for: whether it took it."""
    found: list[bool] = []
    append = FastProduce.append

    def told(self: FastProduce, *arguments: object) -> bool:
        found.append(append(self, *arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(FastProduce, "append", told)
    return found


async def code(client: SimClient) -> int:
    return (await produce(client, "t")).error_code


def test_a_changed_acl_holds_for_the_next_request(fast: list[bool]) -> None:
    @simulated
    async def run() -> None:
        async with cluster() as broker:
            alice = await broker.connect(ALICE)
            assert await code(alice) == DENIED
            acl = broker.allow(ALICE)
            assert [await code(alice) for _ in range(3)] == [0, 0, 0]
            broker.remove(acl)
            assert [await code(alice) for _ in range(2)] == [DENIED] * 2
            broker.add(acl)
            assert [await code(alice) for _ in range(2)] == [0, 0]
            broker.add(AclBinding(TOPIC_RESOURCE, "*", LITERAL, "User:*", HERE, ALL, DENY))
            assert await code(alice) == DENIED

    run()
    assert fast.count(True) == 3  # the requests after an accepted one


def test_a_remembered_request_serves_no_other_principal_and_no_other_host(fast: list[bool]) -> None:
    @simulated
    async def run() -> None:
        async with cluster() as broker:
            broker.allow(ALICE, host=HERE)
            await create_topic(await broker.connect(ROOT), "u")
            for principal, host in ((BOB, "*"), (ALICE, ELSEWHERE)):
                broker.allow(principal, host=host, name="u")
            alice, again = await broker.connect(ALICE), await broker.connect(ALICE)
            bob, elsewhere = await broker.connect(BOB), await broker.connect(ALICE, ELSEWHERE)
            for one in (alice, bob, elsewhere):  # all are remembered for something
                assert (await produce(one, "u")).error_code == (DENIED if one is alice else 0)
            for _ in range(2):
                assert [await code(one) for one in (alice, bob, elsewhere, again)] == [0, DENIED, DENIED, 0]

    run()
    assert fast == [False, False, True, False, False, True]


def test_what_connections_remember_together_ends_with_an_authorizer(fast: list[bool]) -> None:
    """Without one all connections of a principal share what is remembered, from any host; with one, no more."""

    @simulated
    async def run() -> None:
        async with cluster() as broker:
            authorizer = broker.broker.node.host.authorizer
            broker.broker.authorize_with(None)
            here, there = await broker.connect(ALICE), await broker.connect(ALICE, ELSEWHERE)
            for one in (here, there, here, there):
                assert await code(one) == 0
            broker.broker.authorize_with(authorizer)
            broker.allow(ALICE, host=HERE)
            assert [await code(one) for one in (here, there, here, there)] == [0, DENIED, 0, DENIED]

    run()
    assert fast == [True] * 2 + [False] * 2 + [True, False]


def transactional_request(attributes: int) -> ProduceRequest:
    request = produce_request("t", batch(attributes=attributes, producer=(5, 0, 0)))
    request.transactional_id = "i"
    return request


def test_transactional_records_ask_for_the_id_whatever_came_before(fast: list[bool]) -> None:
    """A request with an id may have other records; the next one with the same front may not."""

    async def send(client: SimClient, attributes: int) -> int:
        response = await client.call(transactional_request(attributes), 9, ProduceResponse)
        return int(response.responses[0].partition_responses[0].error_code)

    @simulated
    async def run() -> None:
        async with cluster() as broker:
            broker.allow(ALICE)
            alice = await broker.connect(ALICE)
            assert await send(alice, 0) == 0
            assert await send(alice, TRANSACTIONAL) == ID_DENIED
            broker.add(AclBinding(TRANSACTIONAL_ID_RESOURCE, "i", LITERAL, ALICE, "*", WRITE, ALLOW))
            assert await send(alice, TRANSACTIONAL) not in (0, ID_DENIED)  # there is no such transaction

    run()


@pytest.mark.parametrize("has_shortcuts", [True, False])
def test_a_fetch_asks_once_and_the_next_one_again(has_shortcuts: bool) -> None:
    @simulated
    async def run() -> None:
        async with cluster(has_shortcuts=has_shortcuts) as broker:
            acl = broker.allow(ALICE, READ)
            alice, root = await broker.connect(ALICE), await broker.connect(ROOT)
            async with trio.open_nursery() as nursery:
                rows = []

                async def wait() -> None:
                    rows.append(await fetch(alice, "t", max_wait_ms=60_000))

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                broker.remove(acl)
                await produce(root, "t")
            [row] = rows
            assert (row.error_code, row.high_watermark) == (0, 1)
            assert (await fetch(alice, "t")).error_code == DENIED

    run()


def test_topics_that_do_not_exist_look_like_topics_that_may_not_be_described() -> None:
    @simulated
    async def run() -> None:
        async with cluster() as broker:
            alice = await broker.connect(ALICE)
            request = MetadataRequest([MetadataRequestTopic(name=name) for name in ("t", "none")], False)
            response = await alice.call(request, 9, MetadataResponse)
            assert [(row.error_code, row.partitions, row.topic_id) for row in response.topics] == [
                (DENIED, [], bytes(16))
            ] * 2
            assert (await alice.call(MetadataRequest(None), 9, MetadataResponse)).topics == []
            broker.allow(ALICE, DESCRIBE)
            [topic] = (await alice.call(MetadataRequest(None), 9, MetadataResponse)).topics
            assert (topic.name, len(topic.partitions)) == ("t", 1)

    run()


@pytest.mark.parametrize("has_shortcuts", [True, False])
def test_a_produce_costs_the_same_among_ten_thousand_acls(has_shortcuts: bool) -> None:
    """At most 5 % more bytecodes, with the fast path and without."""
    counts: list[int] = []

    @simulated
    async def run() -> None:
        async with cluster(has_shortcuts=has_shortcuts) as broker:
            node = broker.broker.node
            broker.allow(ALICE)
            alice = await broker.connect(ALICE)
            [connection] = [one for one in broker.broker.server_connections() if one.principal == ALICE]
            frame = memoryview(encode_request(produce_request("t", batch()), 9, 7, "c"))[4:]
            for _ in range(2):
                assert [await code(alice) for _ in range(2)] == [0, 0]
                for _ in range(3):
                    begun = len(connection.writer.out)
                    counts.append(count_bytecodes(lambda: node.dispatcher.dispatch(connection, frame)))
                    del connection.writer.out[begun:]
                create(
                    node.metadata,
                    [
                        AclBinding(
                            TOPIC_RESOURCE, f"t{number}", LITERAL, f"User:{number % 100}", "*", WRITE, ALLOW
                        )
                        for number in range(9_999)
                    ],
                )
                broker.allow(ALICE, host=HERE)

    run()
    few, many = counts[2], counts[5]
    assert 0 < many <= few * 1.05, (few, many)


def test_random_changes_are_decided_alike_by_the_index_and_after_a_restart() -> None:
    """The ACLs of a directory are in force again when it is served again."""

    @simulated
    async def run() -> None:
        rng = random.Random(3)
        async with cluster() as broker:
            store = broker.broker.node.metadata
            acls = [
                AclBinding(
                    rng.choice((TOPIC_RESOURCE, CLUSTER_RESOURCE)),
                    name if name != CLUSTER_NAME else CLUSTER_NAME,
                    LITERAL,
                    rng.choice((ALICE, BOB, "User:*")),
                    rng.choice((HERE, "*")),
                    rng.choice((READ, WRITE, ALL)),
                    rng.choice((ALLOW, DENY)),
                )
                for _ in range(60)
                for name in [rng.choice(("t", "u", "*", CLUSTER_NAME))]
            ]
            create(store, acls)
            broker.remove(acls[0])

            def decisions() -> list[bool]:
                authorizer = broker.broker.node.host.authorizer
                assert authorizer is not None
                return [
                    authorizer.authorize(who, host, operation, (kind, name))
                    for who in (ALICE, BOB, "User:c")
                    for host in (HERE, ELSEWHERE)
                    for operation in (READ, WRITE, DESCRIBE)
                    for kind, name in (
                        (TOPIC_RESOURCE, "t"),
                        (TOPIC_RESOURCE, "v"),
                        (CLUSTER_RESOURCE, CLUSTER_NAME),
                    )
                ]

            found = decisions()
            assert {True, False} == set(found)
            await broker.broker.restart()
            assert decisions() == found
            store_of(broker.broker.node.metadata).snapshot()
            await broker.broker.restart()
            assert decisions() == found

    run()


def test_what_a_client_wanted_and_may_not_do_is_logged(lines: list[str]) -> None:
    """Once a minute each. What was only looked at is not."""

    @simulated
    async def run() -> None:
        async with cluster() as broker:
            alice = await broker.connect(ALICE)
            lines.clear()
            await alice.call(MetadataRequest(None), 9, MetadataResponse)
            await alice.call(ListGroupsRequest(), 4, ListGroupsResponse)
            assert lines == []
            for _ in range(3):
                assert await code(alice) == DENIED

    run()
    [line] = lines
    assert "denied" in line
    for part in (ALICE, "WRITE", "topic t", HERE):
        assert part in line
