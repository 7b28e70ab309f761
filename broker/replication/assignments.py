"""`AssignmentsManager`: tells the controller which replicas of this node cannot be used, and which can again (KIP-858).

Kafka gives up a whole directory, with all its replicas. Here a log goes offline alone, and so alone its replica's
directory becomes `LOST`: it leaves the ISR, and another replica leads. At the node's next start it is in the node's
directory again, until opening the log fails.

One request is under way; what comes meanwhile goes with the next one. Source: Kafka's ``AssignmentsManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.replica_directories import LOST
from oncelog.broker.network.network import LinkDownError
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from oncelog.broker.log.checkpoints import PartitionKey
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Partition
    from oncelog.broker.network.network import Link
    from oncelog.wire.schema import Uuid

VERSION = AssignReplicasToDirsRequest.MAX_VERSION
RETRY_S = 0.5
"""Seconds of real time before the next request after an error."""

_log = get_logger(__name__)


class AssignmentsManager:
    """Has the assignments of one node. ``link`` reaches the controller."""

    def __init__(self, link: Link, metadata: ClusterMetadata, node_id: int, lines: LineLimiter) -> None:
        self._link = link
        self._metadata = metadata
        self._node_id = node_id
        self._lines = lines
        self._wanted: dict[PartitionKey, Uuid] = {}
        """The directories that were not sent yet."""
        self._has_wanted = trio.Event()

    def give_up(self, topic: str, partition: int) -> None:
        """The log of a replica went offline."""
        self._want((topic, partition), LOST)

    def take_back(self, key: PartitionKey, state: Partition) -> None:
        """The node starts, and may open the replica's log again; ``state`` is what the metadata say of the partition.
        The controller must know before the node is unfenced: only then it elects a leader for it.
        """
        if (self._node_id, LOST) in zip(state.replicas, state.directories, strict=False):
            self._want(key, self._metadata.directory_id)

    def _want(self, key: PartitionKey, directory: Uuid) -> None:
        self._wanted[key] = directory
        self._has_wanted.set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        while True:
            await self._has_wanted.wait()
            self._has_wanted = trio.Event()
            wanted, self._wanted = self._wanted, {}
            request = self._build(wanted)
            changed = self._link.changed
            try:
                response = await self._link.call(request, VERSION)
            except LinkDownError:
                with real_time.move_on_after(1):
                    await changed.wait()
            else:
                if not response.error_code:
                    continue
                error = ErrorCode(response.error_code).name
                self._lines.write(_log.warning, "the controller takes no directories", {"error": error})
                await real_time.sleep(RETRY_S)
            for key, directory in wanted.items():  # what was wanted since then counts
                self._want(key, self._wanted.get(key, directory))

    def _build(self, wanted: dict[PartitionKey, Uuid]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, TopicData]] = {}
        for (name, partition), directory in wanted.items():
            topic = self._metadata.image.topics.get(name)
            if topic is not None:
                topics = directories.setdefault(directory, {})
                row = topics.setdefault(topic.topic_id, TopicData(topic.topic_id))
                row.partitions.append(PartitionData(partition))
        return AssignReplicasToDirsRequest(
            self._node_id,
            self._metadata.broker_epoch,
            [DirectoryData(directory, list(topics.values())) for directory, topics in directories.items()],
        )
