"""Operations on a Kafka cluster: share groups, and their dead-letter queues. Clients see no records in flight."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.client.routes import CoordinatorOf
from oncelog.broker.config.group_config import DLQ_TOPIC_NAME
from oncelog.broker.control.cluster.calls import ClusterCalls
from oncelog.broker.control.cluster.groups import listed_groups
from oncelog.broker.control.cluster.topics import RETRY, asked, records, topics
from oncelog.broker.control.conversions import check, config_change
from oncelog.broker.control.errors import InvalidArgumentError, UnsupportedError
from oncelog.broker.control.names import not_found
from oncelog.broker.control.share_types import (
    DeadLetter,
    ShareGroupInfo,
    SharePartitionInfo,
    dead_letters_of,
    no_dead_letter_queue,
    no_queue_topic,
    share_group_info,
)
from oncelog.broker.control.wanted import wanted_dead_letters, wanted_share_group
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from oncelog.wire.messages.share_group_describe import ShareGroupDescribeRequest

GROUP_RESOURCE = 32
SHARE = "share"


async def share_groups(client: ClusterCalls) -> list[str]:
    """Return the ids of all share groups, sorted."""
    listed = await listed_groups(client)
    return sorted(group_id for group_id, row in listed.items() if row.group_type.lower() == SHARE)


async def share_group(client: ClusterCalls, *, group_id: str) -> ShareGroupInfo:
    """Return a share group, without the records in flight."""
    known = await share_groups(client)
    if group_id not in known:
        raise not_found("share group", group_id, known)
    coordinator = CoordinatorOf(group_id)
    described = await client.call(ShareGroupDescribeRequest([group_id]), coordinator, retry=RETRY)
    [found] = described.groups
    check(found.error_code, found.error_message or group_id)
    asked_for = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, None)])
    [offsets] = (await client.call(asked_for, coordinator, retry=RETRY)).groups
    check(offsets.error_code, offsets.error_message or group_id)
    partitions = {
        topic.topic_name: {
            row.partition_index: SharePartitionInfo(
                row.start_offset if row.start_offset >= 0 else None,
                in_flight=None,
                lag=row.lag if row.lag >= 0 else None,
            )
            for row in sorted(topic.partitions, key=lambda one: one.partition_index)
            if not row.error_code
        }
        for topic in sorted(offsets.topics, key=lambda one: one.topic_name)
    }
    return share_group_info(found, partitions)


async def wait_for_share_group(
    client: ClusterCalls,
    *,
    group_id: str,
    state: str | None = None,
    members: int | None = None,
    acquired: int | None = None,
    lag: int | None = None,
    timeout: float = 10,
) -> ShareGroupInfo:
    """Ask for the group until it is in the wanted state; return it. Raises WaitTimeoutError,
    InvalidArgumentError, UnsupportedError for ``acquired``.
    """
    if acquired is not None:
        raise UnsupportedError("a Kafka cluster does not tell which records of a share group are acquired")

    return await asked(
        lambda: share_group(client, group_id=group_id),
        wanted_share_group(
            group_id,
            lambda found: f"it is {found.state} with {len(found.members)} members; lag {found.total_lag}",
            state=state,
            members=members,
            lag=lag,
        ),
        timeout,
    )


async def configure_group(client: ClusterCalls, *, group_id: str, config: Mapping[str, object]) -> None:
    """Set Kafka's configuration keys of a group. Raises InvalidArgumentError."""
    request = config_change(GROUP_RESOURCE, group_id, config)
    [row] = (await client.call(request, retry=RETRY)).responses
    if row.error_code:
        raise InvalidArgumentError(f"group {group_id}: {row.error_message}")


async def dead_letters(client: ClusterCalls, *, group_id: str) -> list[DeadLetter]:
    """Return a share group's records in its dead-letter queue. Raises NotFoundError."""
    resource = DescribeConfigsResource(GROUP_RESOURCE, group_id, [DLQ_TOPIC_NAME])
    [result] = (await client.call(DescribeConfigsRequest([resource]), retry=RETRY)).results
    check(result.error_code, result.error_message)
    queue = next((row.value for row in result.configs if row.value), None)
    if queue is None:
        raise no_dead_letter_queue(group_id)
    if queue not in await topics(client):
        raise no_queue_topic(group_id, queue)
    return dead_letters_of(await records(client, topic=queue), group_id)


async def wait_for_dead_letters(
    client: ClusterCalls, *, group_id: str, count: int = 1, timeout: float = 10
) -> list[DeadLetter]:
    """Read until a share group has so many records in its dead-letter queue; return them all. Raises
    WaitTimeoutError.
    """
    return await asked(
        lambda: dead_letters(client, group_id=group_id),
        wanted_dead_letters(group_id, count),
        timeout,
    )
