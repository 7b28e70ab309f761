"""Nodes that replicate partitions: real logs on simulated disks, a real network, and a controller that a test plays.

`Nodes` is the cluster: it commits what the test says (`elect`, `fence`, …), and accepts what leaders propose for their
ISRs. Requests to a node go to the handlers of its APIs, those of clients as those of other nodes.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import trio

from oncelog.broker.cluster.cluster import Cluster
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.fetch.delayed_fetches import DelayedFetches
from oncelog.broker.fetch.sessions import FetchSessions
from oncelog.broker.handlers import delete_records, fetch, list_offsets, produce
from oncelog.broker.log.manager import LocalTopic, LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.metadata.image import TOPIC, MetadataImage, Partition, Topic
from oncelog.broker.network.network import CONTROLLER_ID, Delivery, Links, Network, WaitingFetch
from oncelog.broker.replication.replicated_partition import ReplicatedPartition
from oncelog.broker.replication.replication import Replication
from oncelog.broker.requests.request import wait_for_response
from oncelog.broker.seams.clock import MovableClock
from oncelog.wire.batch import read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.harness.clocks import VirtualWall
from tests.sim.files import SimFileSystem

START_MS = 1_700_000_000_000
LISTENER = "PLAINTEXT"
KEYS = {
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "100",
}
HANDLERS = {0: produce.handle, 1: fetch.handle, 2: list_offsets.handle, 21: delete_records.handle}
PATIENCE_S = 60

Batch = list[tuple[type[Message], int, bytes]]
"""Records as bytes, with their type and version: no two images share an object."""


class MetadataCopy(ClusterMetadata):
    """A node's image, which the test keeps current."""

    def apply(self, batch: Batch) -> None:
        """Replay a batch."""
        records = [kind.decode(data, version) for kind, version, data in batch]
        self._replay(records, self.image.offset + 1)


class _SeenFetch:
    """A fetch that waits, and whose response ``see`` sees."""

    def __init__(self, fetch: WaitingFetch, see: Callable[[FetchResponse], None]) -> None:
        self._fetch = fetch
        self._see = see
        self.timeout_s = fetch.timeout_s

    @property
    def event(self) -> trio.Event:
        return self._fetch.event

    def respond(self, *, is_over: bool) -> FetchResponse | None:
        response = self._fetch.respond(is_over=is_over)
        if response is not None:
            self._see(response)
        return response


class ReplicatedNode:
    """One node: its disk outlives its runs."""

    def __init__(self, nodes: Nodes, node_id: int, keys: dict[str, str]) -> None:
        self.nodes = nodes
        self.node_id = node_id
        self.random = random.Random(node_id)
        self.clock = MovableClock(VirtualWall(START_MS).now_ms)
        self.files = SimFileSystem(self.random, self.clock.now_ms)
        self.files.makedirs("/data")
        self.config = BrokerConfig({"log.dirs": "/data", "node.id": str(node_id), **keys})
        self.dynamic = DynamicBrokerConfig(self.config)
        self.metadata: MetadataCopy
        self.logs: LogManager
        self.cluster: Cluster
        self.replication: Replication
        self.on_fetch: Callable[[FetchRequest, FetchResponse], None] = lambda request, response: None
        """Called with each request of another node, and its response."""
        self._services: Any
        self._scope: trio.CancelScope | None = None
        self._applied = 0

    @property
    def runs(self) -> bool:
        return self._scope is not None

    async def start(self) -> None:
        """Run on what is on the disk, registered with a new epoch."""
        self.metadata = MetadataCopy(
            self.clock, self.random, self.config, cluster_id="c", directory_id=bytes(16)
        )
        self._applied = 0
        self._catch_up()
        self.metadata.broker_epoch = self.nodes.register(self.node_id)
        self._catch_up()
        self.logs = LogManager("/data", self.files, self.clock, self.random, self.config)
        links = Links(self.nodes.network, self.node_id)
        self.logs.start()
        self.cluster = Cluster(self.node_id, self.metadata, self.logs, links)
        self.metadata.subscribe(self._on_record)
        self.logs.load(self._local_topic, lambda log: None)
        lines = LineLimiter(self.clock)
        self.replication = Replication(
            self.cluster,
            self.logs,
            links,
            self.metadata,
            self.dynamic,
            self.clock,
            lines,
            self.logs.background,
        )
        delayed = DelayedFetches()
        self._services = SimpleNamespace(
            cluster=self.cluster,
            replication=self.replication,
            authorization=SimpleNamespace(
                authorizer=None, allows=lambda *_, **__: True, predicate=lambda *_: lambda name: True
            ),
            config=self.dynamic,
            fetch_sessions=FetchSessions(100, self.clock, self.random),
            delayed_fetches=delayed,
        )

        def on_internal_error() -> None:
            raise AssertionError("an internal error was logged")

        self.logs.on_internal_error = on_internal_error
        self._scope = await self.nodes.nursery.start(self._run)

    async def _run(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.logs.run)
            self.nodes.network.attach(self.node_id, self._receive, nursery, self._answer)
            await nursery.start(self.replication.run)
            task_status.started(nursery.cancel_scope)
            await trio.sleep_forever()

    def kill(self) -> None:
        """The process dies; what was written stays on the disk."""
        assert self._scope is not None
        self.logs.keeps_data = False
        self.nodes.network.detach(self.node_id)
        self._scope.cancel()
        self._scope = None
        self.files.crash("process")

    # -- metadata

    def catch_up(self) -> None:
        """Follow the controller, unless it cannot be reached."""
        if self.runs and not self.nodes.network.is_cut(CONTROLLER_ID, self.node_id):
            self._catch_up()

    def _catch_up(self) -> None:
        while self._applied < len(self.nodes.batches):
            self._applied += 1
            self.metadata.apply(self.nodes.batches[self._applied - 1])

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        """As `Node` does."""
        if isinstance(record, PartitionRecord | PartitionChangeRecord) and topic is not None:
            is_new_epoch = isinstance(record, PartitionRecord) or record.leader != -2
            self.cluster.on_change(topic, record.partition_id, is_new_epoch=is_new_epoch)
        elif isinstance(record, RemoveTopicRecord) and topic is not None:
            self.cluster.forget(topic.name)
            for partition in range(len(topic.partitions)):
                self.logs.delete(topic.name, partition)

    def _local_topic(self, name: str) -> LocalTopic | None:
        topic = self.metadata.image.topics.get(name)
        if topic is None:
            return None
        mine = [number for number, state in enumerate(topic.partitions) if self.node_id in state.replicas]
        config = effective_topic_config(self.metadata.image, self.config, name)
        return LocalTopic(
            topic.topic_id,
            config,
            mine,
            [number for number in mine if len(topic.partitions[number].replicas) > 1],
        )

    # -- requests

    async def _receive(self, delivery: Delivery) -> Message:
        response: Message = await self.call(delivery.request, delivery.version)
        return response

    def _answer(self, request: FetchRequest) -> FetchResponse | WaitingFetch:
        answer = self.replication.sessions.answer(request)
        if not isinstance(answer, FetchResponse):
            return _SeenFetch(answer, partial(self.on_fetch, request))
        self.on_fetch(request, answer)
        return answer

    async def call(self, request: Any, version: int) -> Any:
        """Handle a request as if a client had sent it."""
        context: Any = SimpleNamespace(
            api_version=version,
            client_id="test",
            is_large=False,
            usage=None,
            connection=SimpleNamespace(listener_name=LISTENER, charge=lambda seconds: None),
        )
        handle: Any = HANDLERS[request.API_KEY]
        return await wait_for_response(handle(self._services, request, context))

    async def produce(
        self, *values: bytes, acks: int = -1, timeout_ms: int = 1000, topic: str = "t", partition: int = 0
    ) -> PartitionProduceResponse:
        """Send one batch; return the row of the response."""
        builder = BatchBuilder()
        for value in values:
            builder.append(START_MS, None, value)
        data = PartitionProduceData(partition, memoryview(bytearray(builder.build())))
        request = ProduceRequest(None, acks, timeout_ms, [TopicProduceData(topic, partition_data=[data])])
        self.last_response = await self.call(request, 12)
        row: PartitionProduceResponse = self.last_response.responses[0].partition_responses[0]
        return row

    async def fetch(
        self,
        offset: int,
        *,
        replica_id: int = -1,
        max_wait_ms: int = 0,
        epoch: int = -1,
        rack: str = "",
        version: int = 12,
        topic: str = "t",
        isolation_level: int = 0,
    ) -> Any:
        """Read partition 0 from an offset; return the row of the response."""
        asked = FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic, self._topic_id(topic), [asked])]
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=topics,
            rack_id=rack,
        )
        self.last_response = await self.call(request, version)
        return self.last_response.responses[0].partitions[0]

    def _topic_id(self, topic: str) -> bytes:
        known = self.metadata.image.topics.get(topic)
        return known.topic_id if known is not None else bytes(16)

    async def list_offset(
        self, timestamp: int, *, replica_id: int = -1, version: int = 10, epoch: int = -1
    ) -> Any:
        asked = ListOffsetsPartition(0, epoch, timestamp)
        request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic("t", [asked])])
        return (await self.call(request, version)).topics[0].partitions[0]

    async def delete_records(self, offset: int, timeout_ms: int = 5000) -> Any:
        asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])
        response = await self.call(DeleteRecordsRequest([asked], timeout_ms), 2)
        return response.topics[0].partitions[0]

    # -- what is there

    @property
    def leader(self) -> ReplicatedPartition:
        """Partition 0 of topic ``t``, which this node leads."""
        found = self.cluster.leader_partition("t", 0)
        assert isinstance(found, ReplicatedPartition)
        return found

    @property
    def log(self) -> PartitionLog:
        return self.logs.get("t", 0)

    def values(self) -> list[bytes]:
        """The values of all records in the log, to its end."""
        return values_in(self.log, self.log.log_end_offset)


def values_in(log: PartitionLog, up_to: int) -> list[bytes]:
    """The values of a log's records below an offset."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < up_to:
        read = log.read(offset, 1 << 20, minimum_one=True, up_to=up_to)
        if not len(records := bytes_of(read.records)):
            break
        found += values_of(records)
        offset = read.next_offset
    return found


def bytes_of(records: Any) -> bytes:
    if records is None or isinstance(records, bytes):
        return records or b""
    data: bytes = records.read()
    records.release()
    return data


def values_of(records: Any) -> list[bytes]:
    """The values in the records of a response."""
    data = bytes_of(records)
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        for record in iterate_records(data[at : at + header.size], header):
            found.append(bytes(record.value or b""))
        at += header.size
    return found


class Nodes:
    """The nodes, their network and their controller. ``async with running_nodes() as nodes``."""

    def __init__(
        self, nursery: trio.Nursery, count: int, keys: dict[str, str], encodes: bool, racks: Sequence[str]
    ) -> None:
        self.nursery = nursery
        self.network = Network(encodes=encodes)
        self.image = MetadataImage()
        self.batches: list[Batch] = []
        self.proposals: list[list[int]] = []
        """The ISRs that leaders have asked for."""
        self.refusal = ErrorCode.NONE
        """The error with which the controller answers them."""
        self._racks = racks
        self._nodes = {
            node_id: ReplicatedNode(self, node_id, {**KEYS, **keys}) for node_id in range(1, count + 1)
        }

    def __getitem__(self, node_id: int) -> ReplicatedNode:
        return self._nodes[node_id]

    def __iter__(self) -> Any:
        return iter(self._nodes.values())

    # -- the controller

    def commit(self, *records: Message) -> None:
        """Commit a batch. The nodes that run and reach the controller learn of it at once."""
        for record in records:
            self.image.replay(record)
        version = {PartitionRecord: 2, PartitionChangeRecord: 2}
        self.batches.append(
            [
                (
                    type(record),
                    used := version.get(type(record), record.MAX_VERSION),
                    record.encode(used),
                )
                for record in records
            ]
        )
        for node in self._nodes.values():
            node.catch_up()

    def register(self, node_id: int) -> int:
        """Register a node; return its broker epoch."""
        epoch = len(self.batches)
        self.commit(
            RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=bytes(15) + bytes([epoch % 256]),
                broker_epoch=epoch,
                end_points=[BrokerEndpoint(LISTENER, f"node{node_id}", 9092, 0)],
                rack=self._racks[node_id - 1] if self._racks else None,
                fenced=False,
            )
        )
        return epoch

    def fence(self, node_id: int, fenced: int = 1) -> None:
        epoch = self.image.brokers[node_id].broker_epoch
        self.commit(BrokerRegistrationChangeRecord(node_id, epoch, fenced=fenced))

    def create(self, replicas: Sequence[int] = (1, 2, 3), topic: str = "t", **configs: str) -> None:
        """Create a topic of one partition, led by the first replica."""
        topic_id = bytes(8) + topic.encode().rjust(8, b"\x01")
        self.commit(
            TopicRecord(topic, topic_id),
            *(ConfigRecord(TOPIC, topic, name.replace("_", "."), value) for name, value in configs.items()),
            PartitionRecord(
                0,
                topic_id,
                list(replicas),
                list(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            ),
        )

    def delete(self, topic: str = "t") -> None:
        self.commit(RemoveTopicRecord(self.image.topics[topic].topic_id))

    def change(self, topic: str = "t", **fields: Any) -> None:
        """Change partition 0: ``leader``, ``isr``, ``replicas``."""
        self.commit(PartitionChangeRecord(0, self.image.topics[topic].topic_id, **fields))

    def elect(self, leader: int, isr: Sequence[int] | None = None) -> None:
        """Begin a leader epoch."""
        self.change(leader=leader, isr=None if isr is None else list(isr))

    @property
    def partition(self) -> Partition:
        """Partition 0 of topic ``t``, as the controller has it."""
        return self.image.topics["t"].partitions[0]

    async def receive(self, delivery: Delivery) -> AlterPartitionResponse:
        """Answer a leader's proposals as Kafka's controller does in the plain cases."""
        request: Any = delivery.request
        assert isinstance(request, AlterPartitionRequest)
        await trio.lowlevel.checkpoint()
        return AlterPartitionResponse(
            0,
            0,
            [
                TopicResult(topic.topic_id, [self._alter(topic.topic_id, row) for row in topic.partitions])
                for topic in request.topics
            ],
        )

    def _alter(self, topic_id: bytes, asked: PartitionData) -> PartitionResult:
        topic = self.image.topics_by_id[topic_id]
        state = topic.partitions[asked.partition_index]
        isr = [one.broker_id for one in asked.new_isr_with_epochs]
        self.proposals.append(isr)
        code = self.refusal
        if asked.leader_epoch < state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch < state.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            self.image.brokers[one.broker_id].fenced
            or one.broker_epoch not in (-1, self.image.brokers[one.broker_id].broker_epoch)
            for one in asked.new_isr_with_epochs
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code:
            return PartitionResult(asked.partition_index, code)
        self.commit(PartitionChangeRecord(asked.partition_index, topic_id, isr=isr))
        return PartitionResult(
            asked.partition_index, 0, state.leader, state.leader_epoch, state.isr, 0, state.partition_epoch
        )

    def heal(self) -> None:
        """End all cuts; nodes learn what they have missed."""
        self.network.heal()
        for node in self._nodes.values():
            node.catch_up()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from the others, and from the controller."""
        for other in (CONTROLLER_ID, *self._nodes):
            if other != node_id:
                self.network.cut(node_id, other)
                self.network.cut(other, node_id)

    # -- waits

    async def wait(self, is_so: Any) -> None:
        """Wait until a condition holds."""
        with trio.fail_after(PATIENCE_S):
            while not is_so():
                await trio.sleep(0.01)

    async def wait_isr(self, *isr: int) -> None:
        await self.wait(lambda: sorted(self.partition.isr) == sorted(isr))

    async def wait_replicated(self) -> None:
        """Wait until all nodes that run have the same log of ``t``."""

        def is_so() -> bool:
            running = [node for node in self._nodes.values() if node.runs]
            ends = {node.log.log_end_offset for node in running}
            followers = [node for node in running if ("t", 0) in node.replication.followed]
            return len(ends) == 1 and len(followers) == len(running) - 1

        await self.wait(is_so)


@asynccontextmanager
async def running_nodes(
    count: int = 3, *, encodes: bool = False, racks: Sequence[str] = (), **keys: str
) -> AsyncIterator[Nodes]:
    """Nodes that run. ``keys``: Kafka's, with underscores."""
    async with trio.open_nursery() as nursery:
        texts = {name.replace("_", "."): value for name, value in keys.items()}
        nodes = Nodes(nursery, count, texts, encodes, racks)
        nodes.network.attach(CONTROLLER_ID, nodes.receive, nursery)
        for node in nodes:
            await node.start()
        yield nodes
        nursery.cancel_scope.cancel()
