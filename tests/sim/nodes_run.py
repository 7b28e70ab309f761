"""One random life of three nodes: what goes wrong, all chosen by a seed.

Nodes are killed (some in the middle of a write), lose power, are stopped and started; links are cut, one way too, and
slow; sessions expire, leaders are elected, partitions move to other nodes, records are deleted, time jumps, and nodes'
wall time differs. In the end all is mended: what was acknowledged is there, the logs of all replicas are equal, and
nothing hangs.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from oncelog.broker.metadata.image import Partition
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from oncelog.wire.schema import Message, Request
from tests.harness.sim_cluster import PATIENCE_S, SETTLED_S, SimMember, running_cluster
from tests.harness.sim_nodes import batches_of
from tests.harness.simulation import deterministic
from tests.sim.nodes_clients import (
    LOOSE,
    LOST,
    SAFE,
    TOPICS,
    TRANSACTIONAL,
    Client,
    Kind,
    OneTimeWriter,
    Plan,
    Reader,
    Workload,
    World,
    Writer,
    reads_in,
)

INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Faults:
    """What goes wrong, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = world.cluster
        self.rng = world.rng
        self.steps: dict[Kind, list[Callable[[], Awaitable[object]]]] = {
            "kills": [
                self.kill,
                self.kill_in_a_write,
                self.stop,
                self.start,
                self.start,
                self.expire,
                self.delete_records,
            ],
            "cuts": [
                self.cut,
                self.cut_off,
                self.delay,
                self.heal,
                self.heal,
                self.expire,
                self.break_connections,
            ],
            "power": [
                self.lose_power,
                self.lose_power,
                self.lose_power_everywhere,
                self.slow_disk,
                self.delete_records,
                self.kill_in_a_write,
                self.stop,
                self.start,
                self.start,
                self.start,
            ],
            "unflushed": [
                self.lose_power_alone,
                self.lose_power_alone,
                self.kill,
                self.cut,
                self.heal,
                self.heal,
                self.elect_preferred,
                self.start,
                self.start,
                self.start,
            ],
            "all": [],
            "none": [self.heal],
        }
        self.steps["all"] = [
            *self.steps["kills"],
            *self.steps["cuts"],
            *((self.lose_power,) if world.cluster.texts.get("log.flush.interval.messages") else ()),
            self.elect_preferred,
            self.elect_unclean,
            self.reassign,
            self.reassign,
            self.delete_records,
            self.cancel_reassignment,
            self.skew,
            self.advance,
            self.start,
            self.start,
        ]

    async def run(self) -> None:
        steps = self.steps[self.world.plan.kind]
        for number in range(self.world.plan.steps):
            await trio.sleep(self.rng.choice((0.05, 0.3, 0.8, 2.5)) * self.rng.uniform(0.5, 1.5))
            await self.rng.choice(steps)()
            if number % 6 == 0:
                self.world.check_logs()

    def some_node(self) -> SimMember:
        return self.cluster.nodes[self.rng.choice((1, 2, 3))]

    async def kill(self) -> None:
        node = self.some_node()
        self.world.note(f"kill {node.node_id}")
        await node.crash("process")

    async def lose_power(self) -> SimMember:
        node = self.some_node()
        self.world.note(f"lose power of {node.node_id}")
        await node.crash("power")
        return node

    async def lose_power_everywhere(self) -> None:
        self.world.note("lose power everywhere")
        for node in self.cluster.nodes.values():
            await node.crash("power")

    async def lose_power_alone(self) -> None:
        """Another node has what this one loses: each partition has two in sync, and all that are in sync run."""
        up = {node.node_id for node in self.world.up()}
        topics = self.cluster.image.topics.values()
        if all(
            len(state.isr) >= 2 and up.issuperset(state.isr) for topic in topics for state in topic.partitions
        ):
            node = await self.lose_power()
            if TRANSACTIONAL in self.world.plan.topics:
                # Until it is fenced, it may be all that is in sync once the others are killed, and lead when it is
                # back: it loses what it has acknowledged then, as Kafka's last known leader does.
                self.cluster.controller.end_session(node.node_id)

    async def slow_disk(self) -> None:
        node = self.some_node()
        node.files.latency_s = self.rng.choice((0, 0.01, 0.1))
        self.world.note(f"a call to the disk of {node.node_id} takes {node.files.latency_s} s")

    async def kill_in_a_write(self) -> None:
        node = self.some_node()
        if not node.is_dead:
            self.world.note(f"kill {node.node_id} in a write")
            node.files.crash_at = node.files.steps + self.rng.randrange(30)

    async def stop(self) -> None:
        node = self.some_node()
        if node.is_up and not node.is_stopping:
            self.world.note(f"stop {node.node_id}")
            node.is_stopping = True
            self.cluster.nursery.start_soon(node.stop)

    async def start(self) -> None:
        down = [node for node in self.cluster.nodes.values() if node.ended.is_set()]
        if down:
            node = self.rng.choice(down)
            self.world.note(f"start {node.node_id}")
            if self.rng.random() < 0.5:
                self.cluster.controller.end_session(node.node_id)
            node.begin()

    async def expire(self) -> None:
        node = self.some_node()
        self.world.note(f"end the session of {node.node_id}")
        self.cluster.controller.end_session(node.node_id)

    async def cut(self) -> None:
        source, target = self.rng.sample((1, 2, 3, CONTROLLER_ID), 2)
        self.world.note(f"cut {source} -> {target}")
        self.cluster.network.cut(source, target)
        if self.rng.random() < 0.5:
            self.cluster.network.cut(target, source)

    async def cut_off(self) -> None:
        node_id = self.some_node().node_id
        others = [other for other in (1, 2, 3) if other != node_id]
        if self.rng.random() < 0.4:
            others.append(CONTROLLER_ID)
        self.world.note(f"cut {node_id} off from {others}")
        for other in others:
            self.cluster.network.cut(node_id, other)
            self.cluster.network.cut(other, node_id)

    async def delay(self) -> None:
        source, target = self.rng.sample((1, 2, 3, CONTROLLER_ID), 2)
        seconds = self.rng.choice((0.01, 0.1, 0.4, 1.0))
        self.world.note(f"delay {source} -> {target}: {seconds}")
        self.cluster.network.delay(source, target, seconds)

    async def heal(self) -> None:
        self.world.note("heal")
        self.cluster.network.heal()

    async def break_connections(self) -> None:
        up = self.world.up()
        if up:
            node = self.rng.choice(up)
            self.world.note(f"break the connections of {node.node_id}")
            for connection in node.node.server.connections:
                connection.transport.break_off()

    async def delete_records(self) -> None:
        topic, partition = self.some_partition()
        leader = self.cluster.leader_of(topic, partition)
        log = self.world.logs(topic, partition).get(leader)
        if topic == TRANSACTIONAL or log is None:
            return
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        model = self.world.partitions[topic, partition]
        model.deleted_below = max(model.deleted_below, offset)
        self.world.note(f"delete records of {topic} {partition} below {offset} by {leader}")
        self.cluster.nursery.start_soon(
            self._delete_records, Client(self.world, topic, partition), leader, offset
        )

    async def _delete_records(self, client: Client, leader: int, offset: int) -> None:
        rows = [DeleteRecordsPartition(client.partition, offset)]
        request = DeleteRecordsRequest([DeleteRecordsTopic(client.topic, rows)], 1000)
        with suppress(*LOST):
            response = await client.call(leader, request, 2, DeleteRecordsResponse)
            row = response.topics[0].partitions[0]
            code = ErrorCode(row.error_code)
            assert code.retriable or (code is ErrorCode.NONE and row.low_watermark >= offset), row
        client.hang_up(leader)

    async def elect_preferred(self) -> None:
        self._elect(0)

    async def elect_unclean(self) -> None:
        self._elect(1)

    def _elect(self, election_type: int) -> None:
        topic, partition = self.some_partition()
        if topic == LOOSE or election_type == 0:
            request = ElectLeadersRequest(election_type, [TopicPartitions(topic, [partition])], 1000)
            self._send(f"elect {election_type}", topic, partition, request, ElectLeadersResponse)

    async def reassign(self) -> None:
        topic, partition = self.some_partition()
        count = self.rng.choice((1, 2, 3) if topic == LOOSE else (2, 3))
        self._reassign(topic, partition, self.rng.sample((1, 2, 3), count))

    async def cancel_reassignment(self) -> None:
        self._reassign(*self.some_partition(), None)

    def _reassign(self, topic: str, partition: int, replicas: list[int] | None) -> None:
        request = reassignment(topic, partition, replicas)
        self._send(f"reassign to {replicas}", topic, partition, request, AlterPartitionReassignmentsResponse)

    def some_partition(self) -> tuple[str, int]:
        topic = self.rng.choice(self.world.plan.topics)
        return topic, self.rng.randrange(self.world.plan.partitions)

    def _send(
        self, what: str, topic: str, partition: int, request: Request[Any], response: type[Message]
    ) -> None:
        """Send a request of an admin client to some node, and do not wait for the response."""
        up = self.world.up()
        if up:
            node_id = self.rng.choice(up).node_id
            self.world.note(f"{what} {topic} {partition} by {node_id}")
            client = Client(self.world, topic, partition)
            self.cluster.nursery.start_soon(self._call, client, node_id, request, response)

    async def _call(
        self, client: Client, node_id: int, request: Request[Any], response: type[Message]
    ) -> None:
        self.world.admin_calls += 1
        with suppress(*LOST):
            await client.call(node_id, request, type(request).MAX_VERSION, response)
        client.hang_up(node_id)
        self.world.admin_calls -= 1

    async def skew(self) -> None:
        node = self.some_node()
        node.clock.skew_ms = self.rng.choice((-30_000, -500, 0, 500, 30_000))
        self.world.note(f"skew {node.node_id} by {node.clock.skew_ms} ms")

    async def advance(self) -> None:
        seconds = self.rng.choice((0.5, 2, 30))
        self.world.note(f"advance by {seconds}")
        self.cluster.clock.advance(seconds)


def reassignment(
    topic: str, partition: int, replicas: list[int] | None
) -> AlterPartitionReassignmentsRequest:
    """``replicas``: None cancels what is under way."""
    rows = [ReassignablePartition(partition, replicas)]
    return AlterPartitionReassignmentsRequest(1000, topics=[ReassignableTopic(topic, rows)])


async def live(plan: Plan, workload: Workload) -> World:
    rng = random.Random(plan.seed)
    texts = dict(INTERNAL_TOPICS)
    if plan.kind == "power" or rng.random() < 0.2:
        texts["log.flush.interval.messages"] = "1"
    async with running_cluster(plan.seed, encodes=plan.encodes, config=texts) as cluster:
        world = World(cluster, plan, rng)
        try:
            await create_topics(world)
            await workload(world)
            await finish(world)
            world.is_finished = True
        except BaseException:
            print("\n".join(world.events))
            raise
    return world


async def create_topics(world: World) -> None:
    client = world.cluster.nodes[1].connect()
    request = CreateTopicsRequest(
        [
            CreatableTopic(
                name,
                world.plan.partitions,
                3,
                [],
                [CreatableTopicConfig(*row) for row in TOPICS[name].items()],
            )
            for name in world.plan.topics
        ],
        5000,
    )
    response = await client.call(request, 7, CreateTopicsResponse)
    assert not any(row.error_code for row in response.topics), response
    client.transport.close()
    world.watch()


async def write_and_read(world: World) -> None:
    """Write to all partitions and read them, while `Faults` happen and until all is mended."""
    writers = [
        Writer(world, f"w{number}", topic, partition)
        for number in range(2)
        for topic, partition in world.partitions
        if number == 0 or topic == SAFE
    ]
    faults = Faults(world)
    async with trio.open_nursery() as nursery:
        for writer in writers:
            nursery.start_soon(writer.run)
        for topic, partition in world.partitions:
            nursery.start_soon(Reader(world, topic, partition).run)
            nursery.start_soon(OneTimeWriter(world, topic, partition).run)
        await faults.run()
        await mend(world)
        world.is_over = True
        await world.cluster.wait_until(
            lambda: all(writer.is_done for writer in writers), "writers are not done"
        )


async def mend(world: World) -> None:
    """End all faults, and start the nodes that do not run."""
    cluster = world.cluster
    world.note("mend")
    cluster.network.heal()
    for node in cluster.nodes.values():
        node.files.crash_at = None
        if node.ended.is_set():
            node.begin()
    for node in cluster.nodes.values():
        if node.is_stopping:
            with trio.move_on_after(PATIENCE_S):
                await node.ended.wait()
            assert node.ended.is_set(), f"node {node.node_id} does not stop"
            node.begin()
        with trio.move_on_after(PATIENCE_S):
            await node.serves.wait()
        assert node.is_up, f"node {node.node_id} does not start"
    await cluster.wait_until(lambda: not world.admin_calls, "an admin client has no response")
    for topic, partition in world.partitions:
        await replicate_everywhere(world, topic, partition)


async def replicate_everywhere(world: World, topic: str, partition: int) -> None:
    """Give each node a replica again. What is under way is cancelled first: one reassignment that overtakes another may
    leave a replica to be added and removed, and never ends then, as in Kafka.
    """
    state = world.cluster.image.topics[topic].partitions[partition]
    client = world.cluster.nodes[1].connect()
    with trio.fail_after(PATIENCE_S):
        while (is_moving := bool(state.adding_replicas or state.removing_replicas)) or len(
            state.replicas
        ) < 3:
            request = reassignment(topic, partition, None if is_moving else [1, 2, 3])
            await client.call(request, type(request).MAX_VERSION, AlterPartitionReassignmentsResponse)
            await trio.sleep(0.1)
            if not is_moving:
                with trio.move_on_after(SETTLED_S):
                    while state.adding_replicas:
                        await trio.sleep(0.5)
    client.transport.close()


async def finish(world: World) -> None:
    """Wait until all replicas are in sync, and compare them with what the clients know."""
    cluster = world.cluster
    for (topic, index), model in world.partitions.items():
        state = cluster.image.topics[topic].partitions[index]
        await cluster.wait_until(partial(is_in_sync, state), f"{model.name} is not in sync")
        await cluster.wait_until(
            partial(is_equal, world, topic, index), f"the replicas of {model.name} are not equal", SETTLED_S
        )
        logs = world.logs(topic, index)
        stored = [model.on_log(node_id, log) for node_id, log in logs.items()]
        start = max(log.log_start_offset for log in logs.values())
        stored = [[batch for batch in own if batch.base_offset >= start] for own in stored]
        assert stored[0] == stored[1] == stored[2], f"{model.name}: logs differ: {stored}"
        data = b"".join(batches_of(logs[1], logs[1].log_start_offset))
        values = dict(reads_in(data))
        assert list(values) == list(range(min(values, default=0), min(values, default=0) + len(values)))
        model.check_end(values)


def is_in_sync(state: Partition) -> bool:
    return len(state.isr) == 3


def is_equal(world: World, topic: str, partition: int) -> bool:
    """Whether three logs end at the same offset, and all of it is below the watermark."""
    logs = world.logs(topic, partition)
    offsets = {offset for log in logs.values() for offset in (log.log_end_offset, log.high_watermark)}
    return len(logs) == 3 and len(offsets) == 1


def run(plan: Plan, workload: Workload = write_and_read) -> World:
    """Live a life; return its world for who is curious."""
    return deterministic(lambda: live(plan, workload), plan.seed)
