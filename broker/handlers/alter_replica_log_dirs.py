"""AlterReplicaLogDirs (API key 34): moves replicas to another log directory (KIP-113); there is only one.

Source: ``ReplicaManager.alterReplicaLogDirs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.requests.request import Pending, RequestContext

FUTURE_NAME_LENGTH_MAX = 255
"""The longest name of a directory. During a move the partition's directory has an id and a suffix in its name."""
_FUTURE_SUFFIX_LENGTH = len(".-future") + 32


def handle(
    services: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse | Pending[AlterReplicaLogDirsResponse]:
    response = AlterReplicaLogDirsResponse()

    def rows() -> Iterator[None]:
        # If a request names several directories for a partition, the last is its destination.
        destinations: dict[str, dict[int, str]] = {}
        for directory in request.dirs:
            yield
            for topic in directory.topics:
                if topic.partitions:
                    destinations.setdefault(topic.name, {}).update(
                        dict.fromkeys(topic.partitions, directory.path)
                    )
                yield
        for name, partitions in destinations.items():
            topic_result = AlterReplicaLogDirTopicResult(name)
            response.results.append(topic_result)
            for index, path in partitions.items():
                topic_result.partitions.append(
                    AlterReplicaLogDirPartitionResult(
                        index, _alter(services.logs, services.cluster, name, index, path)
                    )
                )
                yield

    topics = [topic for directory in request.dirs for topic in directory.topics]
    count = len(request.dirs) + len(topics) + sum(len(topic.partitions) for topic in topics)
    return chunked(rows(), count, response)


def _alter(logs: LogManager, cluster: Cluster, name: str, index: int, path: str) -> ErrorCode:
    """Return NONE if the replica is in the directory ``path`` already, else why it cannot move there."""
    if len(f"{name}-{index}") + _FUTURE_SUFFIX_LENGTH > FUTURE_NAME_LENGTH_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != logs.data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = cluster.topic(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if cluster.node_id not in topic.partitions[index].replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    log = logs.logs.get((name, index))
    if log is not None and log.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
