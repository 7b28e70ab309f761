"""`ReplicatedFetch`: a Fetch where there are other nodes: it may read what this node only follows (KIP-392).

A consumer's request from version 11 on, and one with replica id -2 (a tool that compares replicas) in any version, may
read any replica; -2 reads to its end. A leader may send a consumer to a replica in the consumer's rack. Who asks the
wrong node is told the right one (KIP-951). Fetches of followers are those of
`oncelog.broker.replication.follower_sessions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.cluster.cluster import LeaderPartition
from oncelog.broker.fetch.fetch import EMPTY, LEADER_HINT_VERSION, REPLICA_STATE_VERSION, Fetch
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.fetch import NodeEndpoint, PartitionData
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster, HostedPartition
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.fetch.sessions import FetchContext, FetchItem, FetchSessions
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
    from oncelog.wire.steps import Steps

ANY_REPLICA_VERSION = 11
"""The first version whose clients know that followers may be read."""
DEBUGGING_REPLICA_ID = -2


def replica_of(request: FetchRequest, version: int) -> tuple[int, int]:
    """Return the replica id of a request (negative: no follower's), and the follower's broker epoch."""
    state = request.replica_state
    if version < REPLICA_STATE_VERSION or state is None:
        return request.replica_id, -1
    return state.replica_id, state.replica_epoch


class ReplicatedFetch(Fetch):
    """One request, of a consumer or of replica id -2."""

    __slots__ = ("_listener_name", "_may_read_followers", "_rack", "_reads_to_end")

    def __init__(
        self,
        cluster: Cluster,
        sessions: FetchSessions,
        config: BrokerConfig,
        request: FetchRequest,
        version: int,
        context: FetchContext,
        listener_name: str,
    ) -> None:
        """The client has come by the listener ``listener_name``: it is told other nodes' addresses on it."""
        super().__init__(cluster, sessions, config, request, version, context)
        self._reads_to_end = replica_of(request, version)[0] == DEBUGGING_REPLICA_ID
        self._may_read_followers = self._reads_to_end or version >= ANY_REPLICA_VERSION
        self._rack = request.rack_id
        self._listener_name = listener_name

    def _find(self, item: FetchItem) -> HostedPartition:
        """Return the partition to read. Raises KafkaError."""
        asked = item.partition
        epoch = max(-1, asked.current_leader_epoch)
        if self._may_read_followers:
            found = self._cluster.readable_partition(item.topic, asked.partition, epoch)
        else:
            self._cluster.log(item.topic, asked.partition, epoch)
            found = self._cluster.leader_partition(item.topic, asked.partition)
        if item.topic_id != ZERO_UUID and item.topic_id != found.log.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        found.log_at(epoch)
        return found

    def _read_one(self, item: FetchItem, limit: int, *, minimum_one: bool) -> PartitionData:
        asked = item.partition
        try:
            found = self._find(item)
            log = found.log
            if self._rack and isinstance(found, LeaderPartition):
                preferred = found.preferred_read_replica(self._rack, asked.fetch_offset)
                if preferred is not None:
                    self.ready = True
                    return self._elsewhere(log, asked.partition, preferred)
            if asked.last_fetched_epoch >= 0:
                diverging = self._diverging(log, asked.last_fetched_epoch, asked.fetch_offset)
                if diverging is not None:
                    return diverging
            return self._read_log(
                log, asked.partition, asked.fetch_offset, min(asked.partition_max_bytes, limit), minimum_one
            )
        except KafkaError as error:
            return self._error_row(item, error.code)

    def _elsewhere(self, log: PartitionLog, partition: int, node_id: int) -> PartitionData:
        """Return the row that sends a consumer to another replica."""
        return PartitionData(
            partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=[] if self.is_committed else None,
            preferred_read_replica=node_id,
            records=EMPTY,
        )

    def _read_log(
        self, log: PartitionLog, partition: int, offset: int, max_bytes: int, minimum_one: bool
    ) -> PartitionData:
        if not self._reads_to_end:
            return super()._read_log(log, partition, offset, max_bytes, minimum_one)
        read = log.read(offset, max_bytes, minimum_one=minimum_one, up_to=log.log_end_offset)
        return PartitionData(
            partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=None,
            records=read.records,
        )

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs to watch: those that were just read."""
        return (self._find(item).log for _, item, row in self.rows if not row.error_code)

    def respond(self) -> FetchResponse:
        """See `Fetch.respond`. The response has the addresses of the leaders that it names."""
        return self._with_leaders(super().respond())

    def respond_in_parts(self) -> Steps[FetchResponse]:
        response = yield from super().respond_in_parts()
        return self._with_leaders(response)

    def _with_leaders(self, response: FetchResponse) -> FetchResponse:
        if self.version >= LEADER_HINT_VERSION:
            named = {
                row.current_leader.leader_id
                for topic in response.responses
                for row in topic.partitions
                if row.current_leader is not None
            }
            if named:
                response.node_endpoints = [
                    NodeEndpoint(*node)
                    for node in self._cluster.nodes(self._listener_name)
                    if node.node_id in named
                ]
        return response
