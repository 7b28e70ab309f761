"""The clients of a random life of three nodes, the world in which they live, and the model that judges it.

`Writer`s repeat each record until it is acknowledged, `OneTimeWriter`s do not; `Reader`s also read followers. What they
must not see, the model of their partition tells. What goes wrong meanwhile is `nodes_run`'s.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import trio

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.metadata.image import Topic
from oncelog.wire.batch import read_header
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.common.batches import batch, record
from tests.harness.replication_model import MARKER, Acknowledged, PartitionModel, Read
from tests.harness.requests import bytes_of
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.sim_cluster import SimCluster, SimMember

LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError, trio.BrokenResourceError)
ANSWER_S = 40
"""Simulated seconds in which a request is answered, or its connection ends."""
SAFE, LOOSE, TRANSACTIONAL = "safe", "loose", "tx"
TOPICS: dict[str, dict[str, str]] = {
    SAFE: {"min.insync.replicas": "2", "segment.ms": "3000"},
    LOOSE: {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    TRANSACTIONAL: {"min.insync.replicas": "2"},
}
TOO_LATE = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""The errors for an idempotent producer whose last batches the leader does not know."""
Kind = Literal["kills", "cuts", "power", "unflushed", "all", "none"]


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    seed: int
    kind: Kind
    steps: int = 8
    """How many faults there are."""
    encodes: bool = False
    topics: tuple[str, ...] = (SAFE, LOOSE)
    partitions: int = 1
    """In each topic."""


class World:
    """The cluster, its clients, and the models of its partitions."""

    def __init__(self, cluster: SimCluster, plan: Plan, rng: random.Random) -> None:
        self.cluster = cluster
        self.plan = plan
        self.rng = rng
        self.is_over = False
        """Whether the faults are over."""
        self.is_finished = False
        """Whether all was compared: what the nodes do when they stop does not count."""
        self.admin_calls = 0
        """Requests of admin clients that are under way."""
        self.events: list[str] = []
        """What happened, for who looks for the cause of a failure."""
        self.partitions: dict[tuple[str, int], PartitionModel] = {}

    def watch(self) -> None:
        """Tell the models of what the controller decides from now on."""
        for name in self.plan.topics:
            topic = self.cluster.image.topics[name]
            for index, state in enumerate(topic.partitions):
                model = PartitionModel(
                    f"{name}-{index}", state, is_safe=name != LOOSE and self.plan.kind != "unflushed"
                )
                self.partitions[name, index] = model
        self.cluster.controller.store.subscribe(self._on_record)

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        if isinstance(record, PartitionChangeRecord) and topic is not None:
            model = self.partitions.get((topic.name, record.partition_id))
            if model is not None and not self.is_finished:
                model.on_change(record)

    def note(self, text: str) -> None:
        self.events.append(f"{trio.current_time():.3f} {text}")

    def up(self) -> list[SimMember]:
        return [node for node in self.cluster.nodes.values() if node.is_up]

    def logs(self, topic: str, partition: int) -> dict[int, PartitionLog]:
        """The logs of a partition on the nodes that run."""
        found = {}
        for node in self.up():
            log = node.node.logs.logs.get((topic, partition))
            if log is not None and not log.offline:
                found[node.node_id] = log
        return found

    def check_logs(self) -> None:
        for (topic, index), model in self.partitions.items():
            state = self.cluster.image.topics[topic].partitions[index]
            model.check_logs(self.logs(topic, index), state.isr)


Workload = Callable[[World], Awaitable[None]]


class Client:
    """Connections to nodes, by their ids."""

    def __init__(self, world: World, topic: str, partition: int) -> None:
        self.world = world
        self.rng = random.Random(world.rng.random())
        self.topic = topic
        self.partition = partition
        self.model = world.partitions[topic, partition]
        self.connections: dict[int, SimClient] = {}
        self.epoch = 0
        """The highest leader epoch that it has heard of: it asks no leader of an earlier one."""

    def choose(self) -> tuple[int, int]:
        """Return who leads the partition, and in which epoch, as some node knows. Raises ConnectionRefusedError."""
        up = self.world.up()
        if not up:
            raise ConnectionRefusedError
        image = self.rng.choice(up).node.metadata.image
        known = image.topics.get(self.topic)
        if known is None or known.partitions[self.partition].leader < 0:
            raise ConnectionRefusedError
        state = known.partitions[self.partition]
        if state.leader_epoch < self.epoch:
            raise ConnectionRefusedError
        self.epoch = state.leader_epoch
        return state.leader, state.leader_epoch

    def connection(self, node_id: int) -> SimClient:
        """Raises ConnectionRefusedError."""
        found = self.connections.get(node_id)
        if found is None:
            found = self.connections[node_id] = self.world.cluster.nodes[node_id].connect()
        return found

    def hang_up(self, node_id: int) -> None:
        """Give a connection up."""
        client = self.connections.pop(node_id, None)
        if client is not None:
            client.transport.close()

    async def call(self, node_id: int, request: Message, version: int, response: type[Message]) -> Any:
        """Send a request, and return its response. Raises what `LOST` has."""
        try:
            client = self.connection(node_id)
            with trio.fail_after(ANSWER_S):
                return await client.call(request, version, response)
        except trio.TooSlowError:
            raise AssertionError(f"node {node_id} does not answer {request}") from None
        except LOST:
            self.hang_up(node_id)
            raise


class Writer(Client):
    """An idempotent producer with acks=all, which repeats each record until it is acknowledged."""

    def __init__(self, world: World, name: str, topic: str, partition: int) -> None:
        super().__init__(world, topic, partition)
        self.name = name
        self.producer_id = -1
        self.sequence = 0
        self.next_value = 0
        self.unacknowledged: list[list[bytes]] = []
        """Batches of values, the first with `sequence`."""
        self.is_done = False

    async def run(self) -> None:
        while not (self.world.is_over and not self.unacknowledged):
            await trio.sleep(self.rng.uniform(0.02, 0.4))
            with suppress(*LOST):
                if self.producer_id < 0:
                    await self.init()
                else:
                    await self.send()
        self.is_done = True

    async def init(self) -> None:
        up = self.world.up()
        if up:
            request = InitProducerIdRequest(None, 60_000)
            response = await self.call(self.rng.choice(up).node_id, request, 4, InitProducerIdResponse)
            if not response.error_code:
                self.producer_id, self.sequence = response.producer_id, 0

    def request(self, values: list[bytes], sequence: int) -> ProduceRequest:
        rows = [record(None, value, offset_delta=index) for index, value in enumerate(values)]
        data = batch(
            rows,
            base_timestamp=self.world.cluster.clock.now_ms(),
            producer=(self.producer_id, 0, sequence),
        )
        self.model.sent.update(values)
        return ProduceRequest(
            None,
            -1,
            self.rng.choice((200, 1500, 5000)),
            [TopicProduceData(self.topic, partition_data=[PartitionProduceData(self.partition, data)])],
        )

    async def send(self) -> None:
        """Send up to three batches at once, and take their responses."""
        while len(self.unacknowledged) < self.rng.randint(1, 3) and not self.world.is_over:
            count = self.rng.randint(1, 3)
            self.unacknowledged.append(
                [b"%s:%d" % (self.name.encode(), self.next_value + index) for index in range(count)]
            )
            self.next_value += count
        node_id, epoch = self.choose()
        batches = list(self.unacknowledged)
        try:
            client = self.connection(node_id)
            sequence = self.sequence
            with trio.fail_after(ANSWER_S):
                for values in batches:
                    await client.send(self.request(values, sequence), 9)
                    sequence += len(values)
                is_first = True
                for values in batches:
                    response = await client.receive(ProduceResponse, 9)
                    row = response.responses[0].partition_responses[0]
                    if is_first:
                        is_first = self.take(values, row, epoch)
        except trio.TooSlowError:
            raise AssertionError(f"node {node_id} does not answer a Produce") from None
        except LOST:
            self.hang_up(node_id)
            raise

    def take(self, values: list[bytes], row: PartitionProduceResponse, epoch: int) -> bool:
        """Take the answer to the first batch. Returns whether it is acknowledged."""
        code = ErrorCode(row.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.unacknowledged.pop(0)
            self.sequence += len(values)
            for index, value in enumerate(values):
                self.model.acknowledged[value] = Acknowledged(row.base_offset + index, epoch)
            return True
        if code in TOO_LATE:
            assert self.model.may_forget_sequences(), (
                f"{self.model.name}: {code.name} to {values} of {self.name}"
            )
            self.model.renewed.update(*self.unacknowledged)
            self.producer_id = -1
        else:
            assert code.retriable, code.name
        return False


class OneTimeWriter(Client):
    """Sends plain records with acks=1, each once."""

    async def run(self) -> None:
        number = 0
        while not self.world.is_over:
            await trio.sleep(self.rng.uniform(0.05, 0.8))
            value = b"once:%d" % number
            number += 1
            data = batch([record(None, value)], base_timestamp=self.world.cluster.clock.now_ms())
            rows = [PartitionProduceData(self.partition, data)]
            request = ProduceRequest(None, 1, 1000, [TopicProduceData(self.topic, partition_data=rows)])
            with suppress(*LOST):
                node_id, _ = self.choose()
                self.model.sent.add(value)
                response = await self.call(node_id, request, 9, ProduceResponse)
                code = ErrorCode(response.responses[0].partition_responses[0].error_code)
                assert code is ErrorCode.NONE or code.retriable, code.name


class Reader(Client):
    """A consumer, which also reads followers, and begins anew from time to time."""

    def __init__(self, world: World, topic: str, partition: int) -> None:
        super().__init__(world, topic, partition)
        self.offset = 0
        self.last_epoch = -1

    async def run(self) -> None:
        while not self.world.is_over:
            await trio.sleep(self.rng.uniform(0.02, 0.5))
            if self.rng.random() < 0.1:
                self.offset, self.last_epoch = 0, -1
            with suppress(*LOST):
                await self.read()

    async def read(self) -> None:
        leader, epoch = self.choose()
        node_id, last_epoch = leader, self.last_epoch
        if self.rng.random() < 0.2:
            # A follower that does not have the offset yet would say that the logs diverge.
            node_id, last_epoch = self.rng.choice(self.world.up()).node_id, -1
        max_bytes = self.rng.choice((200, 1 << 20))
        asked = FetchPartition(self.partition, epoch, self.offset, last_epoch, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=self.rng.choice((0, 100, 500)),
            min_bytes=1,
            isolation_level=self.rng.choice((0, 1)),
            topics=[FetchTopic(self.topic, partitions=[asked])],
            session_epoch=-1,
        )
        response = await self.call(node_id, request, 12, FetchResponse)
        row = response.responses[0].partitions[0]
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            is_behind = node_id != self.world.cluster.leader_of(self.topic, self.partition)
            is_deleted = self.offset < self.model.deleted_below
            assert is_behind or is_deleted or self.model.has_unclean_election(), (
                f"{self.model.name}: node {node_id} does not have offset {self.offset}"
            )
            if not is_behind:
                self.offset, self.last_epoch = self.model.deleted_below if is_deleted else 0, -1
        elif code:
            assert code.retriable or code in (
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.UNKNOWN_LEADER_EPOCH,
            ), code.name
        elif row.diverging_epoch is not None and row.diverging_epoch.end_offset >= 0:
            assert self.model.has_unclean_election(), f"{self.model.name}: {row.diverging_epoch}"
            self.offset, self.last_epoch = min(self.offset, row.diverging_epoch.end_offset), -1
        else:
            self.take(bytes_of(row.records), row.high_watermark)

    def take(self, data: bytes, high_watermark: int) -> None:
        for offset, read in reads_in(data):
            if offset >= self.offset:
                assert offset < high_watermark, f"{self.model.name}: {offset} was read above the watermark"
                self.model.on_read(offset, read)
                self.offset, self.last_epoch = offset + 1, read.epoch


def reads_in(data: bytes) -> list[tuple[int, Read]]:
    """The records in whole batches, with their offsets."""
    found, at = [], 0
    while at + 61 <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        for one in iterate_records(data[at : at + header.size], header):
            value = MARKER if header.is_control else bytes(one.value or b"")
            found.append((one.offset, Read(header.partition_leader_epoch, value)))
        at += header.size
    return found
