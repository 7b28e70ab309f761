"""`Node`: one broker, and `open_node`, which opens what it is made of, and closes it in reverse order."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from oncelog.broker.client_metrics.manager import ClientMetricsManager
from oncelog.broker.cluster.cluster import Cluster
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.config.listeners import SECURITY_PROTOCOLS
from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.coordinators.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from oncelog.broker.coordinators.environment import CoordinatorEnvironment
from oncelog.broker.coordinators.groups import GroupCoordinator
from oncelog.broker.coordinators.share import ShareCoordinator
from oncelog.broker.coordinators.transactions import TransactionCoordinator
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.emulation.release import OURS
from oncelog.broker.fetch.delayed_fetches import DelayedFetches
from oncelog.broker.fetch.sessions import FetchSessions
from oncelog.broker.handlers.services import Services
from oncelog.broker.handlers.table import TELEMETRY_KEYS, UNSTABLE_VERSIONS
from oncelog.broker.host.host import Host
from oncelog.broker.log.data_directory import (
    META_PROPERTIES,
    DataDirectoryError,
    parse_properties,
    partition_of,
)
from oncelog.broker.log.manager import LocalTopic, LogManager
from oncelog.broker.metadata.configs import dynamic_broker_texts, effective_topic_config
from oncelog.broker.metadata.image import BROKER, CLIENT_METRICS, NO_LEADER_CHANGE, TOPIC
from oncelog.broker.metadata.internal_topics import AutoTopicCreationManager
from oncelog.broker.metadata.log import DIRECTORY as METADATA_DIRECTORY
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.net.connection import Connection
from oncelog.broker.node.membership import Alone, Membership
from oncelog.broker.share.group_states import ShareGroupStates
from oncelog.broker.share.manager import SharePartitionManager
from oncelog.broker.share.state_manager import PersisterStateManager
from oncelog.coordinator.producer_ids import ProducerIds
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.stored.metadata import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.dispatch.interfaces import KnownTopic, KnownTopics
    from oncelog.broker.emulation.release import Release
    from oncelog.broker.handlers.table import ApiRow
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.replication.replication import Replication
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.sasl.users import Users
    from oncelog.broker.share.sessions import ShareSessions
    from oncelog.wire.schema import Message


class Node:
    """A broker on one data directory, opened by `open_node`. It gets everything outside of it: files, clock, randomness
    and listeners.
    """

    def __init__(self, host: Host, logs: LogManager, release: Release, membership: Membership) -> None:
        """``host`` has the metadata, and ``logs`` are those of the same directory. ``release``: the
        release of Kafka that it emulates.
        """
        self.host = host
        self.config = config = host.config
        self.files = host.files
        self.clock = host.clock
        self.metadata = host.metadata
        self.logs = logs
        static, current = config.static, config.current
        self.membership = membership
        self._producer_ids = ProducerIds(membership.take_producer_ids)
        self.fetch_sessions = FetchSessions(
            static.max_incremental_fetch_session_cache_slots, host.clock, host.random
        )
        self.cluster = Cluster(current.node_id, self.metadata, logs, membership.links)
        self.replication: Replication | None = None
        """The partitions with several replicas; None without other nodes."""
        if membership.links is not None:
            from oncelog.broker.replication.replication import Replication

            self.replication = Replication(
                self.cluster,
                logs,
                membership.links,
                self.metadata,
                config,
                host.clock,
                host.lines,
                host.background,
            )
        self.metadata.subscribe(self._on_record)
        auto_topics = AutoTopicCreationManager(self.metadata, config, membership.topic_creator(config))
        environment = CoordinatorEnvironment(
            config=config,
            metadata=self.metadata,
            auto_topics=auto_topics,
            cluster=self.cluster,
            logs=logs,
            files=host.files,
            clock=host.clock,
            lines=host.lines,
            background=host.background,
            note_internal_error=host.note_internal_error,
        )
        self.share_coordinator = ShareCoordinator(environment)
        self.share_persister = PersisterStateManager(environment, self.share_coordinator)
        self.shares = SharePartitionManager(environment, self.share_persister)
        self.groups = GroupCoordinator(environment, host.random)
        self.groups.warn_of_limits()
        share_group_states = ShareGroupStates(
            self.groups, self.share_persister, host.background, host.note_internal_error
        )
        self.transactions = TransactionCoordinator(environment, self.groups, self.next_producer_id)
        self.client_metrics = ClientMetricsManager(config, self.metadata, host.clock)
        self.services = Services(
            handlers=_handlers(static, release, has_telemetry=self.client_metrics.is_enabled),
            config=config,
            authorization=host.authorization,
            metadata=self.metadata,
            auto_topics=auto_topics,
            cluster=self.cluster,
            logs=logs,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinator=self.share_coordinator,
            share_group_states=share_group_states,
            shares=self.shares,
            txn_partitions=AddPartitionsToTxnManager(config, self.cluster, self.transactions),
            fetch_sessions=self.fetch_sessions,
            delayed_fetches=DelayedFetches(),
            next_producer_id=self.next_producer_id,
            client_metrics=self.client_metrics,
            host_names=host.host_names,
            files=host.files,
            clock=host.clock,
            lines=host.lines,
            delegation_tokens=host.delegation_tokens,
            note_internal_error=host.note_internal_error,
            forward=membership.forward,
            replication=self.replication,
        )
        self.dispatcher = Dispatcher(self.services)
        host.on_access_change = self._apply_access
        self._apply_access()
        self.server = host.new_server(self.dispatcher.interception, partial(Connection, self.dispatcher))
        membership.before_load(logs)
        logs.load(self._local_topic, membership.on_truncated)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.logs.run)
            if self.replication is not None:
                await nursery.start(self.replication.run)
            self.host.start_tasks(nursery)
            await nursery.start(self.groups.runtime.run)
            await nursery.start(self.transactions.run)
            await nursery.start(self.share_coordinator.run)
            await nursery.start(self.services.share_group_states.run)
            await nursery.start(self.shares.run)
            await nursery.start(self.server.run)
            await nursery.start(self.membership.run, self)
            self.groups.runtime.load_all()
            self.transactions.runtime.load_all()
            self.share_coordinator.runtime.load_all()
            task_status.started()

    def _apply_access(self) -> None:
        """Throttle by the current quotas. `throttle_with` also empties what the fast paths remember, so a changed ACL
        holds at once.
        """
        self.dispatcher.interception.throttle_with(self.host.quotas)

    def next_producer_id(self) -> int:
        """Return a new producer id. Ids come from durable blocks, so no later start returns it again.

        Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, KAFKA_STORAGE_ERROR.
        """
        return self._producer_ids.next()

    # -- metadata

    @property
    def known_topics(self) -> KnownTopics:
        """The topics that there are."""
        return self.metadata.image

    @property
    def share_sessions(self) -> ShareSessions:
        """The share sessions: they remember what ShareFetches do not repeat."""
        return self.shares.sessions

    def watch_metadata(self, on_change: Callable[[KnownTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the metadata: with a topic that was deleted, otherwise with None."""

        def on_record(record: Message, topic: Topic | None) -> None:
            on_change(topic if isinstance(record, RemoveTopicRecord) else None)

        self.metadata.subscribe(on_record)

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        """Apply a change of the metadata, which is about ``topic`` if that is given, to the parts of the node. Source:
        Kafka's ``BrokerMetadataPublisher``.
        """
        # A new partition gets its directory on first use: ten thousand unused ones cost nothing.
        if isinstance(record, PartitionRecord | PartitionChangeRecord) and topic is not None:
            is_new_epoch = isinstance(record, PartitionRecord) or record.leader != NO_LEADER_CHANGE
            self.cluster.on_change(topic, record.partition_id, is_new_epoch=is_new_epoch)
        elif isinstance(record, RemoveTopicRecord) and topic is not None:
            self.cluster.forget(topic.name)
            for partition in range(len(topic.partitions)):
                self.logs.delete(topic.name, partition)
        elif isinstance(record, ConfigRecord):
            self._on_config(record)

    def _on_config(self, record: ConfigRecord) -> None:
        topics = self.metadata.image.topics
        changed: Iterable[str] = ()
        if record.resource_type == TOPIC and record.resource_name in topics:
            changed = (record.resource_name,)
        elif record.resource_type == CLIENT_METRICS:
            self.client_metrics.on_change()
        elif record.resource_type == BROKER:
            apply_broker_configs(self.config, self.metadata, self.logs)
            self.server.reconsider_limits()
            changed = topics
        for topic in changed:
            self.logs.update_config(topic, self.topic_config(topic))

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the topic's current configuration."""
        return effective_topic_config(self.metadata.image, self.config.current, topic)

    def _local_topic(self, name: str) -> LocalTopic | None:
        topic = self.metadata.image.topics.get(name)
        if topic is None:
            return None
        config, indexes = self.topic_config(name), range(len(topic.partitions))
        if self.replication is None:
            return LocalTopic(topic.topic_id, config, indexes)
        node_id = self.config.static.node_id
        return LocalTopic(topic.topic_id, config, _Assigned(topic, node_id, 1), _Assigned(topic, node_id, 2))


class _Assigned:
    """The partitions of a topic of which a node has a replica, if they have at least so many. Each is looked at when it
    is asked for: a node with many of them asks for each.
    """

    __slots__ = ("_node_id", "_replicas_min", "_topic")

    def __init__(self, topic: Topic, node_id: int, replicas_min: int) -> None:
        self._topic = topic
        self._node_id = node_id
        self._replicas_min = replicas_min

    def __contains__(self, index: object) -> bool:
        partitions = self._topic.partitions
        if not isinstance(index, int) or not 0 <= index < len(partitions):
            return False
        replicas = partitions[index].replicas
        return self._node_id in replicas and len(replicas) >= self._replicas_min

    def __iter__(self) -> Iterator[int]:
        return (index for index in range(len(self._topic.partitions)) if index in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def open_node(
    config: BrokerConfig,
    listeners: Sequence[BoundListener],
    *,
    files: FileSystem,
    clock: Clock,
    rng: random.Random,
    release: Release = OURS,
    users: Users | None = None,
    acls: Sequence[AclBinding] = (),
    keeps_data: bool = True,
    on_loaded: Callable[[Node], None] = lambda node: None,
) -> Iterator[Node]:
    """Open the data directory (lock, identity), its metadata and its partitions; yield the node, for `Node.run`. In the
    end flush every log, and write the clean-shutdown mark last.

    ``release``: the release of Kafka that it emulates. ``users`` may log in, ``acls`` are created if they are missing,
    ``keeps_data`` is `LogManager.keeps_data`. ``on_loaded`` is called before the node listens: it may create topics, or
    install something in the dispatcher.

    Raises DataDirectoryError if the data directory cannot be used, for example because another process uses it.
    """
    logs = LogManager(files.absolute_path(config.data_dir), files, clock, rng, config)
    logs.keeps_data = keeps_data
    with ExitStack() as opened:
        try:
            _check_is_alone(files, logs.data_dir)
            metadata = opened.enter_context(_open_metadata(logs, release))
            dynamic = DynamicBrokerConfig(config)
            apply_broker_configs(dynamic, metadata, logs)
            metadata.register(
                [
                    BrokerEndpoint(
                        listener.name,
                        listener.host,
                        listener.port,
                        SECURITY_PROTOCOLS.index(listener.protocol),
                    )
                    for listener in listeners
                ],
                is_cordoned=dynamic.current.is_data_dir_cordoned,
            )
            host = Host(
                dynamic,
                metadata,
                listeners,
                files=files,
                clock=clock,
                rng=rng,
                users=users,
                acls=acls,
                background=logs.background,
            )
            logs.on_internal_error = host.note_internal_error
            node = Node(host, logs, release, Alone(metadata, logs.background))
            on_loaded(node)
        except (KafkaError, DecodeError, OSError) as error:
            raise DataDirectoryError.of(logs.data_dir, error) from error
        yield node


def _check_is_alone(files: FileSystem, path: str) -> None:
    """Raise DataDirectoryError if a directory has the data of several nodes, or of one of several: without their
    metadata a single node would move its partitions aside.
    """
    names = files.listdir(path) if files.is_dir(path) else []
    if META_PROPERTIES not in names:
        nodes = [
            name for name in names if name.isdecimal() and files.exists(f"{path}/{name}/{META_PROPERTIES}")
        ]
        if nodes:
            raise DataDirectoryError(
                f"{path} has the data of {len(nodes)} nodes: start it with --nodes {len(nodes)}"
            )
        return
    is_kraft = parse_properties(files.read_bytes(f"{path}/{META_PROPERTIES}")).get("version") == "1"
    if is_kraft and METADATA_DIRECTORY not in names and any(partition_of(name) for name in names):
        raise DataDirectoryError(
            f"{path} has partitions and no {METADATA_DIRECTORY}: it belongs to one of several nodes, whose controller "
            "has the metadata; start all of them, by --nodes and the folder above"
        )


@contextmanager
def _open_metadata(logs: LogManager, release: Release) -> Iterator[MetadataStore]:
    """Lock the data directory, and open its metadata. In the end close both, the metadata first: its last record says
    that this node has stopped.
    """
    logs.start()
    broker_epoch = -1
    try:
        metadata = MetadataStore(
            logs.data_dir,
            logs.files,
            logs.clock,
            logs.random,
            logs.config,
            cluster_id=logs.cluster_id,
            directory_id=logs.directory_id,
            supported=release.features,
        )
        try:
            metadata.start()
            yield metadata
        finally:
            broker_epoch = metadata.broker_epoch
            if logs.keeps_data:
                with suppress(KafkaError):  # it is logged; the next start works without
                    metadata.fence()
            metadata.close(sync=logs.keeps_data)
    finally:
        logs.stop(broker_epoch)


def _handlers(config: BrokerConfig, release: Release, *, has_telemetry: bool) -> dict[int, ApiRow]:
    """Return the APIs that a node serves, by key."""
    handlers = dict(release.handlers)
    if not has_telemetry:
        for api_key in TELEMETRY_KEYS:
            handlers.pop(api_key, None)
    if config.unstable_api_versions_enable and release is OURS:
        for api_key, version in UNSTABLE_VERSIONS.items():
            handlers[api_key] = handlers[api_key]._replace(max_version=version)
    return handlers


def apply_broker_configs(config: DynamicBrokerConfig, metadata: ClusterMetadata, logs: LogManager) -> None:
    """Apply the dynamic configuration in the metadata."""
    config.change(dynamic_broker_texts(metadata.image, config.static.node_id))
    logs.update_broker_config(config.current)
