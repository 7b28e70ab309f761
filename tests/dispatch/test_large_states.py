"""A small request never holds the loop for long, whatever was built before it: the work between two turns does not
grow with a state that clients have built by allowed requests. Each API's smallest request is tried in each state, and
those that read or change the state; then time passes. Counted in lines of Python, as in test_large_requests.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
import trio

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    QuotaAlteration,
)
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from oncelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest
from oncelog.wire.messages.describe_producers import TopicRequest as ProducersTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.messages.share_fetch import FetchPartition as ShareFetchPartition
from oncelog.wire.messages.share_fetch import FetchTopic as ShareFetchTopic
from oncelog.wire.messages.share_fetch import ShareFetchRequest
from oncelog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from oncelog.wire.schema import Message
from tests.common.batches import batch
from tests.dispatch.test_large_requests import LINES_PER_ROW
from tests.harness.offsets_topic import find
from tests.harness.requests import create_topic, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated_work
from tests.harness.steps import LongestTurn

FEW, MANY = 1_500, 3_000
A_WHILE_S = 700
"""Seconds: sessions and transactions expire, and what is looked at every ten minutes."""
UNSERVED = {"sasl_handshake", "sasl_authenticate", "unregister_broker", "unregister_controller"}

CONFIG = {
    "delegation.token.secret.key": "the-key",
    "delegation.token.expiry.check.interval.ms": "60000",
    "sasl.enabled.mechanisms": "PLAIN",
}

KNOWN = {
    # A roll writes down all producers of the partition: 2 µs for each (limits.md).
    ("producers", "ProduceRequest"),
    # The checkpoints have the offsets of all open partitions: 14 lines for each, every minute. The directories are
    # the simulated disk's.
    ("a_fetch_session", "a while"),
    ("a_fetch_session", "ProduceRequest"),
}

Build = Callable[[SimClient, range], Awaitable[Iterable[Message] | None]]
"""Builds a state of as many rows. Returns the small requests that only it makes sense of."""


async def call(client: SimClient, request: Message, version: int | None = None) -> Any:
    row = HANDLERS[request.API_KEY]
    return await client.call(request, row.max_version if version is None else version, Api(row).response)


def parts(rows: range, size: int = 500) -> Iterator[range]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


async def topics(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        await call(client, CreateTopicsRequest([CreatableTopic(f"t{row}", 1, 1) for row in part], 30_000))


async def names_of_a_consumer(client: SimClient, rows: range) -> None:
    await call(client, consumer("m", names=[f"missing{row}" for row in range(rows.stop)]))


async def names_of_share_consumers(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        names = [f"missing{row}" for row in part]
        await call(client, ShareGroupHeartbeatRequest("s", f"m{part.start}", 0, None, names))


async def consumers(client: SimClient, rows: range) -> None:
    """All topics of all members are more than what a heartbeat assigns."""
    await create_topic(client, f"of-members{rows.start}", 6_000)
    for row in rows[:: len(rows) // 100]:
        await call(client, consumer(f"m{row}", names=["of-members0", f"missing{row}"]))


async def offsets(client: SimClient, rows: range) -> None:
    if not rows.start:
        await create_topic(client, "offsets", MANY)
    for part in parts(rows):
        partitions = [OffsetCommitRequestPartition(row, 1, -1, "") for row in part]
        topic = OffsetCommitRequestTopic("offsets", partitions=partitions)
        await call(client, OffsetCommitRequest("g", topics=[topic]), 9)


async def partitions_of_a_transaction(client: SimClient, rows: range) -> None:
    if not rows.start:
        await create_topic(client, "written", MANY)
    producer = await call(client, InitProducerIdRequest("x", 900_000))
    topic = AddPartitionsToTxnTopic("written", list(range(rows.stop)))
    await call(
        client,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[topic],
        ),
        3,
    )


async def transactional_ids(client: SimClient, rows: range) -> None:
    for row in rows:
        await call(client, InitProducerIdRequest(f"id{row}", 60_000))


async def producers(client: SimClient, rows: range) -> None:
    if not rows.start:
        await create_topic(client, "p")
    for row in rows:
        await call(client, produce_request("p", batch(producer=(row, 0, 0))), 9)


async def acls(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        rules = [AclCreation(2, f"t{row}", 3, f"User:u{row}", "*", 3, 3) for row in part]
        await call(client, CreateAclsRequest(rules))


async def quotas(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        entries = [
            QuotaAlteration([EntityData("user", f"u{row}")], [OpData("producer_byte_rate", 1e9)])
            for row in part
        ]
        await call(client, AlterClientQuotasRequest(entries))


async def configurations(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        await call(
            client,
            IncrementalAlterConfigsRequest(
                [
                    AlterConfigsResource(
                        32, f"g{row}", [AlterableConfig("consumer.session.timeout.ms", 0, "45001")]
                    )
                    for row in part
                ]
            ),
        )


async def groups(client: SimClient, rows: range) -> None:
    for row in rows:
        await call(client, consumer("m", group=f"g{row}", names=["missing"]))


async def tokens(client: SimClient, rows: range) -> None:
    for _ in rows:
        await call(client, CreateDelegationTokenRequest(max_lifetime_ms=-1))


async def scram_users(client: SimClient, rows: range) -> None:
    for part in parts(rows):
        users = [ScramCredentialUpsertion(f"u{row}", 1, 4096, b"salt", bytes(32)) for row in part]
        await call(client, AlterUserScramCredentialsRequest([], users))


async def members_who_may_join(client: SimClient, rows: range) -> None:
    for _ in rows:
        await call(client, JoinGroupRequest("c", 300_000, 300_000, "", None, "consumer", [RANGE]))


async def static_members(client: SimClient, rows: range) -> Iterable[Message]:
    """They join at once, each by a request that nobody waits for; a leader gets all of them then."""
    for row in rows:
        await client.send(
            JoinGroupRequest("c", 1_800_000, 60_000, "", f"i{row}", "consumer", [RANGE]), JOIN_GROUP
        )
    await trio.sleep(70)
    return [JoinGroupRequest("c", 1_800_000, 60_000, "", "i1", "consumer", [RANGE])]


async def a_fetch_session(client: SimClient, rows: range) -> Iterable[Message]:
    await create_topic(client, "fetched", rows.stop)
    partitions = [FetchPartition(row, partition_max_bytes=1) for row in rows]
    request = FetchRequest(session_epoch=0, topics=[FetchTopic("fetched", partitions=partitions)])
    session_id = (await call(client, request, 12)).session_id
    return [FetchRequest(session_id=session_id, session_epoch=epoch) for epoch in (1, 2)]


async def share_partitions(client: SimClient, rows: range) -> Iterable[Message]:
    await create_topic(client, "shared", rows.stop)
    for name in ("m", "n"):
        for epoch in (0, 1, 2):
            await call(
                client, ShareGroupHeartbeatRequest("s", name, epoch, None, None if epoch else ["shared"])
            )
            await trio.sleep(6)
    [topic] = (await call(client, MetadataRequest(None))).topics[-1:]
    asked = [ShareFetchTopic(topic.topic_id, [ShareFetchPartition(row) for row in rows])]
    begin = ShareFetchRequest("s", "m", 0, 0, 0, 1, 1, 1, topics=asked)
    await call(client, begin)
    return [
        ShareFetchRequest("s", "m", 1, 0, 0, 1, 1, 1),
        ShareGroupHeartbeatRequest("s", "m", 3),
        ShareFetchRequest("s", "m", -1),
        ShareGroupHeartbeatRequest("s", "m", -1),
        ShareGroupHeartbeatRequest("s", "n", -1),
        DeleteGroupsRequest(["s"]),
    ]


RANGE = JoinGroupRequestProtocol("range", b"")
JOIN_GROUP = HANDLERS[JoinGroupRequest.API_KEY].max_version

STATES: list[Build] = [
    topics,
    names_of_a_consumer,
    names_of_share_consumers,
    consumers,
    offsets,
    partitions_of_a_transaction,
    transactional_ids,
    producers,
    acls,
    quotas,
    configurations,
    groups,
    tokens,
    scram_users,
    members_who_may_join,
    static_members,
    a_fetch_session,
    share_partitions,
]
USERS = {"alice": "secret"}
LOGS_IN: dict[Build, dict[str, Any]] = {tokens: {"protocol": "SASL_PLAINTEXT", "users": USERS}}
"""The states that only an authenticated user can build, with what the broker needs for that."""


def consumer(
    member_id: str, epoch: int = 0, *, group: str = "g", names: list[str] | None = None
) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group, member_id, epoch, subscribed_topic_names=names)
    if epoch == 0:
        request.rebalance_timeout_ms, request.topic_partitions = 300_000, []
    return request


def small_requests(turn: int) -> Iterator[tuple[Message, int | None]]:
    """Each API's smallest, and what reads or changes a state by naming one thing. ``turn``: names that are new."""
    for row in HANDLERS.values():
        api = Api(row)
        if row.name not in UNSERVED:
            yield api.request(), None
    yield MetadataRequest(None), None
    yield CreateTopicsRequest([CreatableTopic(f"new{turn}", 1, 1)], 30_000), None
    yield consumer("new", names=["missing1"]), None
    yield consumer("new", names=[f"new{turn}"]), None
    yield consumer("new", -1), None
    yield ConsumerGroupDescribeRequest(["g"]), None
    yield ShareGroupHeartbeatRequest("s", "new", 0, None, ["missing1"]), None
    yield ShareGroupHeartbeatRequest("s", "new", -1), None
    yield ShareGroupDescribeRequest(["s"]), None
    yield DescribeGroupsRequest(["g"]), None
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)], require_stable=True), None
    yield DescribeTransactionsRequest(["x"]), None
    yield DescribeProducersRequest([ProducersTopic("p", [0])]), None
    yield DescribeAclsRequest(1, None, 1, None, None, 1, 1), None
    yield DescribeClientQuotasRequest([]), None
    yield (
        FetchRequest(
            max_bytes=1, topics=[FetchTopic("p", partitions=[FetchPartition(0, partition_max_bytes=1)])]
        ),
        12,
    )
    yield InitProducerIdRequest("x", 900_000), None
    yield EndTxnRequest("x", 0, 0, committed=True), 3
    yield DeleteGroupsRequest(["g"]), None


async def connected(broker: SimBroker, *, logs_in: bool) -> SimClient:
    client = broker.connect()
    if logs_in:
        [(name, password)] = USERS.items()
        await call(client, SaslHandshakeRequest("PLAIN"))
        await call(client, SaslAuthenticateRequest(f"\0{name}\0{password}".encode()))
    return client


async def longest(
    broker: SimBroker, turn: int, more: Iterable[Message], *, logs_in: bool
) -> dict[str, LongestTurn]:
    """The longest turn of each request, by a client of its own, and of a while."""
    found: dict[str, LongestTurn] = {}
    for request, version in (*((one, None) for one in more), *small_requests(turn)):
        client = await connected(broker, logs_in=logs_in)
        one = LongestTurn()
        try:
            with trio.move_on_after(60):
                await call(client, request, version)
        except (ConnectionEndedError, ValueError):
            pass  # a smallest request that nobody sends: it closes the connection, or has no encoding
        one.end()
        name = type(request).__name__
        if name not in found or found[name].lines < one.lines:
            found[name] = one
    one = LongestTurn()
    await trio.sleep(A_WHILE_S)
    one.end()
    found["a while"] = one
    return found


@pytest.mark.slow
@pytest.mark.parametrize("build", STATES, ids=lambda build: build.__name__)
def test_the_work_between_two_turns_does_not_grow_with_a_state(build: Build) -> None:
    found: list[dict[str, LongestTurn]] = []

    @simulated_work(steps=2)
    async def run() -> None:
        logs_in = build in LOGS_IN
        for count in (FEW, MANY):
            async with SimBroker(config=CONFIG, **LOGS_IN.get(build, {})) as broker:
                client = await connected(broker, logs_in=logs_in)
                await find(client)
                await call(client, InitProducerIdRequest("first", 60_000))
                more = await build(client, range(count))
                found.append(await longest(broker, count, more or (), logs_in=logs_in))

    run()
    few, many = found
    grown = {
        name: (many[name].lines - few[name].lines, many[name].where.most_common(4))
        for name in many
        if many[name].lines - few[name].lines > LINES_PER_ROW * (MANY - FEW)
        and (build.__name__, name) not in KNOWN
    }
    assert not grown, "\n".join(map(str, grown.items()))
