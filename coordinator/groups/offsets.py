"""The steps of OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete. Source: ``OffsetMetadataManager``.

The handlers have already removed unknown topics and partitions from a request.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.timers import on_offset_commit
from oncelog.coordinator.groups.group import allow_any_partition
from oncelog.coordinator.partition_writer import CoordinatorRecord
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from oncelog.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT_TOPIC_ID_VERSION,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from oncelog.wire.primitives import wrapped_int64
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.stored.groups import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.offset_store import OffsetTuple
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
    from oncelog.wire.messages.offset_delete import OffsetDeleteRequest
    from oncelog.wire.messages.offset_fetch import OffsetFetchRequestGroup
    from oncelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

    CheckPartition = Callable[[str, Uuid, int], None]

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_RETENTION_TIME = -1
NO_EXPIRY = -1
GROUP_ID_NOT_FOUND_VERSION = 9
"""The first version in which a commit to an unknown group gets GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION."""

SIZE_CHECK_MIN = 1_000
"""A request of more topics and partitions than this is first checked to fit into a batch, before its records
are made."""
RECORD_BYTES_MIN = 41
"""Bytes of an offset's record without the names of group and topic: 7 around key and value, 10 in the key, 24 in the
value."""

VALUE_VERSION = 4
VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with an expire timestamp, which OffsetCommit versions 2 to 4 may ask for."""


def commit_offsets(shard: GroupShard, request: OffsetCommitRequest, client: Client) -> OffsetCommitResponse:
    """Store the offsets as one batch, without those whose metadata is too long. Raises KafkaError for the whole
    request.
    """
    check = _check_commit(shard, request, client)
    now_ms = shard.context.now_ms()
    retention_ms = request.retention_time_ms
    # As in Kafka, a huge retention time may give an expire timestamp in the past.
    expires_ms = NO_EXPIRY if retention_ms == NO_RETENTION_TIME else wrapped_int64(now_ms + retention_ms)
    metadata_max = shard.context.settings().offset_metadata_max_bytes
    records: list[CoordinatorRecord] = []
    topics: list[OffsetCommitResponseTopic] = []
    _check_fits_batch(shard, request, metadata_max)
    for topic in request.topics:
        rows: list[OffsetCommitResponsePartition] = []
        for row in topic.partitions:
            metadata = row.committed_metadata or ""
            if _is_too_long(metadata, metadata_max):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                rows.append(OffsetCommitResponsePartition(row.partition_index, code))
                continue
            check(topic.name, topic.topic_id, row.partition_index)
            rows.append(OffsetCommitResponsePartition(row.partition_index, 0))
            value = OffsetCommitValue(
                row.committed_offset, row.committed_leader_epoch, metadata, now_ms, expires_ms, topic.topic_id
            )
            records.append(_record(request.group_id, topic.name, row.partition_index, value))
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, rows))
    shard.commit(records)
    return OffsetCommitResponse(0, topics)


def _check_fits_batch(
    shard: GroupShard, request: OffsetCommitRequest | TxnOffsetCommitRequest, metadata_max: int
) -> None:
    """Raise KafkaError, in a short time, where the offsets of a huge request do not fit into a batch."""
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic] = request.topics
    if len(topics) + sum([len(topic.partitions) for topic in topics]) <= SIZE_CHECK_MIN:
        return
    size = 0
    for topic in topics:
        stored = [not _is_too_long(row.committed_metadata or "", metadata_max) for row in topic.partitions]
        size += sum(stored) * (RECORD_BYTES_MIN + len(request.group_id) + len(topic.name))
    shard.writer.check_batch_size(size)


def _record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> CoordinatorRecord:
    version = VALUE_VERSION if value.expire_timestamp == NO_EXPIRY else VALUE_VERSION_WITH_EXPIRY
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), value, version)


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that deletes an offset, committed and pending."""
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), None)


def group_offset_tombstones(shard: GroupShard, group_id: str) -> list[CoordinatorRecord]:
    """The records that delete all offsets of a group, committed and pending (DeleteGroups)."""
    return [tombstone(group_id, *at) for at in partitions_with_offsets(shard, group_id)]


def partitions_with_offsets(shard: GroupShard, group_id: str) -> Collection[tuple[str, int]]:
    """Topic and partition of all offsets of a group, committed and pending."""
    store = shard.offsets
    partitions = {
        (topic, partition): None for topic, offsets in store.topics(group_id).items() for partition in offsets
    }
    return partitions | dict.fromkeys(store.pending_partitions(group_id))


def has_many_offsets(shard: GroupShard, group_id: str, limit: int) -> bool:
    store = shard.offsets
    committed = sum(map(len, store.topics(group_id).values()))
    return committed + len(store.pending_partitions(group_id)) > limit


def _is_too_long(metadata: str, limit: int) -> bool:
    """Kafka compares ``offset.metadata.max.bytes`` with Java's length of a string, in UTF-16 code units."""
    if len(metadata) * 2 <= limit:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


def _check_commit(shard: GroupShard, request: OffsetCommitRequest, client: Client) -> CheckPartition:
    group = shard.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return allow_any_partition  # a commit of a non-member creates the group
        if client.api_version >= GROUP_ID_NOT_FOUND_VERSION:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    check = group.check_offset_commit(
        request.member_id,
        request.group_instance_id,
        generation,
        transactional=False,
        api_version=client.api_version,
    )
    if isinstance(group, ClassicGroup):
        on_offset_commit(shard, group, request.member_id)
    return check


def commit_transactional_offsets(
    shard: GroupShard, request: TxnOffsetCommitRequest, client: Client
) -> TxnOffsetCommitResponse:
    """Store offsets that become valid when the producer's transaction commits. Raises KafkaError for the whole request.

    The caller has verified that the offsets partition is part of the transaction.
    """
    check = _check_transactional_commit(shard, request, client)
    now_ms = shard.context.now_ms()
    metadata_max = shard.context.settings().offset_metadata_max_bytes
    records: list[CoordinatorRecord] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    _check_fits_batch(shard, request, metadata_max)
    for topic in request.topics:
        rows: list[TxnOffsetCommitResponsePartition] = []
        for row in topic.partitions:
            metadata = row.committed_metadata or ""
            if _is_too_long(metadata, metadata_max):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                rows.append(TxnOffsetCommitResponsePartition(row.partition_index, code))
                continue
            with _errors_of(client.api_version, ErrorCode.STALE_MEMBER_EPOCH):
                check(topic.name, topic.topic_id, row.partition_index)
            rows.append(TxnOffsetCommitResponsePartition(row.partition_index, 0))
            value = OffsetCommitValue(
                row.committed_offset, row.committed_leader_epoch, metadata, now_ms, topic_id=topic.topic_id
            )
            records.append(_record(request.group_id, topic.name, row.partition_index, value))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, rows))
    shard.commit(records, request.producer_id, request.producer_epoch)
    return TxnOffsetCommitResponse(0, topics)


def _check_transactional_commit(
    shard: GroupShard, request: TxnOffsetCommitRequest, client: Client
) -> CheckPartition:
    group = shard.groups.get(request.group_id)
    if group is None:
        if request.generation_id_or_member_epoch < 0:
            return allow_any_partition
        with _errors_of(client.api_version, ErrorCode.GROUP_ID_NOT_FOUND):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    with _errors_of(client.api_version, ErrorCode.STALE_MEMBER_EPOCH):
        return group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=True,
            api_version=client.api_version,
        )


@contextmanager
def _errors_of(api_version: int, newer: ErrorCode) -> Iterator[None]:
    """Replace an error that TxnOffsetCommit has only from version 6 on (KIP-1319). A share group's GROUP_ID_NOT_FOUND
    is none of these (``OffsetMetadataManager.validateTransactionalOffsetCommit``).
    """
    try:
        yield
    except KafkaError as error:
        if error.code is newer and api_version < TXN_OFFSET_COMMIT_TOPIC_ID_VERSION:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from error
        raise


def fetch_offsets(
    shard: GroupShard, request: OffsetFetchRequestGroup, *, require_stable: bool
) -> Steps[OffsetFetchResponseGroup]:
    """A group's committed offsets, -1 for partitions without one; all of them if the topics of ``request`` are null.

    Topics have names. Where one also has an id, an offset that was committed for an earlier topic of that name counts
    as none. ``require_stable``: UNSTABLE_OFFSET_COMMIT for offsets with a pending one. Each step reads one offset as it
    is then. Raises KafkaError.
    """
    group_id = request.group_id
    exists = _check_fetch(shard, request)
    topics: list[OffsetFetchResponseTopics] = []
    if request.topics is None:
        for name, offsets in list(shard.offsets.topics(group_id).items()) if exists else ():
            rows = []
            for partition in list(offsets):
                stored = offsets.get(partition)
                if stored is not None:  # not removed since the last step
                    row = _fetched(shard, group_id, name, partition, stored, require_stable=require_stable)
                    rows.append(row)
                yield
            if rows:
                topics.append(OffsetFetchResponseTopics(name, ZERO_UUID, rows))
        return OffsetFetchResponseGroup(group_id, topics)
    for topic in request.topics:
        of_topic: Mapping[int, OffsetTuple] = {}
        if exists:
            of_topic = shard.offsets.committed.of_topic(group_id, topic.name)
        rows = []
        for partition in topic.partition_indexes:
            stored, asked_id = of_topic.get(partition), topic.topic_id
            row = _fetched(
                shard, group_id, topic.name, partition, stored, asked_id, require_stable=require_stable
            )
            rows.append(row)
            yield
        topics.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, rows))
    return OffsetFetchResponseGroup(group_id, topics)


def _check_fetch(shard: GroupShard, request: OffsetFetchRequestGroup) -> bool:
    """Check the member. Returns whether the group exists."""
    group = shard.groups.get(request.group_id)
    if group is None:
        return False
    try:
        group.check_offset_fetch(request.member_id, request.member_epoch)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    return True


def _is_of_other_topic(committed_id: Uuid, requested_id: Uuid) -> bool:
    return committed_id != requested_id and ZERO_UUID not in (committed_id, requested_id)


def _fetched(
    shard: GroupShard,
    group_id: str,
    topic: str,
    partition: int,
    stored: OffsetTuple | None,
    requested_id: Uuid = ZERO_UUID,
    *,
    require_stable: bool,
) -> OffsetFetchResponsePartitions:
    if require_stable and shard.offsets.has_pending(group_id, topic, partition):
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return OffsetFetchResponsePartitions(partition, NO_OFFSET, NO_LEADER_EPOCH, "", code)
    if stored is not None:
        offset, leader_epoch, metadata, _, _, topic_id, _ = stored
        if not _is_of_other_topic(topic_id, requested_id):
            return OffsetFetchResponsePartitions(partition, offset, leader_epoch, metadata, 0)
    return OffsetFetchResponsePartitions(partition, NO_OFFSET, NO_LEADER_EPOCH, "", 0)


def delete_offsets(shard: GroupShard, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete offsets of topics to which no member is subscribed. Raises KafkaError for the whole request."""
    group = shard.group(request.group_id)
    group.check_offset_delete()
    store = shard.offsets
    records: list[CoordinatorRecord] = []
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        name = topic.name
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(name) else ErrorCode.NONE
        rows: list[OffsetDeleteResponsePartition] = []
        for row in topic.partitions:
            at = (request.group_id, name, row.partition_index)
            rows.append(OffsetDeleteResponsePartition(row.partition_index, code))
            if not code and (store.committed.get(*at) is not None or store.has_pending(*at)):
                records.append(tombstone(*at))
        topics.append(OffsetDeleteResponseTopic(name, rows))
    shard.commit(records)
    return OffsetDeleteResponse(0, 0, topics)
