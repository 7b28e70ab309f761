"""Three nodes with everything going wrong: what was acknowledged stays, and all replicas agree in the end.

Every choice comes from the seed in the test's name: a failure repeats, and what happened until then is printed.
"""

from __future__ import annotations

import errno

import pytest
import trio

from oncelog.broker.controller.leadership import ELECTIONS_AT_ONCE
from oncelog.broker.metadata.image import Partition
from oncelog.broker.metadata.replica_directories import LOST
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.seams.memory_files import Operation
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.common.batches import batch, record
from tests.common.seeds import seeds
from tests.harness.requests import PRODUCE_VERSION, create_topic, produce, produce_request
from tests.harness.sim_cluster import PATIENCE_S, SETTLED_S, SimCluster, running_cluster
from tests.harness.simulation import simulated, simulated_work
from tests.sim.disk import Fault
from tests.sim.nodes_clients import SAFE, Plan, World
from tests.sim.nodes_run import create_topics, run, write_and_read
from tests.sim.nodes_seeds import run_seed

LIVES, NEW_LIVES = 50, 50
"""The new ones are of other seeds in each `make test-kafka`; `make soak` lives ten thousand."""


@pytest.mark.parametrize("seed", seeds(LIVES, NEW_LIVES))
def test_nodes_keep_what_they_have_acknowledged(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("encodes", [False, True])
def test_without_faults_each_record_is_there(encodes: bool) -> None:
    world = run(Plan(1, "none", encodes=encodes), write_and_read)
    for model in world.partitions.values():
        assert model.acknowledged
        assert [election.epoch for election in model.elections] == [0]


def test_the_same_seed_is_the_same_life() -> None:
    def story(world: World) -> list[object]:
        return [
            world.events,
            *((model.name, model.elections, model.acknowledged) for model in world.partitions.values()),
        ]

    assert story(run_seed(3)) == story(run_seed(3))


@simulated
async def test_a_node_that_waits_for_the_end_of_its_last_session_misses_no_metadata() -> None:
    """What the controller committed meanwhile, the other nodes have: it keeps that no longer for them."""
    async with running_cluster() as cluster:
        late = cluster.nodes[1]
        cluster.network.delay(late.node_id, CONTROLLER_ID, 0.01)
        await late.crash("process")
        late.begin()
        client = cluster.nodes[2].connect()
        for number in range(3):
            await trio.sleep(0.2)
            await create_topic(client, f"t{number}")
        assert not late.is_up
        with trio.fail_after(PATIENCE_S):
            await late.serves.wait()
        assert {"t0", "t1", "t2"} <= set(late.node.metadata.image.topics)


@simulated
async def test_a_node_that_is_fenced_again_before_it_learns_that_it_was_unfenced_goes_on() -> None:
    async with running_cluster() as cluster:
        late = cluster.nodes[2]
        await late.crash("process")
        cluster.controller.end_session(late.node_id)
        cluster.network.delay(CONTROLLER_ID, late.node_id, 2)  # longer than its session
        late.begin()
        client = cluster.nodes[1].connect()
        for number in range(20):  # its metadata are always under way
            await trio.sleep(0.4)
            await create_topic(client, f"t{number}")
        assert not late.is_up
        cluster.network.heal()
        with trio.fail_after(SETTLED_S):
            await late.serves.wait()


@simulated
async def test_a_new_leader_flushes_what_it_has_where_flush_messages_asks_for_it() -> None:
    """Otherwise its watermark stands still until somebody appends: it counts itself up to what is flushed."""
    async with running_cluster(config={"log.flush.interval.messages": "1"}) as cluster:
        world = World(cluster, Plan(0, "none"), cluster.rng)
        await create_topics(world)
        leader = cluster.leader_of(SAFE, 0)
        client = cluster.nodes[leader].connect()
        await produce(client, SAFE, acks=-1)
        for node in cluster.nodes.values():
            node.files.latency_s = 1
        await client.send(produce_request(SAFE, batch(), acks=-1), PRODUCE_VERSION)
        await trio.sleep(0.5)
        async with trio.open_nursery() as nursery:
            for node in cluster.nodes.values():
                nursery.start_soon(node.crash, "process")
        for node in cluster.nodes.values():
            node.files.latency_s = 0
            node.begin()
        await cluster.wait_until(
            lambda: (
                [(log.log_end_offset, log.high_watermark) for log in world.logs(SAFE, 0).values()]
                == [(2, 2)] * 3
            ),
            "the watermark stands still",
            SETTLED_S,
        )


async def fail_the_disk_of_the_leader(cluster: SimCluster, topic: str, operation: Operation) -> int:
    """Let the write or fsync of a topic's leader fail once; return its node. Its log is offline then."""
    leader = cluster.leader_of(topic, 0)
    fault = Fault(operation, errno.EIO, lambda path: f"/{topic}-0/" in path, times=1)
    cluster.nodes[leader].files.faults.append(fault)
    refused = await produce(cluster.nodes[leader].connect(), topic, acks=-1)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    return leader


@pytest.mark.parametrize("operation", ["write", "fsync"])
def test_a_log_that_goes_offline_gives_up_its_leadership(operation: Operation) -> None:
    """Its other logs stay where they are, and after the node's next start the replica is in sync again."""

    @simulated
    async def life() -> None:
        async with running_cluster(config={"log.flush.interval.messages": "1"}) as cluster:
            for topic in ("t", "other"):
                await create_topic(cluster.nodes[1].connect(), topic, replicas=3)
            state = cluster.image.topics["t"].partitions[0]
            await produce(cluster.nodes[state.leader].connect(), "t", acks=-1)
            others = cluster.image.topics["other"].partitions[0].isr

            failed = await fail_the_disk_of_the_leader(cluster, "t", operation)
            await cluster.wait_until(lambda: state.leader not in (failed, -1), "nobody else leads")
            assert failed not in state.isr
            assert failed in others
            for topic, offline in (("t", [failed]), ("other", [])):
                asked = MetadataRequest([MetadataRequestTopic(name=topic)])
                told = await cluster.nodes[state.leader].connect().call(asked, 12, MetadataResponse)
                assert told.topics[0].partitions[0].offline_replicas == offline
            row = await produce(cluster.nodes[state.leader].connect(), "t", acks=-1)
            assert row.error_code == 0

            await cluster.nodes[failed].crash("process")
            await cluster.nodes[failed].start()
            await cluster.wait_until(lambda: sorted(state.isr) == [1, 2, 3], "it does not come back")
            await cluster.wait_until(lambda: LOST not in state.directories, "its directory is still lost")

    life()


@pytest.mark.parametrize("records", [pytest.param(1, id="short log"), pytest.param(40, id="slow recovery")])
@simulated_work(2)
async def test_the_only_replica_that_goes_offline_has_no_leader_until_its_next_start(records: int) -> None:
    async with running_cluster(config={"min.insync.replicas": "1"}) as cluster:
        await create_topic(cluster.nodes[1].connect(), "t")
        state: Partition = cluster.image.topics["t"].partitions[0]
        for _ in range(records):
            large = batch([record(b"k", bytes(20_000))])
            await produce(cluster.nodes[state.leader].connect(), "t", large, acks=-1)
        failed = await fail_the_disk_of_the_leader(cluster, "t", "write")
        await cluster.wait_until(lambda: state.leader == -1, "it leads on")

        await cluster.nodes[failed].crash("process")
        await cluster.nodes[failed].start()
        await cluster.wait_until(lambda: state.leader == failed, "it does not lead again")
        assert (await produce(cluster.nodes[failed].connect(), "t", acks=-1)).base_offset == records


@pytest.mark.slow
@simulated_work(20)
async def test_elections_by_timer_do_all_that_is_due() -> None:
    """A thousand at once, and the next thousand at once after them (Kafka: 10 ms later)."""
    count = ELECTIONS_AT_ONCE + 1
    config = {"leader.imbalance.check.interval.seconds": "60"}
    async with running_cluster(config=config) as cluster:
        rows = [CreatableReplicaAssignment(number, [1, 2]) for number in range(count)]
        request = CreateTopicsRequest([CreatableTopic("t", -1, -1, rows)], 1000)
        response = await cluster.nodes[1].connect().call(request, 7, CreateTopicsResponse)
        assert response.topics[0].error_code == 0
        states = cluster.image.topics["t"].partitions
        await cluster.nodes[1].stop()
        assert {state.leader for state in states} == {2}
        await cluster.nodes[1].start()
        await cluster.wait_until(lambda: all(len(state.isr) == 2 for state in states), "not in sync")
        await trio.sleep(60)
        assert [state.leader for state in states].count(1) in (0, count)
        await cluster.wait_until(lambda: {state.leader for state in states} == {1}, "not preferred", 59)
