"""`AlterPartitionManager`: asks the controller for the ISRs that the leaders of this node propose.

One request is under way; what is proposed meanwhile goes with the next one. A request that gets no response is
repeated until it gets one: the changes are pending as long (`Isr`). Source: Kafka's ``DefaultAlterPartitionManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.network.network import LinkDownError
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from oncelog.broker.log.checkpoints import PartitionKey
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.network.network import Link
    from oncelog.broker.replication.isr import Isr
    from oncelog.broker.replication.replicated_partition import ReplicatedPartition
    from oncelog.wire.messages.alter_partition import AlterPartitionResponse

    Asked = dict[tuple[bytes, int], tuple[ReplicatedPartition, Isr]]
    """The partitions of a request, by topic id and number, and what was asked."""

VERSION = AlterPartitionRequest.MAX_VERSION
RETRY_S = 0.05
"""Seconds of real time before the next request after an error."""
RECOVERED = 0
"""``LeaderRecoveryState.RECOVERED``: the leader has what is left after an unclean election."""

_log = get_logger(__name__)


class AlterPartitionManager:
    """Has the proposals of one node. ``link`` reaches the controller."""

    def __init__(self, link: Link, metadata: ClusterMetadata, node_id: int, lines: LineLimiter) -> None:
        self._link = link
        self._metadata = metadata
        self._node_id = node_id
        self._lines = lines
        self._proposed: dict[PartitionKey, ReplicatedPartition] = {}
        """The partitions whose proposals were not sent yet."""
        self._has_proposed = trio.Event()

    def propose(self, partition: ReplicatedPartition) -> None:
        """Send the proposed ISR of a partition with the next request."""
        self._proposed[partition.log.topic, partition.log.partition] = partition
        self._has_proposed.set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        while True:
            await self._has_proposed.wait()
            self._has_proposed = trio.Event()
            request, asked = self._build()
            if not asked:
                continue
            changed = self._link.changed
            try:
                response = await self._link.call(request, VERSION)
            except LinkDownError:
                self._ask_again(asked)
                with real_time.move_on_after(1):
                    await changed.wait()
            else:
                if not self._take(response, asked):
                    await real_time.sleep(RETRY_S)

    def _build(self) -> tuple[AlterPartitionRequest, Asked]:
        request = AlterPartitionRequest(self._node_id, self._metadata.broker_epoch)
        topics: dict[bytes, TopicData] = {}
        asked: Asked = {}
        for partition in self._proposed.values():
            log, isr = partition.log, partition.isr
            if not partition.is_current or isr.proposed is None:
                continue
            topic = topics.get(log.topic_id)
            if topic is None:
                topic = topics[log.topic_id] = TopicData(log.topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                PartitionData(
                    log.partition,
                    partition.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(node_id, partition.broker_epoch_of(node_id))
                        for node_id in sorted(isr.proposed)
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=partition.partition_epoch,
                )
            )
            asked[log.topic_id, log.partition] = partition, isr
        self._proposed.clear()
        return request, asked

    def _take(self, response: AlterPartitionResponse, asked: Asked) -> bool:
        """Take the answers to what was ``asked``. Returns whether the next request may follow at once."""
        if response.error_code:
            code = ErrorCode(response.error_code).name
            self._lines.write(_log.warning, "the controller changes no ISR", {"error": code})
            self._ask_again(asked)
            return False
        is_fine = True
        for topic in response.topics:
            for result in topic.partitions:
                found = asked.pop((topic.topic_id, result.partition_index), None)
                if found is None:
                    continue
                partition, isr = found
                if result.error_code:
                    partition.on_refused(isr, result.error_code)
                    is_fine = False
                else:
                    partition.on_accepted(isr, result)
        if asked:
            self._ask_again(asked)
            is_fine = False
        return is_fine

    def _ask_again(self, asked: Asked) -> None:
        for partition, isr in asked.values():
            if partition.is_current and partition.isr is isr:
                self.propose(partition)
