"""The views of a broker: its topics, groups, transactions and producers, as their logs and coordinators have them.

Each function reads in one step, so that what it returns belongs together, unless it says otherwise. It waits only for
partitions and shards that the start has not loaded yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.broker.control import conversions
from oncelog.broker.control.errors import NotFoundError
from oncelog.broker.control.names import check_word, not_found
from oncelog.broker.control.partition_states import partition_states
from oncelog.broker.control.records import ISOLATION_LEVELS, RecordReader, end_of, partitions_of, topic_of
from oncelog.broker.control.types import (
    GroupInfo,
    IsolationLevel,
    Member,
    Offsets,
    PartitionInfo,
    PartitionState,
    ProducerInfo,
    Record,
    TopicInfo,
    TransactionInfo,
)
from oncelog.broker.metadata.configs import topic_rows
from oncelog.broker.metadata.image import TOPIC
from oncelog.wire.schema import uuid_to_text
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.types import Assignment
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.node.node import Node
    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.member import ClassicGroupMember
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup
    from oncelog.coordinator.groups.group import Group as GroupState
    from oncelog.coordinator.groups.shard import GroupShard

# -- topics


async def topics(node: Node, *, internal: bool = False) -> list[str]:
    """Return the names of all topics, sorted; those that Kafka itself uses only with ``internal``."""
    return sorted(name for name in node.metadata.image.topics if internal or name not in INTERNAL_TOPICS)


async def partitions(node: Node, *, topic: str) -> list[PartitionState]:
    """Return the partitions of a topic and their replicas. Raises NotFoundError."""
    return partition_states(node.metadata.image, topic, {node.config.static.node_id: node})


async def topic(node: Node, *, name: str) -> TopicInfo:
    """Return a topic. Raises NotFoundError."""
    await node.logs.recovered()
    image = node.metadata.image
    found = topic_of(node, name)
    partitions = []
    for number in partitions_of(node, name, None):
        leader = node.cluster.leader_partition(name, number)
        log = leader.log
        log.check_alive()
        partitions.append(
            PartitionInfo(
                number,
                log.log_start_offset,
                log.last_stable_offset,
                log.high_watermark,
                log.log_end_offset,
                leader.leader_epoch,
            )
        )
    rows = topic_rows(image, node.config, name, None, documentation=False)
    return TopicInfo(
        name=name,
        topic_id=uuid_to_text(found.topic_id),
        partitions=tuple(partitions),
        config={row.name: row.value for row in rows},
        overrides=dict(image.configs.get((TOPIC, name), {})),
        is_internal=name in INTERNAL_TOPICS,
    )


async def records(
    node: Node,
    *,
    topic: str,
    isolation: IsolationLevel = "read_uncommitted",
    partition: int | None = None,
    from_offset: int = 0,
    limit: int | None = None,
) -> list[Record]:
    """Return a topic's records by partition and offset. Raises NotFoundError, InvalidArgumentError."""
    reader = RecordReader(
        topic, isolation=isolation, partition=partition, from_offset=from_offset, limit=limit
    )
    return await reader.read(node)


# -- groups


async def groups(node: Node) -> list[str]:
    """Return the ids of all groups but share groups, sorted."""
    return sorted(await _group_shards(node))


async def group(node: Node, *, group_id: str, isolation: IsolationLevel = "read_uncommitted") -> GroupInfo:
    """Return a group; its lag is counted as a consumer of that isolation level does. Raises NotFoundError."""
    check_word("isolation", isolation, ISOLATION_LEVELS)
    shards = await _group_shards(node)
    if group_id not in shards:
        if group_id in await share_group_shards(node):
            raise NotFoundError(f"{group_id} is a share group: kafka.share_group({group_id!r}) shows it")
        raise not_found("group", group_id, shards)
    return await _group(node, shards[group_id], shards[group_id].groups[group_id], isolation)


async def share_group_shards(node: Node) -> dict[str, GroupShard]:
    """Return the shard of each share group."""
    return {group_id: shard for (group_id, is_share), shard in (await _shards(node)).items() if is_share}


async def _group_shards(node: Node) -> dict[str, GroupShard]:
    """Return the shard of each other group."""
    return {group_id: shard for (group_id, is_share), shard in (await _shards(node)).items() if not is_share}


async def _shards(node: Node) -> dict[tuple[str, bool], GroupShard]:
    """Return the shard of each group, by its id and whether it is a share group."""
    from oncelog.coordinator.groups.group import SHARE

    await node.logs.recovered()
    await node.groups.runtime.wait_loaded()
    return {
        (group_id, group.group_type == SHARE): shard
        for shard in node.groups.runtime.shards()
        for group_id, group in shard.groups.items()
    }


async def _group(node: Node, shard: GroupShard, found: GroupState, isolation: IsolationLevel) -> GroupInfo:
    """Return the view of a group in its shard. Waits for nothing."""
    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.consumer.group import ConsumerGroup

    committed: Offsets = {
        name: {partition: stored[0] for partition, stored in sorted(partitions.items())}
        for name, partitions in sorted(shard.offsets.topics(found.group_id).items())
    }
    is_consumer = isinstance(found, ConsumerGroup)
    if isinstance(found, ConsumerGroup):
        protocol, epoch, members, subscribed = _consumer_group(shard, found)
    else:
        assert isinstance(found, ClassicGroup), found
        protocol, epoch, members, subscribed = _classic_group(found)
    for member in members:
        subscribed |= member.assignment.keys()

    async def partitions(name: str) -> Sequence[int]:
        return partitions_of(node, name, None)

    async def bounds(name: str, partition: int) -> tuple[int, int]:
        log = node.cluster.leader_partition(name, partition).log
        return log.log_start_offset, end_of(log, isolation)

    return GroupInfo(
        group_id=found.group_id,
        type="consumer" if is_consumer else "classic",
        state=found.state_name,
        protocol_type=found.protocol_type,
        protocol=protocol,
        epoch=epoch,
        members=members,
        committed=committed,
        pending=_pending(shard, found.group_id),
        lag=await conversions.lag_of(committed, subscribed, partitions, bounds),
    )


def _classic_group(found: ClassicGroup) -> tuple[str | None, int, tuple[Member, ...], set[str]]:
    """Return its protocol, epoch, members and subscribed topics."""
    members = tuple(_classic_member(found, member) for member in found.members.values())
    subscribed = set(found.subscribed_topics() or ()).union(*(member.subscription for member in members))
    return found.protocol_name, found.generation_id, members, subscribed


def _classic_member(found: ClassicGroup, member: ClassicGroupMember) -> Member:
    subscription: tuple[str, ...] = ()
    assignment: Assignment = {}
    if found.uses_consumer_protocol():
        if member.protocols:
            subscription = conversions.classic_subscription(member.protocols[0].metadata)
        assignment = conversions.classic_assignment(member.assignment)
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        instance_id=member.group_instance_id,
        protocol="classic",
        epoch=found.generation_id,
        subscription=subscription,
        assignment=assignment,
    )


def _consumer_group(
    shard: GroupShard, found: ConsumerGroup
) -> tuple[str | None, int, tuple[Member, ...], set[str]]:
    """Return its assignor, epoch, members and subscribed topics."""
    from oncelog.coordinator.groups.consumer.describe import describe

    described = describe(shard, found.group_id).whole()
    members = tuple(map(conversions.consumer_member, described.members))
    return described.assignor_name or None, found.epoch, members, found.subscriptions.names()


def _pending(shard: GroupShard, group_id: str) -> Offsets:
    pending: Offsets = {}
    for offsets in shard.offsets.pending.values():
        for name, partitions in offsets.by_group.get(group_id, {}).items():
            pending.setdefault(name, {}).update(
                {partition: stored[0] for partition, stored in partitions.items()}
            )
    return pending


# -- transactions and producers


async def transactions(node: Node) -> list[TransactionInfo]:
    """Return all transactional ids with their last transaction, by id."""
    from oncelog.coordinator.transactions.admin import describe_transaction

    await node.logs.recovered()
    await node.transactions.runtime.wait_loaded()
    found = []
    for shard in node.transactions.runtime.shards():
        for transactional_id, state in shard.transactions.items():
            described = describe_transaction(shard, transactional_id)
            found.append(conversions.transaction_info(described, state.metadata.last_update_ms))
    return sorted(found, key=lambda one: one.transactional_id)


async def transaction(node: Node, *, transactional_id: str) -> TransactionInfo:
    """Return a transactional id. Raises NotFoundError."""
    found = {one.transactional_id: one for one in await transactions(node)}
    if transactional_id not in found:
        raise not_found("transactional id", transactional_id, found)
    return found[transactional_id]


async def producers(
    node: Node, *, topic: str | None = None, partition: int | None = None
) -> list[ProducerInfo]:
    """Return the producers that the partitions know, by topic, partition and producer id. Raises NotFoundError."""
    ids = {one.producer_id: one.transactional_id for one in await transactions(node)}
    names = await topics(node) if topic is None else [topic]
    return [
        row
        for name in names
        for number in partitions_of(node, name, partition)
        for row in producers_of(node.cluster.leader_partition(name, number).log, ids)
    ]


def producers_of(log: PartitionLog, transactional_ids: Mapping[int, str]) -> list[ProducerInfo]:
    """Return the producers that a partition knows, by producer id, whose transactional ids are given."""
    return [
        ProducerInfo(
            topic=log.topic,
            partition=log.partition,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            transaction_start_offset=entry.txn_first_offset if entry.txn_first_offset >= 0 else None,
            transactional_id=transactional_ids.get(entry.producer_id),
        )
        for entry in sorted(log.producers.producers.values(), key=lambda one: one.producer_id)
    ]
