"""Fetch (API key 1): returns records from the requested offsets on. It can wait for them, and has fetch sessions.

Version 7 brings sessions (KIP-227), 12 flexible fields and the last fetched epoch (KIP-595), 13 topic ids,
16 node endpoints. A request that is not satisfied at once becomes a delayed fetch, which waits for its partitions
until `min_bytes` are there, the last stable offset moves, an error comes up, or its time is over
(Kafka: ``ReplicaManager.fetchMessages``, ``DelayedFetch``).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from oncelog.broker.fetch.delayed import DelayedFetch
from oncelog.broker.fetch.fetch import Fetch
from oncelog.broker.fetch.large import PARTITIONS_AT_ONCE, LargeFetch
from oncelog.broker.fetch.sessions import FetchItem, FetchKey
from oncelog.broker.requests.authorization import CLUSTER_ACTION, READ, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.broker.requests.request import Pending
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.fetch import FETCH_TOPIC_ID_VERSION, FetchRequest, FetchResponse
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.replication.replication import Replication
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.security.usage import Usage


def handle(
    services: Services, request: FetchRequest, context: RequestContext
) -> FetchResponse | Pending[FetchResponse | None]:
    version = context.api_version
    if services.replication is not None:
        # Imported here: one node has no use for it.
        from oncelog.broker.fetch.replicated_fetch import ReplicatedFetch, replica_of

        replica_id, broker_epoch = replica_of(request, version)
        if replica_id >= 0:
            return _fetch_as_follower(
                services, services.replication, request, context, replica_id, broker_epoch
            )
    by_id = version >= FETCH_TOPIC_ID_VERSION
    items = _items(services.cluster, request, by_id)
    try:
        opened = services.fetch_sessions.open(request, items, uses_topic_ids=by_id)
    except KafkaError as error:
        return FetchResponse(0, error.code, 0)
    cluster, sessions, config = services.cluster, services.fetch_sessions, services.config.current
    if services.replication is None:
        fetch = Fetch(cluster, sessions, config, request, version, opened)
    else:
        listener_name = context.connection.listener_name
        fetch = ReplicatedFetch(cluster, sessions, config, request, version, opened, listener_name)
    if context.usage is not None and not fetch.is_replica:
        _limit(fetch, context, context.usage)
    authorization = services.authorization
    if authorization.authorizer is not None:
        if not fetch.is_replica:
            fetch.may_read = cache(authorization.predicate(context, READ, TOPIC_RESOURCE))
        elif not authorization.allows(context, CLUSTER_ACTION, *THE_CLUSTER):
            fetch.may_read = _nothing
    if len(opened.items) > PARTITIONS_AT_ONCE:
        context.has_large_response = True
        return Pending(LargeFetch(fetch, request.max_wait_ms).wait())
    if fetch.read() or request.max_wait_ms <= 0 or not opened.items:
        return fetch.respond()
    return DelayedFetch(fetch, request.max_wait_ms, services.delayed_fetches)


def _fetch_as_follower(
    services: Services,
    replication: Replication,
    request: FetchRequest,
    context: RequestContext,
    replica_id: int,
    broker_epoch: int,
) -> FetchResponse | Pending[FetchResponse | None]:
    if not services.authorization.allows(context, CLUSTER_ACTION, *THE_CLUSTER):
        return FetchResponse(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)
    fetch = replication.sessions.fetch(request, replica_id, broker_epoch)
    return fetch if isinstance(fetch, FetchResponse) else Pending(fetch.wait())


def _limit(fetch: Fetch, context: RequestContext, usage: Usage) -> None:
    """Have the quotas of the client rule the response."""
    fetch.max_bytes = min(fetch.max_bytes, usage.quotas.fetch_bytes_max(usage))
    fetch.min_bytes = min(fetch.min_bytes, fetch.max_bytes)

    def throttle_ms(response: FetchResponse) -> int:
        out, ranges = bytearray(), []  # type: ignore[var-annotated]
        context.api.encode_response(context.api_version, context.correlation_id, response, out, ranges)
        header = 4 + int(context.api.flexible[context.api_version])  # the size stands for what Kafka adds
        size = len(out) - header + sum(file_range.size for _, file_range in ranges)
        return usage.quotas.throttle_fetch(usage, size)

    fetch.throttle_ms = throttle_ms


def _nothing(topic: str) -> bool:
    return False


def _items(cluster: Cluster, request: FetchRequest, by_id: bool) -> dict[FetchKey, FetchItem]:
    """Return the requested partitions by key. If the request has a partition twice, the last row counts (Kafka too)."""
    items: dict[FetchKey, FetchItem] = {}
    for topic in request.topics:
        name, topic_id = topic.topic, ZERO_UUID
        if by_id:
            topic_id = topic.topic_id
            known = cluster.topic_by_id(topic_id)
            name = known.name if known is not None else ""
        for partition in topic.partitions:
            items[(topic_id if by_id else name, partition.partition)] = FetchItem(name, topic_id, partition)
    return items
