"""`Node`: one broker, started and stopped in order.

The start opens the data directory (lock, identity), the metadata log, the partition logs and the listeners. The stop is
the reverse: it closes the connections, flushes every log and writes the clean-shutdown mark last.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from oncelog.broker.client_metrics.manager import ClientMetricsManager
from oncelog.broker.cluster.cluster import Cluster, NodeAddress
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
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.log.manager import LocalTopic, LogManager
from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.acl_changes import store_acls
from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.metadata.topics import bump_leader_epoch
from oncelog.broker.net.connection import Connection
from oncelog.broker.net.server import BoundListener, Server
from oncelog.broker.node.metadata_publisher import MetadataPublisher
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.security.connection_limits import ConnectionLimits
from oncelog.broker.security.connection_rates import ConnectionRates
from oncelog.broker.security.delegation_tokens import DelegationTokens
from oncelog.broker.security.denied_lines import DeniedLines
from oncelog.broker.security.host_names import HostNames
from oncelog.broker.security.quotas import ClientQuotas
from oncelog.broker.security.sasl.users import Users, store_credentials
from oncelog.broker.share.group_states import ShareGroupStates
from oncelog.broker.share.manager import SharePartitionManager
from oncelog.coordinator.producer_ids import ProducerIds
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.stored.metadata import BrokerEndpoint, RemoveTopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.dispatch.policies import KnownTopic, KnownTopics
    from oncelog.broker.emulation.release import Release
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.net.peer import Peer
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.acls import StandardAuthorizer
    from oncelog.broker.security.failed_authentication import FailedAuthentication
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.broker.share.sessions import ShareSessions
    from oncelog.wire.schema import Message

log = get_logger(__name__)


class Node:
    """A broker on one data directory. It gets everything outside of it: files, clock, randomness and listeners."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: FileSystem,
        clock: Clock,
        rng: random.Random,
        release: Release = OURS,
        users: Users | None = None,
        acls: Sequence[AclBinding] = (),
        on_loaded: Callable[[Node], None] = lambda node: None,
    ) -> None:
        """``release`` is what it serves, ``users`` may log in, ``acls`` are created if they are missing. ``on_loaded``
        is called once in `run`, before the node listens: it may create topics, or install something in the dispatcher.
        """
        self.config = DynamicBrokerConfig(config)
        self.files = files
        self.clock = clock
        self.lines = LineLimiter(clock)
        self.random = rng
        self._users = Users({}) if users is None else users
        self._acls = acls
        self.fail_on_bugs = False
        """Whether an internal error ends the node, as tests want it, or only the request."""
        self.bugs = 0
        """How many requests and tasks failed with an internal error."""
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock, rng)
        self.logs = LogManager(files.absolute_path(config.data_dir), files, clock, rng, config)
        self.logs.on_bug = self.note_bug
        self.metadata: MetadataStore
        self.cluster: Cluster
        self.authorizer: StandardAuthorizer | None = None
        """The one that the configuration asks for."""
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.share_coordinator: ShareCoordinator
        self.shares: SharePartitionManager
        self.quotas: ClientQuotas
        self.client_metrics: ClientMetricsManager
        self.connection_rates: ConnectionRates
        self.host_names = HostNames(files)
        self.services: Services
        self.dispatcher: Dispatcher
        self.server: Server[Connection]
        self._share_group_states: ShareGroupStates
        self._producer_ids: ProducerIds
        self._delegation_tokens: DelegationTokens
        self._release = release
        self._on_loaded = on_loaded

    async def run(
        self, listeners: list[BoundListener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled, then stop cleanly.

        Raises DataDirectoryError if the data directory cannot be used, for example because another process uses it.
        """
        self.logs.start()
        try:
            try:
                self._load(listeners)
            except (KafkaError, DecodeError, OSError) as error:
                raise DataDirectoryError.of(self.logs.data_dir, error) from error
            async with trio.open_nursery() as nursery:
                await nursery.start(self.logs.run)
                nursery.start_soon(self._flush_metadata)
                nursery.start_soon(self._look_up_hosts)
                if self._delegation_tokens.is_enabled:
                    nursery.start_soon(self._remove_expired_tokens)
                await nursery.start(self.groups.runtime.run)
                await nursery.start(self.transactions.run)
                await nursery.start(self.share_coordinator.run)
                await nursery.start(self._share_group_states.run)
                await nursery.start(self.shares.run)
                self.server = Server(
                    self.services,
                    self.dispatcher,
                    listeners,
                    self.connection_rates,
                    partial(Connection, self.dispatcher),
                )
                await nursery.start(self.server.run)
                self.groups.runtime.load_all()
                self.transactions.runtime.load_all()
                self.share_coordinator.runtime.load_all()
                task_status.started()
        finally:
            self._stop()

    def _load(self, listeners: list[BoundListener]) -> None:
        logs = self.logs
        self.metadata = MetadataStore(
            logs.data_dir,
            self.files,
            self.clock,
            self.random,
            self.config.static,
            cluster_id=logs.cluster_id,
            directory_id=logs.directory_id,
            supported=self._release.features,
        )
        self.metadata.start()
        self.metadata.register(
            [
                BrokerEndpoint(row.name, row.host, row.port, SECURITY_PROTOCOLS.index(row.protocol))
                for row in listeners
            ]
        )
        store_credentials(self.metadata, self._users)
        store_acls(self.metadata, self._acls)
        publisher = MetadataPublisher(self)
        publisher.apply_broker_configs()
        self.metadata.subscribe(publisher.on_record)
        self._producer_ids = ProducerIds(self.metadata.take_producer_ids)
        config = self.config.current
        addresses = {
            row.name: NodeAddress(config.node_id, row.host, row.port, config.broker_rack) for row in listeners
        }
        self.cluster = Cluster(config.node_id, self.metadata, logs, addresses)
        environment = CoordinatorEnvironment(
            config=self.config,
            metadata=self.metadata,
            cluster=self.cluster,
            logs=logs,
            files=self.files,
            clock=self.clock,
            lines=self.lines,
            background=logs.background,
            note_bug=self.note_bug,
        )
        self.share_coordinator = ShareCoordinator(environment)
        self.shares = SharePartitionManager(environment, self.share_coordinator)
        self.groups = GroupCoordinator(environment, self.random)
        self.groups.warn_of_limits()
        self._share_group_states = ShareGroupStates(
            self.groups, self.share_coordinator, logs.background, self.note_bug
        )
        self.transactions = TransactionCoordinator(environment, self.groups, self.next_producer_id)
        if self.config.static.authorizer_class_name or self.metadata.image.acls.by_id:
            from oncelog.broker.security.acls import authorizer_in_force

            self.authorizer = authorizer_in_force(self.config.static, self.metadata.image.acls)
        self._delegation_tokens = DelegationTokens(self.config.static, self.metadata, self.clock)
        self.client_metrics = ClientMetricsManager(self.config, self.metadata, self.clock)
        handlers = dict(self._release.handlers)
        if not self.client_metrics.is_enabled:
            for api_key in TELEMETRY_KEYS:
                handlers.pop(api_key, None)
        if self.config.static.unstable_api_versions_enable and self._release is OURS:
            for api_key, version in UNSTABLE_VERSIONS.items():
                handlers[api_key] = handlers[api_key]._replace(max_version=version)
        self.services = Services(
            handlers=handlers,
            config=self.config,
            authorization=Authorization(self.authorizer, DeniedLines(self.clock).note),
            metadata=self.metadata,
            cluster=self.cluster,
            logs=logs,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinator=self.share_coordinator,
            share_group_states=self._share_group_states,
            shares=self.shares,
            txn_partitions=AddPartitionsToTxnManager(self.config, self.cluster, self.transactions),
            fetch_sessions=self.fetch_sessions,
            delayed_fetches=DelayedFetches(),
            next_producer_id=self.next_producer_id,
            client_metrics=self.client_metrics,
            host_names=self.host_names,
            files=self.files,
            clock=self.clock,
            lines=self.lines,
            random=self.random,
            delegation_tokens=self._delegation_tokens,
            users=self._users,
            login_observers=[],
            note_bug=self.note_bug,
        )
        for row in listeners:
            if row.security is not None:
                row.security.attach(self.services)
        self.dispatcher = Dispatcher(self.services)
        self.quotas = ClientQuotas(config, self.metadata.image)
        limits = ConnectionLimits(self.config, [row.name for row in listeners])
        self.connection_rates = ConnectionRates(
            self.config, limits, self.metadata.image, self.host_names.address
        )
        if self.metadata.image.client_quotas.clients:
            self.dispatcher.throttle_with(self.quotas)
        if not logs.was_clean:
            self._raise_leader_epochs()
        logs.load(self._local_topic, self._on_truncated)
        self._on_loaded(self)

    def _stop(self) -> None:
        metadata = getattr(self, "metadata", None)
        if metadata is None:
            self.logs.stop()
            return
        try:
            if self.logs.keeps_data:
                with suppress(KafkaError):  # it is logged; the next start works without
                    metadata.fence()
            metadata.close(sync=self.logs.keeps_data)
        finally:
            self.logs.stop(metadata.broker_epoch)

    async def _flush_metadata(self) -> None:
        """Flush the metadata log as often as the logs' recovery points are written."""
        interval_s = self.config.current.log_flush_offset_checkpoint_interval_ms / 1000
        flushed = -1
        while True:
            await self.clock.pause(interval_s)
            offset = self.metadata.image.offset
            if offset != flushed:
                with self.logs.background.running("flush of the metadata"):
                    await self.metadata.flush_in_background()
                flushed = offset

    async def _look_up_hosts(self) -> None:
        """Look up the hosts that the stored quotas name."""
        if await self.host_names.resolve_quotas(self.metadata.image.client_quotas):
            self.connection_rates.on_change()

    async def _remove_expired_tokens(self) -> None:
        """Remove expired delegation tokens from time to time."""
        interval_s = self._delegation_tokens.check_interval_ms / 1000
        while True:
            await self.clock.pause(interval_s)
            with self.logs.background.running("search for expired delegation tokens"):
                removed = self._delegation_tokens.remove_expired()
            if removed:
                log.info("expired delegation tokens removed", tokens=removed)

    def next_producer_id(self) -> int:
        """Return a new producer id. Ids come from durable blocks, so no later start returns it again.

        Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, KAFKA_STORAGE_ERROR.
        """
        return self._producer_ids.next()

    def note_bug(self) -> None:
        """Count a request or task that failed with an internal error; raise AssertionError if `fail_on_bugs`."""
        self.bugs += 1
        if self.fail_on_bugs:
            raise AssertionError("a request failed with an internal error: see the log")

    # -- metadata

    @property
    def known_topics(self) -> KnownTopics:
        """The topics that there are."""
        return self.metadata.image

    @property
    def share_sessions(self) -> ShareSessions:
        """What ShareFetches do not repeat."""
        return self.shares.sessions

    @property
    def login_observers(self) -> list[Callable[[Peer, LoginExchange | FailedAuthentication], None]]:
        """See `Services.login_observers`."""
        return self.services.login_observers

    def watch_metadata(self, on_change: Callable[[KnownTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the metadata: with a topic that was deleted, otherwise with None."""

        def on_record(record: Message, topic: Topic | None) -> None:
            on_change(topic if isinstance(record, RemoveTopicRecord) else None)

        self.metadata.subscribe(on_record)

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the topic's current configuration."""
        return effective_topic_config(self.metadata.image, self.config.current, topic)

    def _local_topic(self, name: str) -> LocalTopic | None:
        topic = self.metadata.image.topics.get(name)
        if topic is None:
            return None
        return LocalTopic(topic.topic_id, self.topic_config(name), range(len(topic.partitions)))

    def _on_truncated(self, cut: PartitionLog) -> None:
        """The start had to cut this log: begin a new leader epoch, durably, before a client reads."""
        topic = self.metadata.image.topics[cut.topic]
        self.metadata.commit(bump_leader_epoch(topic, [cut.partition]), durable=True)

    def _raise_leader_epochs(self) -> None:
        """Begin a new leader epoch in every partition, so that consumers notice if they have read beyond its end
        (KIP-320).

        After an unclean stop any log may have lost its end. A log that ends between two batches, or has lost all its
        files, does not show it. Kafka raises the epochs at every restart. It is durable before a client reads: a power
        loss must not undo an epoch, or it would be given to other records.
        """
        for topic in self.metadata.image.topics.values():
            self.metadata.commit(bump_leader_epoch(topic, range(len(topic.partitions))))
        self.metadata.flush()
