"""AlterPartition: the leader of a partition asks for another ISR, or says that it has recovered (KIP-704).

Each row is checked in Kafka's order, against the partition as the image has it:

    the request                                     the leader is told
    a later leader or partition epoch than ours     NOT_CONTROLLER: it knows more than this controller
    an earlier leader epoch                         FENCED_LEADER_EPOCH
    not the leader                                  INVALID_REQUEST
    an earlier partition epoch                      INVALID_UPDATE_VERSION: it waits for the metadata and asks again
    an ISR without itself, or not of replicas       INVALID_REQUEST
    RECOVERING with more than itself in the ISR,
    or after it has recovered                       INVALID_REQUEST
    a member that does not serve, or has
    registered again meanwhile (KIP-903)            INELIGIBLE_REPLICA

What is granted may end a reassignment, and that may take the lead from who asked: NEW_LEADER_ELECTED, and the change
holds. Source: Kafka's ``ReplicationControlManager.alterPartition``; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from oncelog.broker.controller.leadership import check_broker_epoch
from oncelog.broker.controller.partition_change import (
    RECOVERED,
    RECOVERING,
    TopicRules,
    change_partition,
)
from oncelog.broker.metadata.image import NO_LEADER_CHANGE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_partition import (
    AlterPartitionResponse,
    BrokerState,
    PartitionResult,
    TopicResult,
)

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage, Partition, Topic
    from oncelog.wire.messages.alter_partition import AlterPartitionRequest, PartitionData
    from oncelog.wire.schema import Message

EPOCHS_VERSION = 3
"""The first version with the epochs of the ISR's brokers."""
UNKNOWN_EPOCH = -1


def alter_partition(
    image: MetadataImage, config: BrokerConfig, request: AlterPartitionRequest, version: int
) -> tuple[list[Message], AlterPartitionResponse]:
    """Return the records that the request asks for, and its response once they are committed. ``config``: as in
    `TopicRules.of`. Raises KafkaError (STALE_BROKER_EPOCH).
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    response = AlterPartitionResponse()
    for wanted in request.topics:
        result = TopicResult(wanted.topic_id)
        response.topics.append(result)
        topic = image.topics_by_id.get(wanted.topic_id)
        rules = None if topic is None else TopicRules.of(image, config, topic)
        for row in wanted.partitions:
            try:
                if topic is None or rules is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                isr = (
                    row.new_isr_with_epochs
                    if version >= EPOCHS_VERSION
                    else [BrokerState(broker, UNKNOWN_EPOCH) for broker in row.new_isr]
                )
                _check(image, topic, row, isr, request.broker_id)
                made = change_partition(
                    image,
                    topic,
                    row.partition_index,
                    rules,
                    election=rules.election,
                    isr=[member.broker_id for member in isr],
                    recovery_state=row.leader_recovery_state,
                )
                state = copy(topic.partitions[row.partition_index])
                if made is not None:
                    records.append(made)
                    state.change(made)
                    if made.leader not in (request.broker_id, NO_LEADER_CHANGE):
                        raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
                result.partitions.append(_granted(row.partition_index, state))
            except KafkaError as error:
                result.partitions.append(PartitionResult(row.partition_index, error.code))
    return records, response


def _granted(index: int, state: Partition) -> PartitionResult:
    return PartitionResult(
        index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )


def _check(
    image: MetadataImage, topic: Topic, row: PartitionData, isr: list[BrokerState], broker_id: int
) -> None:
    """Raise KafkaError unless the leader may have this ISR; see above."""
    if not 0 <= row.partition_index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[row.partition_index]
    members = [member.broker_id for member in isr]
    if row.leader_epoch > state.leader_epoch or row.partition_epoch > state.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if row.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != state.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if row.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    is_valid = len(set(members)) == len(members) and set(members).issubset(state.replicas)
    if not is_valid or state.leader not in members:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if row.leader_recovery_state == RECOVERING and (
        len(members) > 1 or state.leader_recovery_state == RECOVERED
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    for member in isr:
        if not _is_eligible(image, member):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _is_eligible(image: MetadataImage, member: BrokerState) -> bool:
    known = image.brokers.get(member.broker_id)
    if known is None or known.fenced or known.in_controlled_shutdown:
        return False
    return member.broker_epoch in (UNKNOWN_EPOCH, known.broker_epoch)
