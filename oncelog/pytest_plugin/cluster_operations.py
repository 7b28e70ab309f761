"""The operations of a broker (`oncelog.broker.control.operations`) that a client of any Kafka cluster can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.errors import to_error_code
from oncelog.broker.client.routes import Controller, LeaderOf, Retry
from oncelog.broker.control.errors import BrokerFailedError, InvalidArgumentError
from oncelog.broker.control.options import topic_options
from oncelog.broker.control.types import BrokerInfo
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.metadata import MetadataRequest

TIMEOUT_MS = 30_000
RETRY = Retry(timeout_s=TIMEOUT_MS / 1000)
POLL_S = 0.05
NAMES_IN_ROWS_MIN = 6
"""From this version on DeleteTopics names topics in rows."""


async def info(client: ClusterClient) -> BrokerInfo:
    """Return what identifies the cluster. Raises BrokerFailedError if it cannot be reached."""
    try:
        response = await client.call(DescribeClusterRequest())
    except KafkaError as error:
        raise BrokerFailedError(str(error)) from error
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in response.brokers)
    return BrokerInfo(servers, response.cluster_id, response.controller_id, 0, is_running=True)


async def create_topics(client: ClusterClient, *, topics: Mapping[str, object] | Iterable[str]) -> None:
    """Create topics, and wait until each partition has a leader. Raises InvalidArgumentError; none is created then."""
    wanted = topic_options(topics)
    rows = [
        CreatableTopic(
            name,
            topic.partitions,
            -1,
            configs=[CreatableTopicConfig(key, value) for key, value in topic.config.items()],
        )
        for name, topic in wanted.items()
    ]
    if not rows:
        return
    for validate_only in (True, False):
        request = CreateTopicsRequest(rows, TIMEOUT_MS, validate_only)
        response = await client.call(request, Controller(), retry=RETRY)
        for row in response.topics:
            code = to_error_code(row.error_code)
            if code == ErrorCode.TOPIC_ALREADY_EXISTS:
                raise InvalidArgumentError(
                    f"topic {row.name} exists in the cluster. A test's topics are created before it and deleted "
                    "after it, and no others are touched: delete it, or use another cluster. (Tests with the same "
                    "topics cannot run at the same time.)"
                )
            if code:
                raise InvalidArgumentError(f"topic {row.name}: {row.error_message or code.name}")
    for name, topic in wanted.items():
        for partition in range(topic.partitions):
            await client.call(MetadataRequest([]), LeaderOf(name, partition), retry=RETRY)


async def delete_topics(client: ClusterClient, *, names: list[str]) -> None:
    """Delete topics, and wait until the brokers do not know them any more."""
    connection = await client.connection(Controller())
    version = connection.version_for(DeleteTopicsRequest)
    request = DeleteTopicsRequest(timeout_ms=TIMEOUT_MS)
    if version >= NAMES_IN_ROWS_MIN:
        request.topics = [DeleteTopicState(name) for name in names]
    else:
        request.topic_names = names
    await client.call(request, Controller(), version=version, retry=RETRY)
    with real_time.move_on_after(RETRY.timeout_s):
        while any(not topic.error_code for topic in (await client.refresh_metadata(names)).topics):
            await real_time.sleep(POLL_S)


OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "info": info,
    "create_topics": create_topics,
    "delete_topics": delete_topics,
}
"""The operations by name. `delete_topics` is this host's own."""
