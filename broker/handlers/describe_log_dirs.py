"""DescribeLogDirs (API key 35): returns the size of each partition, and the space in the data directory (KIP-827)."""

from __future__ import annotations

from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    services: Services, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    try:
        result = _describe(services, wanted)
    except OSError:
        result = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, services.logs.data_dir)
    return DescribeLogDirsResponse(0, 0, [result])


def _describe(services: Services, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    """Describe the one data directory, with the ``wanted`` replicas of this node or (None) all. Raises OSError."""
    total, usable = services.files.disk_space(services.logs.data_dir)
    node_id = services.config.static.node_id
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic in services.metadata.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if node_id in partition.replicas and (wanted is None or (topic.name, index) in wanted):
                size = services.logs.size_of(topic.name, index)
                topics.setdefault(topic.name, []).append(DescribeLogDirsPartition(index, size, 0, False))
    topic_results = [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
    is_cordoned = services.config.current.is_data_dir_cordoned
    return DescribeLogDirsResult(0, services.logs.data_dir, topic_results, total, usable, is_cordoned)
