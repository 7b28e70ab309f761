"""Requests made of arguments, and results made of responses: a node's, or those that a client gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from oncelog.broker.client.errors import to_error_code
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.names import meant
from oncelog.broker.control.new_records import NewRecord
from oncelog.broker.control.options import config_texts
from oncelog.broker.control.types import Assignment, Member, Offsets, Record, TransactionInfo
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.messages.consumer_group_describe import Assignment as DescribedAssignment
from oncelog.wire.messages.consumer_group_describe import Member as DescribedMember
from oncelog.wire.messages.describe_transactions import TransactionState
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.produce import PartitionProduceResponse
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

SET = 0
"""Kafka: ``AlterConfigOp.OpType.SET``."""
VERSION_SIZE = 2
"""Bytes of the version before a classic consumer's subscription or assignment. Every version begins as version 0 does.
"""


def check(code: int, message: str | None) -> None:
    """Raises KafkaError for an error code."""
    if code:
        raise KafkaError(to_error_code(code), message)


def config_change(
    resource_type: int, name: str, config: Mapping[str, object]
) -> IncrementalAlterConfigsRequest:
    """Return the request that sets configuration keys of a resource. Raises InvalidArgumentError."""
    rows = [AlterableConfig(key, SET, value) for key, value in config_texts(config).items()]
    return IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, rows)])


def check_config_change(row: Any, config: Mapping[str, object], known: Collection[str], what: str) -> None:
    """Raises InvalidArgumentError, about ``what``, if a row of the response to `config_change` has an error; with the
    key that may be meant where one of ``config`` is not among those that are ``known``.
    """
    if row.error_code:
        unknown = next((key for key in config if key not in known), None)
        hint = "" if unknown is None else meant(unknown, known)
        raise InvalidArgumentError(f"{what}: {row.error_message}{hint}")


async def lag_of(
    committed: Offsets,
    subscribed: set[str],
    partitions: Callable[[str], Awaitable[Iterable[int]]],
    bounds: Callable[[str, int], Awaitable[tuple[int, int]]],
) -> Offsets:
    """Return the lag of a group in each partition of its ``subscribed`` topics, and in each other one with a committed
    offset.

    ``partitions`` gives the partitions of a topic and may raise NotFoundError; ``bounds`` gives the log start offset of
    one, and the end of what a consumer may read.
    """
    lag: Offsets = {}
    for name in sorted(committed.keys() | subscribed):
        known = committed.get(name, {})
        try:
            numbers = await partitions(name)
        except NotFoundError:
            continue
        for partition in numbers:
            if name in subscribed or partition in known:
                start, end = await bounds(name, partition)
                lag.setdefault(name, {})[partition] = max(0, end - max(known.get(partition, 0), start))
    return lag


def classic_subscription(metadata: bytes) -> tuple[str, ...]:
    """Return the topics of a classic consumer, sorted; none where a client sent something else."""
    subscription: ConsumerProtocolSubscription
    try:
        subscription, _ = ConsumerProtocolSubscription.decoder(0)(metadata, VERSION_SIZE)
    except DecodeError:
        return ()
    return tuple(sorted(subscription.topics))


def classic_assignment(given: bytes) -> Assignment:
    """Return the partitions of a classic consumer; none where a client sent something else."""
    assignment: ConsumerProtocolAssignment
    try:
        assignment, _ = ConsumerProtocolAssignment.decoder(0)(given, VERSION_SIZE)
    except DecodeError:
        return {}
    found = {row.topic: sorted(row.partitions) for row in assignment.assigned_partitions}
    return dict(sorted(found.items()))


def consumer_member(row: DescribedMember) -> Member:
    """Return a member of a group with the consumer protocol."""
    return Member(
        member_id=row.member_id,
        client_id=row.client_id,
        host=row.client_host,
        instance_id=row.instance_id,
        protocol="classic" if row.member_type == 0 else "consumer",
        epoch=row.member_epoch,
        subscription=tuple(row.subscribed_topic_names),
        subscription_regex=row.subscribed_topic_regex or None,
        assignment=_assignment(row.assignment),
        target_assignment=_assignment(row.target_assignment),
    )


def _assignment(described: DescribedAssignment) -> Assignment:
    return {row.topic_name: list(row.partitions) for row in described.topic_partitions}


def transaction_info(described: TransactionState, last_update_ms: int = -1) -> TransactionInfo:
    """Return a transaction. Clients are not told of its last update."""
    return TransactionInfo(
        transactional_id=described.transactional_id,
        state=described.transaction_state,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        timeout_ms=described.transaction_timeout_ms,
        start_ms=started if (started := described.transaction_start_time_ms) >= 0 else None,
        last_update_ms=last_update_ms,
        partitions={row.topic: sorted(row.partitions) for row in described.topics},
    )


def offset_commit(group_id: str, offsets: Offsets) -> OffsetCommitRequest:
    """Return the request that commits offsets for a group without members."""
    topics = [
        OffsetCommitRequestTopic(
            topic,
            partitions=[
                OffsetCommitRequestPartition(partition, offset) for partition, offset in rows.items()
            ],
        )
        for topic, rows in offsets.items()
    ]
    return OffsetCommitRequest(group_id, topics=topics)


def written_record(
    topic: str,
    record: NewRecord,
    row: PartitionProduceResponse,
    place: int,
    now_ms: int,
    leader_epoch: int,
) -> Record:
    """Return the record at a ``place`` in a batch, as the response to its Produce tells; ``now_ms`` is the timestamp of
    one that says none.
    """
    by_broker = row.log_append_time_ms >= 0
    given = now_ms if record.timestamp is None else record.timestamp
    return Record(
        topic=topic,
        partition=row.index,
        offset=row.base_offset + place,
        value=record.value,
        key=record.key,
        headers=record.headers,
        timestamp=row.log_append_time_ms if by_broker else given,
        timestamp_type="LogAppendTime" if by_broker else "CreateTime",
        leader_epoch=leader_epoch,
    )
