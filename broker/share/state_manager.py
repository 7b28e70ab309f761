"""`PersisterStateManager`: the `SharePersister` of a node. It calls the share coordinator on the node that leads the
share partition's part of ``__share_group_state``: this one, or another over its link.

A call that fails for a reason that may pass is tried again, and whoever calls for the same share partition meanwhile
waits his turn, so that no call overtakes another. Source: Kafka's class of that name, ``DefaultStatePersister``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.topic_names import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.share import ShareCoordinator
    from oncelog.coordinator.share.state import SharePartitionKey, ShareState, StateBatch, StateSummary
    from oncelog.wire.schema import Uuid

RETRY_BACKOFF_S = 1.0
"""Seconds of real time before the third try; the wait doubles with each try (``REQUEST_BACKOFF_MS``). The second try
follows at once for a call that failed here; one that was queued, or failed on another node, waits half as long.
"""
ATTEMPTS_MAX = 5
"""How often a call is tried (``PersisterStateManager.MAX_FIND_COORD_ATTEMPTS``)."""

_RETRIED = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    )
)


class PersisterStateManager:
    """Calls ``coordinator`` on this node."""

    def __init__(self, environment: CoordinatorEnvironment, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator
        self._cluster = environment.cluster
        self._logs = environment.logs
        self._auto_topics = environment.auto_topics
        self._queued: dict[SharePartitionKey, trio.StrictFIFOLock] = {}
        """Share partitions for which a call is tried again, or is on its way to another node."""

    # -- SharePersister

    async def initialize(
        self, group_id: str, topic_id: Uuid, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """See `SharePersister.initialize`."""
        await self._call("initialize", group_id, topic_id, partition, state_epoch, start_offset)

    async def read(self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int) -> ShareState:
        """See `SharePersister.read`."""
        state: ShareState = await self._call("read", group_id, topic_id, partition, leader_epoch)
        return state

    async def write(
        self,
        group_id: str,
        topic_id: Uuid,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See `SharePersister.write`."""
        numbers = state_epoch, leader_epoch, start_offset, delivery_complete_count
        await self._call("write", group_id, topic_id, partition, *numbers, batches)

    async def delete(self, group_id: str, topic_id: Uuid, partition: int) -> None:
        """See `SharePersister.delete`."""
        await self._call("delete", group_id, topic_id, partition)

    async def summary(
        self, group_id: str, topic_id: Uuid, partition: int, leader_epoch: int = -1
    ) -> StateSummary:
        """See `SharePersister.summary`."""
        found: StateSummary = await self._call("summary", group_id, topic_id, partition, leader_epoch)
        return found

    # -- calls

    async def _call(self, name: str, group_id: str, topic_id: Uuid, partition: int, *values: Any) -> Any:
        """Make the call ``name`` with its parameters, again if it fails for a reason that may pass.

        Raises KafkaError.
        """
        from oncelog.coordinator.share.state import SharePartitionKey

        key, attempts = SharePartitionKey(group_id, topic_id, partition), 0
        if key not in self._queued and (self._cluster.links is None or self._is_here(key)):
            try:
                return await self._call_here(name, key, values)
            except KafkaError as error:
                if error.code not in _RETRIED:
                    raise
            attempts = 1
        lock = self._queued.setdefault(key, trio.StrictFIFOLock())
        try:
            async with lock:
                while True:
                    if attempts:
                        await self._logs.recovered()
                        await self._coordinator.runtime.wait_loaded()
                    try:
                        return await self._call_leader(name, key, values)
                    except KafkaError as error:
                        attempts += 1
                        if not self._may_pass(error, key) or attempts >= ATTEMPTS_MAX:
                            raise
                    await real_time.sleep(RETRY_BACKOFF_S * 2 ** (attempts - 2))
        finally:
            if not lock.locked():
                self._queued.pop(key, None)

    def _may_pass(self, error: KafkaError, key: SharePartitionKey) -> bool:
        """Whether to try again after an error. A coordinator that does not know a partition of ours is behind with its
        metadata.
        """
        topic = self._cluster.topic_by_id(key.topic_id)
        exists = topic is not None and 0 <= key.partition < len(topic.partitions)
        return error.code in _RETRIED or (exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _call_leader(self, name: str, key: SharePartitionKey, values: Sequence[Any]) -> Any:
        """Make the call where the share partition's coordinator is. Raises KafkaError; NETWORK_EXCEPTION if nobody
        knows whether it had an effect.
        """
        links = self._cluster.links
        leader = None if links is None else self._leader(key)
        if links is None or leader == self._cluster.node_id:
            return await self._call_here(name, key, values)
        if leader is None or leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        from oncelog.broker.share.remote_states import call_remote

        return await call_remote(links.to(leader), name, key, values)

    async def _call_here(self, name: str, key: SharePartitionKey, values: Sequence[Any]) -> Any:
        return await getattr(self._coordinator, name)(*key, *values)

    def _is_here(self, key: SharePartitionKey) -> bool:
        try:
            return self._leader(key) == self._cluster.node_id
        except KafkaError:
            return False

    def _leader(self, key: SharePartitionKey) -> int:
        """Return the node that is the share partition's coordinator; -1 if no node is. Raises KafkaError
        (COORDINATOR_NOT_AVAILABLE).
        """
        topic = self._auto_topics.ensure(SHARE_GROUP_STATE_TOPIC)
        return topic.partitions[self._coordinator.runtime.partition_for(key.coordinator_key())].leader
