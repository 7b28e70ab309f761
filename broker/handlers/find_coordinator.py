"""FindCoordinator (API key 10): finds the node that coordinates a group or a transactional id.

- Groups: the leader of the group's partition of ``__consumer_offsets``. The first request creates that topic. Kafka
  returns COORDINATOR_NOT_AVAILABLE until the topic exists; here it exists at once.
- Transactional ids: the same with ``__transaction_state``.
- Share partitions (since version 6, for brokers only): the same with ``__share_group_state``. A key is
  ``group:topic id:partition``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.requests.authorization import (
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from oncelog.wire.primitives import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.cluster.cluster import NodeAddress
    from oncelog.broker.coordinators.runtime import CoordinatorRuntime
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext

GROUP, TRANSACTION, SHARE = 0, 1, 2
RESOURCE = {GROUP: GROUP_RESOURCE, TRANSACTION: TRANSACTIONAL_ID_RESOURCE}
"""The resource that a client must be allowed to describe."""
SHARE_VERSION = 6
BATCH_VERSION = 4
NO_NODE = (-1, "", -1)
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def handle(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Pending[FindCoordinatorResponse]:
    if context.api_version >= BATCH_VERSION:
        response = FindCoordinatorResponse()

        def rows() -> Iterator[None]:
            for key in request.coordinator_keys:
                response.coordinators.append(_result(services, request.key_type, key, context))
                yield

        return chunked(rows(), len(request.coordinator_keys), response)
    node = _coordinator(services, request.key_type, request.key, context)
    return FindCoordinatorResponse(0, 0, "NONE", *node[:3])


def share_partition_key(text: str) -> str:
    """Return the key of a share partition as coordinators write it (Kafka: ``SharePartitionKey``).

    It is read from its end, so that the group id may have colons. Raises KafkaError (INVALID_REQUEST).
    """
    group_id, _, rest = _without_empty_end(text).rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    try:
        if not group_id.strip(_JAVA_BLANKS):
            raise ValueError("no group id")
        return f"{group_id}:{uuid_to_text(uuid_from_text(topic_id))}:{_java_int(rest)}"
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST) from error


def _without_empty_end(text: str) -> str:
    """Java's ``String.split`` leaves out empty texts at the end."""
    return text.rstrip(":")


def _java_int(text: str) -> int:
    """``Integer.parseInt``. Raises ValueError."""
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -(2**31) <= int(text) < 2**31:
        raise ValueError(f"{text!r} is no int")
    return int(text)


def _result(services: Services, key_type: int, key: str, context: RequestContext) -> Coordinator:
    try:
        node = _coordinator(services, key_type, key, context)
    except KafkaError as error:
        return Coordinator(key, *NO_NODE, error.code, error.message or "")
    return Coordinator(key, *node[:3])


def _coordinator(services: Services, key_type: int, key: str, context: RequestContext) -> NodeAddress:
    """Return the node. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION, COORDINATOR_NOT_AVAILABLE, and for
    who may not describe the group or id."""
    if key_type in RESOURCE:
        services.authorization.require(context, DESCRIBE, RESOURCE[key_type], key)
    if key_type not in (GROUP, TRANSACTION, SHARE) or (
        key_type == SHARE and context.api_version < SHARE_VERSION
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator has the type {key_type}")
    if key_type == SHARE:
        services.authorization.require_cluster(context, CLUSTER_ACTION)
        key = share_partition_key(key)
    runtime: CoordinatorRuntime[Any]
    runtime = (services.groups, services.transactions, services.share_coordinator)[key_type].runtime
    topic = services.auto_topics.ensure(runtime.topic)
    partition = runtime.partition_for(key)
    if partition < len(topic.partitions):
        leader = topic.partitions[partition].leader
        for node in services.cluster.nodes(context.connection.listener_name):
            if node.node_id == leader:
                return node
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
