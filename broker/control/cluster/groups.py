"""Operations on a Kafka cluster: groups and transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from oncelog.broker.client.errors import to_error_code
from oncelog.broker.client.routes import TRANSACTION, BrokerWithId, CoordinatorOf
from oncelog.broker.control import conversions
from oncelog.broker.control.cluster.calls import ClusterCalls
from oncelog.broker.control.cluster.topics import (
    EARLIEST,
    LATEST,
    RETRY,
    asked,
    offset,
    partitions_of,
)
from oncelog.broker.control.names import check_word, not_found
from oncelog.broker.control.records import ISOLATION_LEVELS
from oncelog.broker.control.share_types import no_committed_offsets
from oncelog.broker.control.types import (
    GroupInfo,
    IsolationLevel,
    Member,
    Offsets,
    TransactionInfo,
)
from oncelog.broker.control.wanted import wanted_group, wanted_transaction
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

OFFSETS_VERSION = 9
"""The last version of OffsetFetch and OffsetCommit that names topics."""


async def _all_brokers(client: ClusterCalls) -> list[BrokerWithId]:
    return [BrokerWithId(row.node_id) for row in (await client.refresh_metadata([])).brokers]


# -- groups


async def listed_groups(client: ClusterCalls) -> dict[str, ListedGroup]:
    """Return all groups of all brokers."""
    found = {}
    for broker in await _all_brokers(client):
        response = await client.call(ListGroupsRequest(), broker, retry=RETRY)
        conversions.check(response.error_code, "ListGroups")
        found.update({row.group_id: row for row in response.groups})
    return found


async def _listed(client: ClusterCalls) -> dict[str, ListedGroup]:
    found = await listed_groups(client)
    return {group_id: row for group_id, row in found.items() if row.group_type.lower() != "share"}


async def groups(client: ClusterCalls) -> list[str]:
    """Return the ids of all groups but share groups, sorted."""
    return sorted(await _listed(client))


async def group(
    client: ClusterCalls, *, group_id: str, isolation: IsolationLevel = "read_uncommitted"
) -> GroupInfo:
    """Return a group. Clients do not see offsets of open transactions, nor the generation of a classic group."""
    level = int(check_word("isolation", isolation, ISOLATION_LEVELS) == "read_committed")
    listed = await _listed(client)
    if group_id not in listed:
        raise not_found("group", group_id, listed)
    is_consumer = listed[group_id].group_type.lower() == "consumer"
    described = await (_consumer_group if is_consumer else _classic_group)(client, group_id)
    committed = await _committed(client, group_id)
    members: tuple[Member, ...] = described["members"]
    subscribed = {topic for member in members for topic in (*member.subscription, *member.assignment)}

    async def bounds(name: str, partition: int) -> tuple[int, int]:
        start = await offset(client, name, partition, EARLIEST, 0)
        return start, await offset(client, name, partition, LATEST, level)

    return GroupInfo(
        group_id=group_id,
        type="consumer" if is_consumer else "classic",
        protocol_type=listed[group_id].protocol_type,
        committed=committed,
        pending={},
        lag=await conversions.lag_of(committed, subscribed, partial(partitions_of, client), bounds),
        **described,
    )


async def _consumer_group(client: ClusterCalls, group_id: str) -> dict[str, Any]:
    request = ConsumerGroupDescribeRequest([group_id])
    [found] = (await client.call(request, CoordinatorOf(group_id), retry=RETRY)).groups
    conversions.check(found.error_code, found.error_message)
    members = tuple(map(conversions.consumer_member, found.members))
    return {
        "state": found.group_state,
        "protocol": found.assignor_name or None,
        "epoch": found.group_epoch,
        "members": members,
    }


async def _classic_group(client: ClusterCalls, group_id: str) -> dict[str, Any]:
    [found] = (
        await client.call(DescribeGroupsRequest([group_id]), CoordinatorOf(group_id), retry=RETRY)
    ).groups
    conversions.check(found.error_code, group_id)
    members = tuple(
        Member(
            member_id=row.member_id,
            client_id=row.client_id,
            host=row.client_host,
            instance_id=row.group_instance_id,
            subscription=conversions.classic_subscription(row.member_metadata),
            assignment=conversions.classic_assignment(row.member_assignment),
        )
        for row in found.members
    )
    return {
        "state": found.group_state,
        "protocol": found.protocol_data or None,
        "epoch": -1,
        "members": members,
    }


async def _committed(client: ClusterCalls, group_id: str) -> Offsets:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])
    response = await client.call(request, CoordinatorOf(group_id), version=OFFSETS_VERSION, retry=RETRY)
    [found] = response.groups
    conversions.check(found.error_code, group_id)
    return {
        row.name: {
            one.partition_index: one.committed_offset for one in row.partitions if one.committed_offset >= 0
        }
        for row in sorted(found.topics, key=lambda one: one.name)
    }


async def commit_offsets(client: ClusterCalls, *, group_id: str, offsets: Offsets) -> None:
    """Commit offsets for a group that has no members. Raises KafkaError, GROUP_ID_NOT_FOUND of a share group."""
    request = conversions.offset_commit(group_id, offsets)
    response = await client.call(request, CoordinatorOf(group_id), version=OFFSETS_VERSION, retry=RETRY)
    for topic in response.topics:
        for row in topic.partitions:
            message = f"group {group_id}, {topic.name}-{row.partition_index}"
            if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND and await _is_share_group(client, group_id):
                message = no_committed_offsets(group_id)
            conversions.check(row.error_code, message)


async def _is_share_group(client: ClusterCalls, group_id: str) -> bool:
    listed = await listed_groups(client)
    return group_id in listed and listed[group_id].group_type.lower() == "share"


async def delete_groups(client: ClusterCalls, group_ids: Iterable[str]) -> list[str]:
    """Delete groups; return those that have members, and so stay. Raises KafkaError for another reason, after the last
    group.
    """
    stay, failures = [], []
    for group_id in group_ids:
        response = await client.call(DeleteGroupsRequest([group_id]), CoordinatorOf(group_id), retry=RETRY)
        code = to_error_code(response.results[0].error_code)
        if code is ErrorCode.NON_EMPTY_GROUP:
            stay.append(group_id)
        elif code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            failures.append(KafkaError(code, f"group {group_id} cannot be deleted"))
    if failures:
        raise failures[0]
    return stay


# -- transactions


async def transactions(client: ClusterCalls) -> list[TransactionInfo]:
    """Return all transactional ids with their last transaction, by id."""
    ids: set[str] = set()
    for broker in await _all_brokers(client):
        response = await client.call(ListTransactionsRequest(), broker, retry=RETRY)
        conversions.check(response.error_code, "ListTransactions")
        ids.update(row.transactional_id for row in response.transaction_states)
    return [await described_transaction(client, one) for one in sorted(ids)]


async def transaction(client: ClusterCalls, *, transactional_id: str) -> TransactionInfo:
    """Return a transactional id. Raises NotFoundError."""
    found = {one.transactional_id: one for one in await transactions(client)}
    if transactional_id not in found:
        raise not_found("transactional id", transactional_id, found)
    return found[transactional_id]


async def described_transaction(client: ClusterCalls, transactional_id: str) -> TransactionInfo:
    """Return a transactional id. Raises KafkaError, TRANSACTIONAL_ID_NOT_FOUND for one that there is not."""
    route = CoordinatorOf(transactional_id, TRANSACTION)
    response = await client.call(DescribeTransactionsRequest([transactional_id]), route, retry=RETRY)
    [found] = response.transaction_states
    conversions.check(found.error_code, transactional_id)
    return conversions.transaction_info(found)


# -- waits


async def wait_for_group(
    client: ClusterCalls,
    *,
    group_id: str,
    state: str | None = None,
    members: int | None = None,
    lag: int | None = None,
    committed: Offsets | None = None,
    isolation: IsolationLevel = "read_uncommitted",
    timeout: float = 10,
) -> GroupInfo:
    """Ask for the group until it is in the wanted state; return it. Raises WaitTimeoutError, InvalidArgumentError."""
    return await asked(
        lambda: group(client, group_id=group_id, isolation=isolation),
        wanted_group(group_id, state=state, members=members, lag=lag, committed=committed),
        timeout,
    )


async def wait_for_transaction(
    client: ClusterCalls, *, transactional_id: str, state: str, timeout: float = 10
) -> TransactionInfo:
    """Ask until the transaction is in this state; return it. Raises WaitTimeoutError, InvalidArgumentError."""
    return await asked(
        lambda: transaction(client, transactional_id=transactional_id),
        wanted_transaction(transactional_id, state),
        timeout,
    )
