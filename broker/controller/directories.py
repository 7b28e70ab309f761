"""Directories of replicas: where a broker says that they are, and directories that fail (KIP-858).

A replica whose directory is not among its broker's online ones leaves the ISR and cannot lead; it can again once the
broker says that it is in an online one. So a broker gives up a single log: its directory is `LOST`.
Source: Kafka's ``ReplicationControlManager`` (``handleAssignReplicasToDirs``, ``handleDirectoriesOffline``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.controller.leadership import check_broker_epoch, leader_and_isr_changes
from oncelog.broker.controller.partition_change import (
    TopicRules,
    change_partition,
)
from oncelog.broker.metadata.replica_directories import directories_of, is_directory_online
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)
from oncelog.wire.stored.metadata import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage, Partition
    from oncelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from oncelog.wire.schema import Message, Uuid


def assign_directories(
    image: MetadataImage, config: BrokerConfig, request: AssignReplicasToDirsRequest
) -> tuple[list[Message], AssignReplicasToDirsResponse]:
    """Return the records that the request asks for, and its response once they are committed. ``config``: as in
    `TopicRules.of`. Raises KafkaError (STALE_BROKER_EPOCH).
    """
    broker_id = request.broker_id
    check_broker_epoch(image, broker_id, request.broker_epoch)
    records: list[Message] = []
    lost: set[Partition] = set()
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        is_online = is_directory_online(image.brokers[broker_id], directory.id)
        topics = [TopicResult(topic.topic_id) for topic in directory.topics]
        response.directories.append(DirectoryResult(directory.id, topics))
        for wanted, result in zip(directory.topics, topics, strict=True):
            topic = image.topics_by_id.get(wanted.topic_id)
            for row in wanted.partitions:
                index = row.partition_index
                error = ErrorCode.NONE
                if topic is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif not 0 <= index < len(topic.partitions):
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker_id not in topic.partitions[index].replicas:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    rules = TopicRules.of(image, config, topic)
                    record = change_partition(
                        image, topic, index, rules, directories={broker_id: directory.id}
                    )
                    if record is not None:
                        records.append(record)
                    if not is_online:
                        lost.add(topic.partitions[index])
                result.partitions.append(PartitionResult(index, error))
    return [*records, *leader_and_isr_changes(image, config, lost.__contains__, leaving=broker_id)], response


def lose_directories(
    image: MetadataImage, config: BrokerConfig, broker_id: int, offline: Sequence[Uuid]
) -> list[Message]:
    """Return the records for directories of a registered broker that failed; none for those that it no longer has."""
    broker = image.brokers[broker_id]
    lost = [directory for directory in broker.log_dirs if directory in offline]
    if not lost:
        return []
    return [
        *leader_and_isr_changes(
            image,
            config,
            lambda state: dict(directories_of(state)).get(broker_id) in lost,
            leaving=broker_id,
        ),
        BrokerRegistrationChangeRecord(
            broker_id,
            broker.broker_epoch,
            log_dirs=[directory for directory in broker.log_dirs if directory not in lost],
        ),
    ]
