"""Three nodes with everything going wrong: what was acknowledged stays, and all replicas agree in the end.

Every choice comes from the seed in the test's name: a failure repeats, and what happened until then is printed.
"""

from __future__ import annotations

import pytest
import trio

from oncelog.broker.network.network import CONTROLLER_ID
from tests.common.batches import batch
from tests.harness.requests import PRODUCE_VERSION, create_topic, produce, produce_request
from tests.harness.sim_cluster import PATIENCE_S, SETTLED_S, running_cluster
from tests.harness.simulation import simulated
from tests.sim.nodes_run import SAFE, Plan, World, create_topics, run, write_and_read
from tests.sim.nodes_seeds import run_seed

SEEDS = 100


@pytest.mark.parametrize("seed", range(SEEDS))
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
