"""Topics, groups, transactions and producers as a test sees them."""

from __future__ import annotations

import pickle

import pytest
import trio

from oncelog.broker.control import views
from oncelog.broker.control.errors import NotFoundError
from oncelog.broker.control.types import GroupInfo, Member, PartitionInfo, ProducerInfo, TransactionInfo
from tests.common.batches import batch, record
from tests.handlers.test_consumer_group_heartbeat import SimConsumer
from tests.harness.classic_consumers import assignment, subscription
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.offset_requests import commit
from tests.harness.offsets_topic import ONE_PARTITION, fill
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import EPOCH_MS, SimBroker
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import Link, TransactionalProducer


@simulated
async def test_topic() -> None:
    async with SimBroker(config={"log.retention.ms": "5000"}) as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2, {"cleanup.policy": "compact"})
        for _ in range(3):
            await produce(client, "t", batch([record(b"k", b"v")]), 1)
        broker.node.cluster.log("t", 1).delete_records(2)
        assert await views.topics(broker.node) == ["t"]
        assert await views.topics(broker.node, internal=True) == ["__consumer_offsets", "t"]
        found = await views.topic(broker.node, name="t")
        assert found.partitions == (PartitionInfo(0, 0, 0, 0, 0, 0), PartitionInfo(1, 2, 3, 3, 3, 0))
        assert found.overrides == {"cleanup.policy": "compact"}
        assert found.config["cleanup.policy"] == "compact"
        assert found.config["retention.ms"] == "5000"
        assert len(found.topic_id) == 22
        assert pickle.loads(pickle.dumps(found)) == found
        assert repr(found).endswith(", leader_epoch=0)), overrides={'cleanup.policy': 'compact'})")
        with pytest.raises(NotFoundError, match=r"no topic 'T'; did you mean t\?"):
            await views.topic(broker.node, name="T")


@simulated
async def test_a_classic_group_of_consumers() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        await produce(client, "t", batch([record(None, b"v", offset_delta=at) for at in range(5)]), 1)
        member = SimMember(broker, "billing", instance="i")
        member.metadata = subscription(["t"])
        await member.enter()
        await member.sync({member.member_id: assignment({"t": [0, 1]})})
        found = await views.group(broker.node, group_id="billing")
        assert found == GroupInfo(
            group_id="billing",
            type="classic",
            state="Stable",
            protocol_type="consumer",
            protocol="range",
            epoch=1,
            members=(
                Member(
                    member.member_id,
                    "simulated",
                    "/client",
                    instance_id="i",
                    epoch=1,
                    subscription=("t",),
                    assignment={"t": [0, 1]},
                ),
            ),
            committed={},
            pending={},
            lag={"t": {0: 0, 1: 5}},
        )
        assert found.total_lag == 5
        assert repr(found.members[0]) == (
            f"Member(member_id={member.member_id!r}, client_id='simulated', host='/client', instance_id='i', epoch=1, "
            "subscription=('t',), assignment={'t': [0, 1]})"
        )
        assert not found.is_simple
        assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("metadata", [b"", b"m", b"\0\0\0\0\0\x09"])
@simulated
async def test_members_with_bytes_that_are_no_subscription(metadata: bytes) -> None:
    async with SimBroker() as broker:
        await coordinated(broker)
        member = SimMember(broker, "g")
        member.metadata = metadata
        await member.enter()
        await member.sync({member.member_id: metadata})
        [shown] = (await views.group(broker.node, group_id="g")).members
        assert (shown.subscription, shown.assignment) == ((), {})


@simulated
async def test_a_consumer_group() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        await SimConsumer(client, "one", ["t"]).join()
        found = await views.group(broker.node, group_id="g")
        assert (found.type, found.state, found.protocol, found.epoch) == ("consumer", "Stable", "uniform", 2)
        has = {"t": [0, 1]}
        assert found.members == (
            Member(
                "one",
                "simulated",
                "/client",
                protocol="consumer",
                epoch=2,
                subscription=("t",),
                assignment=has,
                target_assignment=has,
            ),
        )
        assert found.lag == {"t": {0: 0, 1: 0}}


@simulated
async def test_a_group_that_has_only_offsets() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 3)
        await produce(client, "t", batch([record(None, b"v", offset_delta=at) for at in range(5)]), 1)
        await commit(client, "simple", {"t": {1: 2, 2: 0}})
        found = await views.group(broker.node, group_id="simple")
        assert found.is_simple
        assert (found.state, found.protocol_type, found.members) == ("Empty", "", ())
        assert found.committed == {"t": {1: 2, 2: 0}}
        assert found.lag == {"t": {1: 3, 2: 0}}
        broker.node.cluster.log("t", 1).delete_records(4)
        assert (await views.group(broker.node, group_id="simple")).lag == {"t": {1: 1, 2: 0}}
        assert await views.groups(broker.node) == ["simple"]
        with pytest.raises(NotFoundError, match=r"no group 'sample'; did you mean simple\?"):
            await views.group(broker.node, group_id="sample")


@simulated
async def test_an_open_transaction() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        producer = TransactionalProducer(Link(client), "app", timeout_ms=30_000)
        await producer.init()
        await producer.send("t", 1, [b"a", b"b"], EPOCH_MS)
        await producer.send_offset("g", "t", 0, 7)
        node = broker.node
        assert await views.transactions(node) == [
            TransactionInfo(
                "app",
                "Ongoing",
                producer.producer_id,
                producer.epoch,
                30_000,
                EPOCH_MS,
                EPOCH_MS,
                {"__consumer_offsets": [node.groups.runtime.partition_for("g")], "t": [1]},
            )
        ]
        assert await views.producers(node, topic="t") == [
            ProducerInfo("t", 1, producer.producer_id, producer.epoch, 1, EPOCH_MS, 0, "app")
        ]
        assert await views.producers(node) == await views.producers(node, topic="t", partition=1)
        group = await views.group(node, group_id="g")
        assert (group.committed, group.pending) == ({}, {"t": {0: 7}})
        assert (await views.topic(node, name="t")).partitions[1] == PartitionInfo(1, 0, 0, 2, 2, 0)
        await commit(client, "g2", {"t": {1: 0}})
        assert (await views.group(node, group_id="g2", isolation="read_committed")).lag == {"t": {1: 0}}
        assert (await views.group(node, group_id="g2")).lag == {"t": {1: 2}}
        await producer.end(commit=True)
        ended = await views.transaction(node, transactional_id="app")
        assert (ended.state, ended.is_open, ended.partitions) == ("CompleteCommit", False, {})
        group = await views.group(node, group_id="g")
        assert (group.committed, group.pending) == ({"t": {0: 7}}, {})
        with pytest.raises(NotFoundError, match="no transactional id 'apple'; did you mean app"):
            await views.transaction(node, transactional_id="apple")


@simulated
async def test_groups_and_transactions_that_a_start_has_to_load() -> None:
    async with SimBroker(config=ONE_PARTITION) as broker:
        client = await coordinated(broker)
        await create_topic(client, "a", 2)
        await TransactionalProducer(Link(client), "app").init()
        fill(broker, "g", 2_000)
        await broker.stop()
        broker.files.is_cold = lambda path: "/__" in path
        broker.files.latency_s = 10
        began = trio.current_time()
        await broker.start()
        assert (await views.transaction(broker.node, transactional_id="app")).state == "Empty"
        async with trio.open_nursery() as nursery:  # several wait at once
            nursery.start_soon(views.groups, broker.node)
            nursery.start_soon(views.groups, broker.node)
        assert (await views.group(broker.node, group_id="g")).committed["a"][7] == 7
        assert trio.current_time() - began >= 10


@simulated
async def test_a_broker_without_coordinators() -> None:
    async with SimBroker() as broker:
        assert await views.groups(broker.node) == []
        assert await views.transactions(broker.node) == []
        with pytest.raises(NotFoundError, match=r"no group 'g' \(there is no group at all\)"):
            await views.group(broker.node, group_id="g")
