"""The operations of a broker (`oncelog.broker.control.operations`) that a client of any Kafka cluster can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from oncelog.broker.control.cluster import groups, share_groups, topics
from oncelog.broker.control.cluster.calls import ClusterCalls
from oncelog.broker.control.errors import BrokerFailedError
from oncelog.broker.control.types import BrokerInfo
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest


async def info(client: ClusterCalls) -> BrokerInfo:
    """Return what identifies the cluster. Raises BrokerFailedError if it cannot be reached."""
    try:
        response = await client.call(DescribeClusterRequest())
    except KafkaError as error:
        raise BrokerFailedError(str(error)) from error
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in response.brokers)
    return BrokerInfo(servers, response.cluster_id, response.controller_id, 0, is_running=True)


OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "info": info,
    "topics": topics.topics,
    "topic": topics.topic,
    "create_topics": topics.create_topics,
    "create_topic": topics.create_topic,
    "delete_topics": topics.delete_topics,
    "delete_topic": topics.delete_topic,
    "delete_records": topics.delete_records,
    "records": topics.records,
    "wait_for_records": topics.wait_for_records,
    "produce": topics.produce,
    "groups": groups.groups,
    "group": groups.group,
    "commit_offsets": groups.commit_offsets,
    "wait_for_group": groups.wait_for_group,
    "configure_group": share_groups.configure_group,
    "share_groups": share_groups.share_groups,
    "share_group": share_groups.share_group,
    "wait_for_share_group": share_groups.wait_for_share_group,
    "dead_letters": share_groups.dead_letters,
    "wait_for_dead_letters": share_groups.wait_for_dead_letters,
    "transactions": groups.transactions,
    "transaction": groups.transaction,
    "wait_for_transaction": groups.wait_for_transaction,
}
"""The operations by name. `delete_topics` is the carrier's own."""
