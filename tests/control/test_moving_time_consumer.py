"""Moving a broker's time: members of the consumer protocol (KIP-848), and of both protocols in one group."""

from __future__ import annotations

import trio

from oncelog.broker.control.operations.clock import expire_session
from oncelog.wire.errors import ErrorCode
from tests.control.time_moves import advance, move_of
from tests.handlers.test_consumer_group_heartbeat import SimConsumer, described
from tests.harness.classic_consumers import assignment, subscription
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated

HOUR_S, DAY_S = 3600, 24 * 3600


@simulated
async def test_a_dead_member_goes_and_a_live_one_stays() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        dead = SimConsumer(broker.connect(), "dead", ["t"])
        alive = SimConsumer(broker.connect(), "alive", ["t"])
        await dead.join()
        await alive.join()
        await dead.beat(topic_partitions=[])
        await alive.beat()
        assert not await advance(broker, DAY_S)
        dead.client.transport.close()
        happened = await advance(broker, DAY_S)
        assert [str(one) for one in happened] == ["member dead of group g: session expired"]
        assert [row.member_id for row in (await described(client)).members] == ["alive"]
        assert (await alive.beat()).error_code == 0
        assert len(alive.owned) == 2


@simulated
async def test_a_live_member_gets_the_time_to_revoke() -> None:
    """It learns only from its next heartbeat that it must, and then acknowledges it."""
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        one = SimConsumer(broker.connect(), "one", ["t"])
        await one.join()
        two = SimConsumer(broker.connect(), "two", ["t"])
        await trio.sleep(2)  # until the group may assign anew
        await two.join()
        await one.beat()  # it is told to revoke, and has not done it
        assert len(one.owned) == 1
        assert not await advance(broker, HOUR_S)
        assert {row.member_id for row in (await described(client)).members} == {"one", "two"}
        happened = await advance(broker, HOUR_S, keep_members=False)
        assert [(one.about["member"], one.about["reason"]) for one in happened[:2]] == [
            ("one", "session expired"),
            ("two", "session expired"),
        ]


@simulated
async def test_a_member_that_does_not_revoke_in_time() -> None:
    async with SimBroker(config={"group.consumer.session.timeout.ms": "60000"}) as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        one = SimConsumer(broker.connect(), "one", ["t"])
        two = SimConsumer(broker.connect(), "two", ["t"])
        await one.join()
        await trio.sleep(2)
        await two.join()
        await one.beat()
        await trio.sleep(50)
        one.client.transport.close()
        one.client = broker.connect()
        await one.beat()
        one.client.transport.close()
        [happened] = await advance(broker, 59)
        assert str(happened) == "member one of group g: did not revoke its partitions in time"


@simulated
async def test_a_classic_member_of_a_consumer_group_is_kept_until_it_rejoins() -> None:
    async with SimBroker(config={"group.consumer.migration.policy": "bidirectional"}) as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        classic = SimMember(broker, "g")
        classic.metadata = subscription(["t"])
        await classic.enter()
        await classic.sync({classic.member_id: assignment({"t": [0, 1]})})
        await trio.sleep(2)
        consumer = SimConsumer(broker.connect(), "consumer", ["t"])
        assert (await consumer.join()).error_code == 0
        assert await classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert not await advance(broker, DAY_S)
        classic.client.transport.close()
        happened = await advance(broker, DAY_S)
        assert [one.about["member"] for one in happened] == [classic.member_id]
        assert [row.member_id for row in (await described(client)).members] == ["consumer"]


@simulated
async def test_one_member_expires_alone() -> None:
    async with SimBroker() as broker:
        client = await coordinated(broker)
        await create_topic(client, "t", 2)
        for name in ("one", "two"):
            await SimConsumer(broker.connect(), name, ["t"]).join()
        move = move_of(broker)
        await move.settle(10, lambda: expire_session((broker.node,), "g", "two"))
        assert [str(one) for one in move.happened] == ["member two of group g: session expired"]
        assert [row.member_id for row in (await described(client)).members] == ["one"]
