"""`Controller`: registers the nodes of a cluster, and decides about its metadata for them (Kafka: ``QuorumController``,
``ControllerApis``).

What it decides stands in `oncelog.broker.controller`, as functions of the image that return records. It commits these
without waiting in between, so that no decision is about an image that has changed. Nothing reaches it but links.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.controller import alter_partition, directories, leadership
from oncelog.broker.controller.leadership import ELECTIONS_AT_ONCE, check_broker_epoch
from oncelog.broker.controller.registrations import Sessions, register
from oncelog.broker.host.host import Host
from oncelog.broker.log.data_directory import DataDirectory, DataDirectoryError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.configs import dynamic_broker_texts
from oncelog.broker.metadata.feed import MetadataFeed
from oncelog.broker.metadata.image import BROKER
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.node.receiver import RequestReceiver
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.coordinator.producer_ids import BLOCK_SIZE
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from oncelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from oncelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from oncelog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from oncelog.wire.stored.metadata import ConfigRecord, PartitionChangeRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.emulation.release import Release
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.network.network import Delivery, Network
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.delegation_tokens import DelegationTokens
    from oncelog.broker.security.host_names import HostNames
    from oncelog.broker.security.sasl.users import Users
    from oncelog.wire.schema import Message

AFTER_S = 0.001
"""Seconds of broker time after its deadline at which a session is over."""

log = get_logger(__name__)


class ControllerServices(NamedTuple):
    """The parts that the handlers of forwarded requests use; named as in `Services`."""

    config: DynamicBrokerConfig
    authorization: Authorization
    metadata: MetadataStore
    host_names: HostNames
    delegation_tokens: DelegationTokens
    clock: Clock
    lines: LineLimiter
    note_internal_error: Callable[[], None]


class Controller:
    """Controls the nodes on ``network``. ``host`` has the metadata store, and no listeners."""

    def __init__(self, host: Host, store: MetadataStore, network: Network) -> None:
        self.host = host
        self.store = store
        self.config = host.config
        self._clock = host.clock
        self._network = network
        self.feed = MetadataFeed(store, host.clock)
        store.observers = self.feed.states
        timeout_s = host.config.current.broker_session_timeout_ms / 1000
        self.sessions = Sessions(timeout_s)
        store.subscribe(self._on_record)
        self._apply_configs()
        self._heard = trio.Event()
        """Set by each heartbeat; awaited while no session is open."""
        services = ControllerServices(
            config=host.config,
            authorization=host.authorization,
            metadata=store,
            host_names=host.host_names,
            delegation_tokens=host.delegation_tokens,
            clock=host.clock,
            lines=host.lines,
            note_internal_error=host.note_internal_error,
        )
        self._for_clients = RequestReceiver(services, host)
        self._for_nodes = RequestReceiver.of_nodes(services, host)
        self._own: dict[type[Message], Callable[[Any, int], Message]] = {
            BrokerRegistrationRequest: self._register,
            BrokerHeartbeatRequest: self._heartbeat,
            AlterPartitionRequest: self._alter_partition,
            AllocateProducerIdsRequest: self._allocate_producer_ids,
            AssignReplicasToDirsRequest: self._assign_directories,
        }

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        self.sessions.replay(record)
        if isinstance(record, ConfigRecord) and record.resource_type == BROKER:
            self._apply_configs()

    def _apply_configs(self) -> None:
        """Apply the dynamic configuration in the metadata: elections and ISRs follow the cluster's, as leaders do."""
        self.config.change(dynamic_broker_texts(self.store.image, self.config.static.node_id))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the nodes until cancelled. All nodes are down at the start of it, whatever the image says."""
        image = self.store.image
        self.sessions.resume(image, self._clock.monotonic())
        for broker_id in list(image.brokers):
            self.end_session(broker_id)
        async with trio.open_nursery() as nursery:
            self.host.start_tasks(nursery)
            nursery.start_soon(self._fence_overdue)
            nursery.start_soon(self._elect_from_time_to_time)
            nursery.start_soon(self._flush)
            self._network.attach(CONTROLLER_ID, self.receive, nursery, self.feed.fetch)
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._network.detach(CONTROLLER_ID)

    # -- requests

    async def receive(self, delivery: Delivery) -> Message:
        """Handle a request of a node, its own or one that it forwards."""
        request: Any = delivery.request
        if delivery.client is not None:
            return await self._for_clients.receive(delivery)
        if isinstance(request, FetchSnapshotRequest):
            return self.feed.fetch_snapshot(request)
        own = self._own.get(type(request))
        if own is None:
            return await self._for_nodes.receive(delivery)
        try:
            return own(request, delivery.version)
        except KafkaError as error:
            code = error.code
        except Exception:
            log.exception("internal error", request=type(request).__name__)
            self.host.note_internal_error()
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        response: Any = type(request).response_type()()
        response.error_code = code
        return response  # type: ignore[no-any-return]

    def _register(self, request: BrokerRegistrationRequest, version: int) -> BrokerRegistrationResponse:
        records = register(
            self.store.image,
            self.config.current,
            self.sessions,
            request,
            version,
            cluster_id=self.store.cluster_id,
            next_offset=self.store.end_offset,
            now_s=self._clock.monotonic(),
        )
        epoch: int = records[-1].broker_epoch  # type: ignore[attr-defined]
        self.store.commit(records)
        self.feed.forget(request.broker_id)
        log.info("registered a broker", broker=request.broker_id, epoch=epoch)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _heartbeat(self, request: BrokerHeartbeatRequest, version: int) -> BrokerHeartbeatResponse:
        heartbeat = self.sessions.heartbeat(
            self.store.image, self.config.current, request, self._clock.monotonic()
        )
        last_offset = self.store.commit(heartbeat.records)
        self.sessions.settle(request, heartbeat.state, last_offset)
        self._heard.set()
        return heartbeat.response

    def _alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        records, response = alter_partition.alter_partition(
            self.store.image, self.config.current, request, version
        )
        self.store.commit(records)
        return response

    def _assign_directories(
        self, request: AssignReplicasToDirsRequest, version: int
    ) -> AssignReplicasToDirsResponse:
        records, response = directories.assign_directories(self.store.image, self.config.current, request)
        self.store.commit(records)
        return response

    def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, version: int
    ) -> AllocateProducerIdsResponse:
        check_broker_epoch(self.store.image, request.broker_id, request.broker_epoch)
        first = self.store.give_producer_ids(request.broker_id, request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)

    # -- time

    def end_session(self, broker_id: int) -> None:
        """Fence a node: its session is over, or ends now."""
        self.sessions.end(broker_id)
        known = self.store.image.brokers.get(broker_id)
        if known is not None and not known.fenced:
            self.store.commit(leadership.fence(self.store.image, self.config.current, broker_id))
            log.info("fenced a broker", broker=broker_id)

    def _fence_silent(self) -> list[int]:
        """Fence the nodes whose sessions are over; return them."""
        silent = self.sessions.overdue(self._clock.monotonic())
        for broker_id in silent:
            self.end_session(broker_id)
        return silent

    async def _fence_overdue(self) -> None:
        """Fence nodes when their sessions end."""
        while True:
            deadline_s = self.sessions.next_deadline_s()
            if deadline_s is None:
                await self._heard.wait()
            elif self._clock.monotonic() <= deadline_s:
                await self._clock.sleep_until(deadline_s + AFTER_S)
            self._heard = trio.Event()
            for broker_id in self._fence_silent():
                self.host.background.timer_event("session ended", node=broker_id)

    async def _elect_from_time_to_time(self) -> None:
        """Elect preferred leaders, and unclean ones where topics allow them."""
        config = self.config.current
        async with trio.open_nursery() as nursery:
            unclean_s = config.unclean_leader_election_interval_ms / 1000
            nursery.start_soon(self._elect_every, unclean_s, leadership.elect_unclean)
            if config.auto_leader_rebalance_enable:
                balance_s = config.leader_imbalance_check_interval_seconds
                nursery.start_soon(self._elect_every, balance_s, leadership.balance)

    async def _elect_every(
        self, interval_s: float, elect: Callable[..., list[PartitionChangeRecord]]
    ) -> None:
        while True:
            await self._clock.pause(interval_s)
            while True:
                records = elect(self.store.image, self.config.current)
                self.store.commit(records)
                for record in records:
                    self.host.background.timer_event(
                        "leader elected",
                        topic=self.store.image.topics_by_id[record.topic_id].name,
                        partition=record.partition_id,
                        leader=record.leader,
                    )
                if len(records) < ELECTIONS_AT_ONCE:
                    break
                await trio.lowlevel.checkpoint()

    async def _flush(self) -> None:
        """Flush the metadata log as often as the logs' recovery points are written."""
        interval_s = self.config.current.log_flush_offset_checkpoint_interval_ms / 1000
        await self.store.flush_regularly(self.host.background, interval_s)


@contextmanager
def open_controller(
    config: BrokerConfig,
    network: Network,
    *,
    files: FileSystem,
    clock: Clock,
    rng: random.Random,
    release: Release,
    users: Users | None = None,
    acls: Sequence[AclBinding] = (),
    keeps_data: bool = True,
    on_loaded: Callable[[Controller], None] = lambda controller: None,
) -> Iterator[Controller]:
    """Open the controller's data directory and its metadata; yield it, for `Controller.run`. In the end close both.

    ``config`` is the controller's, with its own node id and data directory. Raises DataDirectoryError.
    """
    directory = DataDirectory(files, files.absolute_path(config.data_dir))
    with ExitStack() as opened:
        directory.open(config.node_id, config.oncelog_cluster_id, rng)
        opened.callback(directory.release)
        try:
            store = MetadataStore(
                directory.path,
                files,
                clock,
                rng,
                config,
                cluster_id=directory.cluster_id,
                directory_id=directory.directory_id,
                supported=release.features,
            )
            store.start()
            opened.callback(partial(store.close, sync=keeps_data))
            store.register_controller()
            host = Host(
                DynamicBrokerConfig(config),
                store,
                [],
                files=files,
                clock=clock,
                rng=rng,
                users=users,
                acls=acls,
                background=BackgroundWork(),
            )
            controller = Controller(host, store, network)
            on_loaded(controller)
        except (KafkaError, DecodeError, OSError) as error:
            raise DataDirectoryError.of(directory.path, error) from error
        yield controller
