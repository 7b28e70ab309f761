"""Several nodes on one simulated network, whose metadata a test dictates: leaders move when it says so.

Every node has a replica of every partition, and replicates as nodes do. No controller elects anybody; one accepts what
leaders propose for their ISRs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.dispatch.api import Api
from oncelog.broker.emulation.release import OURS
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.host.host import Host
from oncelog.broker.log.manager import LogManager
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.results import FileRange
from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
from oncelog.broker.metadata.features import OUR_FEATURES, format_records
from oncelog.broker.metadata.image import TOPIC, MetadataImage, Topic
from oncelog.broker.metadata.internal_topics import CreatesAtOnce, TopicCreator
from oncelog.broker.net.server import BoundListener
from oncelog.broker.network.network import (
    CONTROLLER_ID,
    Delivery,
    LinkDownError,
    Links,
    Network,
    WaitingFetch,
)
from oncelog.broker.node.node import Node
from oncelog.broker.refusal.error_response import error_fields_of, error_response
from oncelog.broker.requests.request import RequestContext, wait_for_response
from oncelog.broker.seams.clock import MovableClock
from oncelog.wire.batch import HEADER_SIZE, read_header
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
from oncelog.wire.schema import Message, Uuid
from oncelog.wire.stored.metadata import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.harness.clocks import VirtualWall
from tests.harness.sim_broker import DATA_DIR, EPOCH_MS
from tests.harness.sim_client import SimClient
from tests.harness.sim_network import MemoryListener
from tests.sim.files import SimFileSystem

if TYPE_CHECKING:
    from oncelog.broker.network.network import AnswerFetch


class DictatedMetadata(ClusterMetadata):
    """The metadata of a node, which knows what `SimNodes` tells it."""

    def follow(self, records: Sequence[Message], offset: int) -> None:
        self._replay(records, offset)


class _Member:
    """The membership of a node in `SimNodes`."""

    def __init__(self, nodes: SimNodes, node_id: int, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self.links = Links(nodes.network, node_id)
        self.forward = None
        self._nodes = nodes
        self._node_id = node_id

    def take_producer_ids(self) -> int:
        return self._nodes.take_producer_ids()

    def before_load(self, logs: LogManager) -> None:
        pass

    def on_truncated(self, cut: PartitionLog) -> None:
        raise AssertionError(f"{cut} was cut")

    async def receive(self, delivery: Delivery) -> Message:
        return await self._nodes.receive(self._nodes.nodes[self._node_id].node, delivery)

    async def leave(self) -> None:
        pass

    def topic_creator(self, config: DynamicBrokerConfig) -> TopicCreator:
        return CreatesAtOnce(self._metadata, config)

    async def run(self, node: Node, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            assert node.replication is not None
            answer = self._nodes.fetches_of(node.replication.sessions.answer)
            self._nodes.network.attach(self._node_id, self.receive, nursery, answer)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nodes.network.detach(self._node_id)


class SimNode:
    """One node, its disk and its listener."""

    def __init__(self, nodes: SimNodes, node_id: int) -> None:
        self._nodes = nodes
        self.node_id = node_id
        self.config = BrokerConfig({"log.dirs": DATA_DIR, "node.id": str(node_id), **nodes.config})
        self.files = SimFileSystem(random.Random(node_id))
        self.files.makedirs(DATA_DIR)
        self.node: Node
        self.listener: MemoryListener
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        nodes = self._nodes
        self.listener = MemoryListener(256 * 1024)
        rng = random.Random(self.node_id)
        logs = LogManager(DATA_DIR, self.files, nodes.clock, rng, self.config)
        logs.start()
        self._ended = trio.Event()
        try:
            metadata = DictatedMetadata(
                nodes.clock,
                rng,
                self.config,
                cluster_id="4L6g3nShT-eMCtK--X86sw",
                directory_id=logs.directory_id,
            )
            metadata.broker_epoch = self.node_id
            for offset, records in enumerate(nodes.batches):
                metadata.follow(records, offset)
            listener = BoundListener("PLAINTEXT", self.listener, f"node-{self.node_id}", 9092)
            host = Host(
                DynamicBrokerConfig(self.config),
                metadata,
                [listener],
                files=self.files,
                clock=nodes.clock,
                rng=rng,
                users=None,
                acls=(),
                background=logs.background,
            )
            host.fail_on_internal_errors = True
            self.node = Node(host, logs, OURS, _Member(nodes, self.node_id, metadata))
            nodes.followers[self.node_id] = metadata
            with trio.CancelScope() as self._scope:
                await self.node.run(task_status)
        finally:
            nodes.followers.pop(self.node_id, None)
            logs.stop(-1)
            self._ended.set()

    async def stop(self) -> None:
        """Stop it. Nobody is told."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()
            self._scope = None

    async def restart(self) -> None:
        await self.stop()
        await self._nodes.nursery.start(self.run)

    def connect(self) -> SimClient:
        return SimClient(self.listener.connect())


class SimNodes:
    """``async with SimNodes() as nodes``: the nodes 1 to ``count``.

    ``encodes``: whether messages between them travel as bytes.
    """

    def __init__(
        self, count: int = 3, config: Mapping[str, str] | None = None, *, encodes: bool = True
    ) -> None:
        self.config = dict(config or {})
        self.network = Network(encodes=encodes)
        self.clock = MovableClock(VirtualWall(EPOCH_MS).now_ms)
        self.batches: list[Sequence[Message]] = []
        """The log of the metadata, a batch at each offset."""
        self.followers: dict[int, DictatedMetadata] = {}
        """Nodes that learn what is committed."""
        self._held: dict[type[Message], trio.Event] = {}
        self._held_answers: dict[type[Message], trio.Event] = {}
        self.nodes = {node_id: SimNode(self, node_id) for node_id in range(1, count + 1)}
        self._next_producer_id = 0
        self._ids = random.Random(0)

    async def __aenter__(self) -> SimNodes:
        levels = OUR_FEATURES.stored_at_format()
        self.commit(format_records(levels, 1, []))
        self.commit(
            [
                RegisterBrokerRecord(
                    broker_id=node_id,
                    incarnation_id=self._uuid(),
                    broker_epoch=node_id,
                    end_points=[BrokerEndpoint("PLAINTEXT", f"node-{node_id}", 9092, 0)],
                    fenced=False,
                    log_dirs=[self._uuid()],
                )
                for node_id in self.nodes
            ]
        )
        self._manager = trio.open_nursery()
        self.nursery = await self._manager.__aenter__()
        self.network.attach(CONTROLLER_ID, self._alter_partitions, self.nursery)
        for node in self.nodes.values():
            await self.nursery.start(node.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if kind is None:
            for node in self.nodes.values():
                await node.stop()
        self.nursery.cancel_scope.cancel()
        return await self._manager.__aexit__(kind, error, traceback)

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id].node

    def connect(self, node_id: int) -> SimClient:
        return self.nodes[node_id].connect()

    # -- metadata

    def _uuid(self) -> Uuid:
        return self._ids.getrandbits(128).to_bytes(16, "big")

    def take_producer_ids(self) -> int:
        self._next_producer_id += 1000
        return self._next_producer_id

    def commit(self, records: Sequence[Message]) -> None:
        """Let every node that follows know of the records."""
        self.batches.append(records)
        for metadata in self.followers.values():
            metadata.follow(records, len(self.batches) - 1)

    def create_topic(
        self, name: str, leaders: Sequence[int], configs: Mapping[str, str] | None = None
    ) -> Uuid:
        """Create a topic with a partition for each of these leaders."""
        topic_id = self._uuid()
        self.commit(
            [
                TopicRecord(name, topic_id),
                *(ConfigRecord(TOPIC, name, key, value) for key, value in (configs or {}).items()),
                *(
                    PartitionRecord(
                        partition_id=number,
                        topic_id=topic_id,
                        replicas=self._replicas(leader),
                        isr=self._replicas(leader),
                        leader=leader,
                        leader_epoch=0,
                        partition_epoch=0,
                        directories=[self._uuid() for _ in self.nodes],
                    )
                    for number, leader in enumerate(leaders)
                ),
            ]
        )
        return topic_id

    def _image(self) -> MetadataImage:
        return next(iter(self.followers.values())).image

    def topic(self, name: str) -> Topic:
        return self._image().topics[name]

    def leader(self, topic: str, partition: int) -> int:
        return self.topic(topic).partitions[partition].leader

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of the leader."""
        return self[self.leader(topic, partition)].logs.get(topic, partition)

    def _replicas(self, leader: int) -> list[int]:
        return [leader, *(node_id for node_id in self.nodes if node_id != leader)]

    async def move(self, topic: str, partition: int, to: int) -> None:
        """Let another node lead once it has all records; or the same one, in a new epoch."""
        source = self.log(topic, partition)
        while self[to].logs.get(topic, partition).log_end_offset < source.log_end_offset:
            await trio.sleep(0.01)
        self.elect(topic, partition, to)

    def elect(self, topic: str, partition: int, leader: int) -> None:
        """Let a node lead, with what it has. -1: none does."""
        topic_id = self.topic(topic).topic_id
        self.commit([PartitionChangeRecord(partition_id=partition, topic_id=topic_id, leader=leader)])

    def change_isr(self, topic: str, partition: int) -> None:
        """A change of the ISR alone."""
        known = self.topic(topic)
        state = known.partitions[partition]
        self.commit(
            [PartitionChangeRecord(partition_id=partition, topic_id=known.topic_id, isr=list(state.isr))]
        )

    async def _alter_partitions(self, delivery: Delivery) -> AlterPartitionResponse:
        """Let a leader have the ISRs that it proposes."""
        request = delivery.request
        assert isinstance(request, AlterPartitionRequest)
        await trio.lowlevel.checkpoint()
        results = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                state = self._image().topics_by_id[topic.topic_id].partitions[asked.partition_index]
                isr = [one.broker_id for one in asked.new_isr_with_epochs]
                if asked.leader_epoch != state.leader_epoch or asked.partition_epoch != state.partition_epoch:
                    rows.append(PartitionResult(asked.partition_index, ErrorCode.INVALID_UPDATE_VERSION))
                    continue
                change = PartitionChangeRecord(partition_id=asked.partition_index, topic_id=topic.topic_id)
                change.isr = isr
                self.commit([change])
                rows.append(
                    PartitionResult(
                        asked.partition_index,
                        0,
                        state.leader,
                        state.leader_epoch,
                        state.isr,
                        0,
                        state.partition_epoch,
                    )
                )
            results.append(TopicResult(topic.topic_id, rows))
        return AlterPartitionResponse(0, 0, results)

    # -- what links bring

    def hold(self, kind: type[Message], *, answers: bool = False) -> trio.Event:
        """Let requests of that kind arrive only when the event is set, or only their answers. `hold_no_more` lets those
        pass that are sent from then on.
        """
        held = self._held_answers if answers else self._held
        held[kind] = trio.Event()
        return held[kind]

    def hold_no_more(self) -> None:
        self._held.clear()
        self._held_answers.clear()

    def fetches_of(self, answer: AnswerFetch) -> AnswerFetch:
        """Answer the fetches of a node's followers; while they are held, none arrives."""

        def unless_held(request: FetchRequest) -> FetchResponse | WaitingFetch:
            held = self._held.get(FetchRequest)
            if held is not None and not held.is_set():
                raise LinkDownError("fetches are held")
            return answer(request)

        return unless_held

    async def receive(self, node: Node, delivery: Delivery) -> Message:
        """Handle a request of another node as a client's."""
        request = delivery.request
        assert request.API_KEY is not None
        if (held := self._held.get(type(request))) is not None:
            await held.wait()
        response = await self._handle(node, delivery)
        if (held := self._held_answers.get(type(request))) is not None:
            await held.wait()
        return response

    async def _handle(self, node: Node, delivery: Delivery) -> Message:
        request = delivery.request
        api = Api(HANDLERS[request.API_KEY])
        connection: Any = SimpleNamespace(
            principal="User:ANONYMOUS",
            listener_name="PLAINTEXT",
            transport=SimpleNamespace(peer=f"node-{delivery.source}:1"),
            charge=lambda seconds: None,
        )
        context = RequestContext(api, delivery.version, 0, f"node-{delivery.source}", connection, request)
        try:
            handled: Any = api.handle(node.services, request, context)
            response: Message = await wait_for_response(handled)
        except KafkaError as error:
            fields = error_fields_of(api.row.name, api.request, api.response, delivery.version)
            response = error_response(fields, request, error)
        return response


def batches_of(log: PartitionLog, offset: int = 0) -> list[bytes]:
    """The batches of a log from an offset on."""
    found: list[bytes] = []
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, minimum_one=True, up_to=log.log_end_offset)
        data = b""
        if isinstance(read.records, FileRange):
            try:
                data = bytes(read.records.read())
            finally:
                read.records.release()
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            found.append(data[at : at + header.size])
            at += header.size
            offset = header.next_offset
    return found
