"""`Replication`: the partitions of a node that have several replicas, both those it leads and those it follows.

`Cluster` tells it what the metadata say of a partition. What a node must stop, it stops at once: a leadership, a
fetcher. What it must begin waits for its turn (`_open_all`): a log is opened or created for it. What is not assigned
to the node any more is deleted. Source: Kafka's ``ReplicaManager``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from oncelog.broker.cluster.cluster import FollowerPartition, LeaderPartition
from oncelog.broker.log.truncation import truncate_to
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.replication.alter_partition_manager import AlterPartitionManager
from oncelog.broker.replication.assignments import AssignmentsManager
from oncelog.broker.replication.fetch_state import PartitionFetchState
from oncelog.broker.replication.fetcher import ReplicaFetcher
from oncelog.broker.replication.follower_sessions import FollowerSessions
from oncelog.broker.replication.replicated_partition import LeaderEnvironment, ReplicatedPartition
from oncelog.broker.replication.throttle import ReplicationThrottle
from oncelog.broker.scheduling.slices import Slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.log.checkpoints import PartitionKey
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.network.network import Links
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.schema import Message

BROKER_RECORDS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
RETRY_S = 1.0
"""Seconds of real time until a log is opened again that could not be, and until a task goes on after an internal
error.
"""

_log = get_logger(__name__)


class Replication:
    """One for each node of several. `run` serves until cancelled; call it when the metadata are current."""

    def __init__(
        self,
        cluster: Cluster,
        logs: LogManager,
        links: Links,
        metadata: ClusterMetadata,
        config: DynamicBrokerConfig,
        clock: Clock,
        lines: LineLimiter,
        background: BackgroundWork,
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._links = links
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._lines = lines
        self._background = background
        self._node_id = cluster.node_id
        self.alter_partition = AlterPartitionManager(
            links.to(CONTROLLER_ID), metadata, cluster.node_id, lines
        )
        self._assignments = AssignmentsManager(links.to(CONTROLLER_ID), metadata, cluster.node_id, lines)
        logs.on_offline = self._assignments.give_up
        self.sessions = FollowerSessions(
            cluster, clock, logs.random, ReplicationThrottle.of_leader(config, cluster.node_id)
        )
        self._throttle = ReplicationThrottle.of_follower(config, cluster.node_id)
        self._environment = LeaderEnvironment(
            cluster.node_id, config, metadata, clock, self.alter_partition.propose
        )
        self._led: dict[PartitionKey, ReplicatedPartition] = {}
        self._followers: dict[PartitionKey, FollowerPartition] = {}
        self._fetch_states: dict[PartitionKey, tuple[ReplicaFetcher, PartitionFetchState]] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        """By the id of the leader."""
        self._to_open: dict[PartitionKey, None] = {}
        self._has_to_open = trio.Event()
        self._nursery: trio.Nursery | None = None
        """None: it does not run."""
        cluster.replicas = self
        metadata.subscribe(self._on_record)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Lead and follow what the metadata say, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                for topic in self._metadata.image.topics.values():
                    for partition, state in enumerate(topic.partitions):
                        self._assignments.take_back((topic.name, partition), state)
                        self.on_change(topic, partition)
                task_status.started()
                await self._has_to_open.wait()  # until there is a partition, a node costs no more tasks
                for task in (
                    self.alter_partition.run,
                    self._assignments.run,
                    self._open_all,
                    self._expire_isrs,
                ):
                    self._start_soon(self._restart_after_internal_errors, task)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _start_soon(self, task: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task, unless the node ends: followers ask it until its last task has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(task, *arguments)

    async def _restart_after_internal_errors(self, task: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await task()
                return
            except Exception:
                _log.exception("replication failed")
                self._logs.on_internal_error()
                await real_time.sleep(RETRY_S)

    # -- for `Cluster` (`Replicas`)

    @property
    def followed(self) -> Mapping[PartitionKey, FollowerPartition]:
        """See `Replicas`."""
        return self._followers

    def lead(self, topic: Topic, partition: int, previous: LeaderPartition | None) -> LeaderPartition:
        """See `Replicas`."""
        key = topic.name, partition
        self._unfollow(key)
        log = self._logs.get(*key)
        leader = ReplicatedPartition(self._environment, log, topic.partitions[partition], previous)
        self._led[key] = leader
        _log.info(
            "leading",
            topic=topic.name,
            partition=partition,
            leader_epoch=leader.leader_epoch,
            from_offset=leader.epoch_start_offset,
            high_watermark=log.high_watermark,
        )
        if log.durable_offset < log.log_end_offset:  # nobody waits for these records: no append flushes them
            self._start_soon(self._flush, log)
        return leader

    async def _flush(self, log: PartitionLog) -> None:
        with suppress(KafkaError):  # it is logged; the log is offline
            await log.flush(log.log_end_offset)

    def update(self, topic: Topic, partition: int, leader: LeaderPartition) -> None:
        """See `Replicas`."""
        assert isinstance(leader, ReplicatedPartition), leader
        leader.update(topic.partitions[partition])

    def on_change(self, topic: Topic, partition: int) -> None:
        """See `Replicas`."""
        if self._nursery is None:
            return
        key = topic.name, partition
        state = topic.partitions[partition]
        followed = self._followers.get(key)
        if followed is not None and (
            state.leader == self._node_id or followed.leader_epoch != state.leader_epoch
        ):
            self._unfollow(key)
        if self._node_id not in state.replicas:
            self._drop(key)
        elif key not in self._followers:
            self._to_open[key] = None
            self._has_to_open.set()
        self.sessions.on_change()

    def forget(self, topic: str) -> None:
        """See `Replicas`."""
        for key in [key for key in self._followers if key[0] == topic]:
            self._unfollow(key)

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        """The registration of a node has changed: who may join an ISR, and whose log start counts."""
        if isinstance(record, BROKER_RECORDS):
            for partition in self._current_leaders():
                partition.reconsider()

    # -- what this node stops

    def _unfollow(self, key: PartitionKey) -> None:
        followed = self._followers.pop(key, None)
        if followed is not None:
            followed.close()
            followed.log.waiters.notify(followed.log)
        fetched = self._fetch_states.pop(key, None)
        if fetched is not None:
            fetcher, partition = fetched
            fetcher.remove(partition)

    def _drop(self, key: PartitionKey) -> None:
        """Another node has the replica now."""
        self._unfollow(key)
        self._led.pop(key, None)
        self._to_open.pop(key, None)
        if self._logs.has(*key):
            _log.info("replica removed", topic=key[0], partition=key[1])
            self._logs.delete(*key)

    # -- what it begins

    async def _open_all(self) -> None:
        while True:
            await self._has_to_open.wait()
            self._has_to_open = trio.Event()
            later: list[PartitionKey] = []
            with self._background.running("opening of replicas"):
                slices = Slices()
                while self._to_open:
                    key = next(iter(self._to_open))
                    del self._to_open[key]
                    if not self._open(key):
                        later.append(key)
                    if slices.is_over():
                        await slices.pause()
                for fetcher in self._fetchers.values():
                    fetcher.fetch_added()
                await trio.lowlevel.checkpoint()
            if later:
                with real_time.move_on_after(RETRY_S):
                    await self._has_to_open.wait()
                self._to_open.update(dict.fromkeys(later))
                self._has_to_open.set()

    def _open(self, key: PartitionKey) -> bool:
        """Lead or follow a partition. Returns whether that need not be tried again."""
        topic = self._metadata.image.topics.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return True
        state = topic.partitions[key[1]]
        try:
            if state.leader == self._node_id:
                self._cluster.leader_partition(*key)
            elif self._node_id in state.replicas:
                self._follow(key, state.leader, state.leader_epoch, is_replicated=len(state.replicas) > 1)
        except KafkaError as error:
            about = {"topic": key[0], "partition": key[1], "error": error.code.name}
            self._lines.write(_log.warning, "replica not opened", about)
            # NOT_LEADER_OR_FOLLOWER: the log is being recovered, or no file can be opened now. A log that is not there
            # could not be created: a full disk may have room again.
            return error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER and self._logs.has(*key)
        return True

    def _follow(self, key: PartitionKey, leader: int, leader_epoch: int, *, is_replicated: bool) -> None:
        """Follow a partition, and fetch it if it has a leader. Raises KafkaError."""
        known = self._followers.get(key)
        if known is not None and known.leader_epoch == leader_epoch:
            return
        self._unfollow(key)
        log = self._logs.get(*key)
        log.check_alive()
        log.set_replicated(is_replicated)
        if log.latest_epoch < 0:  # no epoch says where the logs part; an empty log has none
            truncate_to(log, log.high_watermark)
        self._followers[key] = FollowerPartition(log, leader_epoch)
        _log.info(
            "following",
            topic=key[0],
            partition=key[1],
            leader=leader,
            leader_epoch=leader_epoch,
            from_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        if leader >= 0:
            fetcher = self._fetcher(leader)
            partition = PartitionFetchState(log, leader_epoch)
            self._fetch_states[key] = fetcher, partition
            fetcher.add(partition)

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                self._links.to(leader),
                self._node_id,
                self._metadata,
                self._config,
                self._lines,
                self._throttle,
            )
            self._start_soon(self._run_fetcher, leader, fetcher)
        return fetcher

    async def _run_fetcher(self, leader: int, fetcher: ReplicaFetcher) -> None:
        await trio.lowlevel.checkpoint()  # its first partition comes after it was made
        await self._restart_after_internal_errors(fetcher.run)
        if self._fetchers.get(leader) is fetcher:
            del self._fetchers[leader]

    # -- ISRs

    def _current_leaders(self) -> list[ReplicatedPartition]:
        for key in [key for key, leader in self._led.items() if not leader.is_current]:
            del self._led[key]
        return list(self._led.values())

    async def _expire_isrs(self) -> None:
        """Look twice in ``replica.lag.time.max.ms`` who is no longer in sync."""
        while True:
            await self._clock.pause(self._config.current.replica_lag_time_max_ms / 2000)
            for partition in self._current_leaders():
                for node_id in sorted(partition.maybe_shrink()):
                    log = partition.log
                    self._background.timer_event(
                        "replica out of sync", topic=log.topic, partition=log.partition, replica=node_id
                    )
                partition.reconsider()

    # -- for tests that move time

    def credit(self, node_ids: set[int], seconds: float) -> None:
        """Time is moved ahead by that: these nodes, which fetch from this one, do not lag for it."""
        self.sessions.credit(node_ids, seconds)
        for partition in self._current_leaders():
            partition.credit(node_ids, seconds)

    def under_way(self, reached: set[int]) -> list[str]:
        """Return names of what is under way and needs only the nodes in ``reached``: ISR changes, and replication."""
        names = []
        for (topic, index), partition in self._led.items():
            log = partition.log
            if not partition.is_current or not partition.isr.maximal - {self._node_id} <= reached:
                continue
            if partition.isr.proposed is not None:
                names.append(f"change of the ISR of {topic}-{index}")
            if topic in INTERNAL_TOPICS and log.high_watermark < log.log_end_offset:
                names.append(f"replication of {topic}-{index}")
        return names
