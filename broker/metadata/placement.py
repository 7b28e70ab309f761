"""The replicas of new partitions: as a request assigns them, or striped over the brokers.

Source: Kafka's ``StripedReplicaPlacer``, ``ReplicationControlManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.replica_directories import MIGRATING, UNASSIGNED
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import PartitionChangeRecord, PartitionRecord

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.wire.schema import Message, Uuid


def check_assignment(image: MetadataImage, brokers: list[int], index: int, expected: int | None) -> None:
    """Raise KafkaError (INVALID_REPLICA_ASSIGNMENT) if a request may not assign these replicas to a new partition.

    ``expected`` is the number of replicas of the partitions before it.
    """
    check_replicas(image, brokers, expected)
    if not active(image, brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )


def check_replicas(image: MetadataImage, brokers: list[int], expected: int | None = None) -> None:
    """Check a list of replicas: registered brokers, each once, and ``expected`` of them unless that is None.

    Raises KafkaError: INVALID_REPLICA_ASSIGNMENT (``ReplicationControlManager.validateManualPartitionAssignment``).
    """
    refusal = ""
    for previous, broker in zip([None, *sorted(brokers)], sorted(brokers), strict=False):
        if broker not in image.brokers:
            refusal = f"includes broker {broker}, but no such broker is registered."
            break
        if not _has_room(image, broker):
            refusal = f"includes broker {broker}, but all its log directories are cordoned."
            break
        if broker == previous:
            refusal = f"includes the broker {broker} more than once."
            break
    if not brokers:
        refusal = "includes an empty replica list."
    elif not refusal and expected is not None and len(brokers) != expected:
        refusal = (
            f"includes a partition with {len(brokers)} replica(s), but this is not consistent with previous "
            f"partitions, which have {expected} replica(s)."
        )
    if refusal:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {refusal}")


def active(image: MetadataImage, brokers: Iterable[int]) -> list[int]:
    """Return those of the brokers that are registered and serve."""
    return [broker for broker in brokers if is_active(image, broker)]


def is_active(image: MetadataImage, broker: int) -> bool:
    """Whether a broker is registered and serves: it may lead, and be in an ISR."""
    known = image.brokers.get(broker)
    return known is not None and not known.fenced and not known.in_controlled_shutdown


def _has_room(image: MetadataImage, broker: int) -> bool:
    """Whether some data directory of a registered broker takes new partitions (KIP-1066)."""
    known = image.brokers[broker]
    return not known.log_dirs or not set(known.log_dirs) <= set(known.cordoned_log_dirs or ())


def default_directory(image: MetadataImage, broker: int) -> Uuid:
    """Return the directory of a new replica: the broker's only one, else it is for the broker to say (KIP-858)."""
    known = image.brokers.get(broker)
    if known is None:
        return UNASSIGNED
    return known.log_dirs[0] if len(known.log_dirs) == 1 else UNASSIGNED if known.log_dirs else MIGRATING


def place(image: MetadataImage, count: int, factor: int, rng: random.Random) -> list[list[int]]:
    """Return the replicas of ``count`` new partitions, striped over racks and brokers.

    Raises KafkaError (INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    usable = [
        broker
        for broker in sorted(image.brokers)
        if _has_room(image, broker) and (image.brokers[broker].fenced or is_active(image, broker))
    ]
    if not active(image, usable):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if factor > len(usable):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    if len(usable) == 1:
        return [usable[:] for _ in range(count)]
    from oncelog.broker.metadata.stripes import Stripes

    stripes = Stripes(image, usable, rng)
    return [stripes.next_replicas(factor) for _ in range(count)]


def partition_record(image: MetadataImage, topic_id: Uuid, index: int, brokers: list[int]) -> PartitionRecord:
    """Return the record of a new partition on these brokers. The first of them that serves becomes the leader."""
    isr = active(image, brokers)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=brokers,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, broker) for broker in brokers],
    )


def regain_leaders(image: MetadataImage, node_id: int) -> list[Message]:
    """Return the records that make a broker the leader of partitions without one that it may lead.

    oncelog keeps the leaders when it stops. A Kafka that has used the directory meanwhile has removed them.
    """
    records: list[Message] = []
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if state.leader == NO_LEADER and node_id in (
                state.isr or state.eligible_leader_replicas or state.last_known_elr
            ):
                records.append(
                    PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic.topic_id,
                        isr=[node_id],
                        leader=node_id,
                        eligible_leader_replicas=[] if image.elr_enabled else None,
                        last_known_elr=[] if image.elr_enabled else None,
                    )
                )
    return records
