"""`Member`: the membership of a node that follows a controller (Kafka: ``BrokerLifecycleManager``, ``MetadataLoader``).

    join     registration, a snapshot of the metadata, and the batches after it  nobody is served
    run      fenced, until its logs are recovered and its metadata is current    it leads nothing
             unfenced: heartbeats keep its session                               it leads and follows
    leave    in controlled shutdown, until it leads nothing any more             as before

A broken link is tried again when the network changes, or at the next heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.config.definitions import StartError
from oncelog.broker.config.listeners import SECURITY_PROTOCOLS
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.features import broker_features
from oncelog.broker.metadata.feed import METADATA_TOPIC_ID
from oncelog.broker.network.network import CONTROLLER_ID, LinkDownError
from oncelog.broker.node.forwarding import Forwarding
from oncelog.broker.node.receiver import RequestReceiver
from oncelog.broker.node.topic_requests import AsksController
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from oncelog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from oncelog.wire.messages.fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.internal_topics import TopicCreator
    from oncelog.broker.metadata.replica import MetadataReplica
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.network.network import Delivery, Links
    from oncelog.broker.node.node import Node
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
    from oncelog.wire.schema import Message

FETCH_WAIT_MS = 500
"""How long a fetch of metadata waits for a batch (``controller.quorum.fetch.timeout.ms``, less)."""
FETCH_BYTES_MAX = 8 * 1024 * 1024
REGISTRATION_RETRY_S = 0.1
"""Seconds of broker time between two tries to register, while the session of the run before lasts."""
FETCH_VERSION, SNAPSHOT_VERSION, REGISTRATION_VERSION, HEARTBEAT_VERSION = 17, 1, 4, 2

log = get_logger(__name__)


class Member:
    """Joins ``metadata`` to the controller's, over ``links``, and keeps the node of ``logs`` registered."""

    def __init__(
        self,
        links: Links,
        metadata: MetadataReplica,
        logs: LogManager,
        config: DynamicBrokerConfig,
        clock: Clock,
    ) -> None:
        self.links = links
        self._metadata = metadata
        self._logs = logs
        self._config = config
        self._node_id = config.static.node_id
        self._clock = clock
        self._controller = links.to(CONTROLLER_ID)
        self.forward = Forwarding(self._controller, config)
        self._topics = AsksController(self.forward, metadata.lines)
        self._receiver: RequestReceiver
        """Of the node that runs."""
        self._incarnation = metadata.new_uuid()
        self._wants_shut_down = False
        self._may_shut_down = trio.Event()
        self._hurry = trio.Event()
        """Set when the next heartbeat is not to wait for its interval."""
        self._producer_ids: list[int] = []
        """The first ids of blocks that are not used yet."""
        self._wants_producer_ids = trio.Event()
        self._wants_producer_ids.set()  # or a producer's first request would have to be tried again

    # -- before the node serves

    async def join(self, listeners: Sequence[BoundListener]) -> None:
        """Register, load the metadata, and follow until the node's own registration is in its image.

        The snapshot comes last: the controller keeps the batches after it for a node that has registered.

        It waits while the controller cannot be reached, and while a session of the node lasts. Raises KafkaError if the
        controller refuses the node, StartError after ``initial.broker.registration.timeout.ms`` of real time.
        """
        timeout_s = self._config.static.initial_broker_registration_timeout_ms / 1000
        with real_time.move_on_after(timeout_s):
            while True:
                changed = self._controller.changed
                try:
                    await self._register(listeners)
                    response = await self._controller.call(
                        FetchSnapshotRequest(replica_id=self._node_id), SNAPSHOT_VERSION
                    )
                    self._metadata.load(response.topics[0].partitions[0])
                    while not self._is_registered():
                        await self._fetch()
                    return
                except LinkDownError:
                    log.info("the controller cannot be reached")
                    await changed.wait()
        raise StartError(
            f"node {self._node_id} was not registered in {timeout_s:g} s (initial.broker.registration.timeout.ms): it "
            "does not reach the controller, or its last session lasts"
        )

    async def _register(self, listeners: Sequence[BoundListener]) -> None:
        request = BrokerRegistrationRequest(
            broker_id=self._node_id,
            cluster_id=self._metadata.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[
                Listener(one.name, one.host, one.port, SECURITY_PROTOCOLS.index(one.protocol))
                for one in listeners
            ],
            features=[
                Feature(one.name, one.min_supported_version, one.max_supported_version)
                for one in broker_features()
            ],
            rack=self._config.static.broker_rack,
            log_dirs=[self._metadata.directory_id],
            previous_broker_epoch=self._logs.clean_epoch,
        )
        while True:
            response = await self._controller.call(request, REGISTRATION_VERSION)
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self._metadata.broker_epoch = response.broker_epoch
                return
            if code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise KafkaError(code)
            await self._clock.sleep(REGISTRATION_RETRY_S)

    def _is_registered(self) -> bool:
        known = self._metadata.image.brokers.get(self._node_id)
        return known is not None and known.incarnation_id == self._incarnation

    # -- while it serves

    async def run(self, node: Node, task_status: trio.TaskStatus[None]) -> None:
        """See `Membership`."""
        self._receiver = RequestReceiver.of_nodes(node.services, node.host)
        network = self.links.network
        assert node.replication is not None
        async with trio.open_nursery() as nursery:
            network.attach(self._node_id, self.receive, nursery, node.replication.sessions.answer)
            self._topics.nursery = nursery
            try:
                nursery.start_soon(self._follow)
                nursery.start_soon(self._allocate_producer_ids)
                await nursery.start(self._keep_session)
                task_status.started()
                await trio.sleep_forever()
            finally:
                network.detach(self._node_id)

    async def receive(self, delivery: Delivery) -> Message:
        """See `Membership`."""
        return await self._receiver.receive(delivery)

    async def _follow(self) -> None:
        """Follow the metadata of the controller."""
        while True:
            changed = self._controller.changed
            try:
                await self._fetch()
            except LinkDownError:
                await changed.wait()

    async def _fetch(self) -> None:
        """Fetch the next batches and replay them. Raises LinkDownError."""
        image = self._metadata.image
        wanted = FetchPartition(
            0,
            fetch_offset=image.offset + 1,
            last_fetched_epoch=0,
            partition_max_bytes=FETCH_BYTES_MAX,
            replica_directory_id=self._metadata.directory_id,
        )
        request = FetchRequest(
            replica_state=ReplicaState(self._node_id, self._metadata.broker_epoch),
            max_wait_ms=FETCH_WAIT_MS,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
        )
        response = await self._controller.fetch(request, FETCH_VERSION)
        self._metadata.append(response.responses[0].partitions[0])

    async def _keep_session(self, task_status: trio.TaskStatus[None]) -> None:
        """Send heartbeats until the node may shut down. It has started when the node is unfenced.

        The intervals are real time: the node lives, and can leave, while a test lets the broker's time stand still.
        """
        is_unfenced = False
        while not self._may_shut_down.is_set():
            response = await self._heartbeat()
            if self._wants_shut_down and (response is None or response.should_shut_down):
                self._may_shut_down.set()
            if not is_unfenced and response is not None and not response.is_fenced:
                is_unfenced = await self._learn_unfenced()
                if not is_unfenced:
                    continue
                task_status.started()
            # A fenced node waits for its metadata, or for the next heartbeat.
            sooner = self._hurry if is_unfenced else self._metadata.changed
            with real_time.move_on_after(self._heartbeat_interval_s):
                await sooner.wait()

    @property
    def _heartbeat_interval_s(self) -> float:
        return self._config.current.broker_heartbeat_interval_ms / 1000

    async def _learn_unfenced(self) -> bool:
        """Wait until the node's own metadata say that it is unfenced, until its next heartbeat at most: the controller
        may have fenced it again before its response came. Returns whether they do.
        """
        with real_time.move_on_after(self._heartbeat_interval_s):
            while self._metadata.image.brokers[self._node_id].fenced:
                await self._metadata.changed.wait()
            return True
        return False

    async def _heartbeat(self) -> BrokerHeartbeatResponse | None:
        """Send one; return None if it was refused, or it or its response was lost."""
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self._metadata.broker_epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_fence=not self._logs.is_recovered,
            want_shut_down=self._wants_shut_down,
            cordoned_log_dirs=[self._metadata.directory_id]
            if self._config.current.is_data_dir_cordoned
            else [],
        )
        self._hurry = trio.Event()
        try:
            response = await self._controller.call(request, HEARTBEAT_VERSION)
        except LinkDownError:
            return None
        if response.error_code:
            log.warning("heartbeat refused", error=ErrorCode(response.error_code).name)
            return None
        return response

    async def leave(self) -> None:
        """See `Membership`. A controller that cannot be reached, or is unwilling, is left without its consent."""
        self._wants_shut_down = True
        self._hurry.set()
        with real_time.move_on_after(self._config.current.broker_session_timeout_ms / 1000):
            await self._may_shut_down.wait()

    # -- producer ids

    def take_producer_ids(self) -> int:
        """See `Membership`. Source: ``RPCProducerIdManager``."""
        self._wants_producer_ids.set()
        if not self._producer_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._producer_ids.pop()

    async def _allocate_producer_ids(self) -> None:
        """Keep a block in reserve once one was wanted."""
        while True:
            await self._wants_producer_ids.wait()
            self._wants_producer_ids = trio.Event()
            while not self._producer_ids:
                changed = self._controller.changed
                try:
                    response = await self._controller.call(
                        AllocateProducerIdsRequest(self._node_id, self._metadata.broker_epoch), 0
                    )
                except LinkDownError:
                    await changed.wait()
                    continue
                if response.error_code:
                    log.warning("no producer ids", error=ErrorCode(response.error_code).name)
                    await self._clock.sleep(1)
                    continue
                self._producer_ids.append(response.producer_id_start)

    # -- what only an own controller does at once

    def topic_creator(self, config: DynamicBrokerConfig) -> TopicCreator:
        """See `Membership`."""
        return self._topics

    def before_load(self, logs: LogManager) -> None:
        """The controller raises the leader epochs: a node that comes back leads nothing."""

    def on_truncated(self, cut: PartitionLog) -> None:
        """Nothing: the log follows its leader, or a new leader epoch begins with its own."""
