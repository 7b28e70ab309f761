"""Checks the rights of whole requests: those of the table, and those that depend on a request's data.

The dispatcher checks them before it calls a handler; a handler checks them itself (`ApiRow.handler_checks`) where
Kafka looks at something else first. A proxy checks all of them. Source: ``KafkaApis``, ``ControllerApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.table import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from oncelog.broker.requests.authorization import (
    ALTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CLUSTER_RESOURCE,
    DESCRIBE,
    GROUP_RESOURCE,
    IDEMPOTENT_WRITE,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    TWO_PHASE_COMMIT,
    WRITE,
)
from oncelog.wire.batch import HEADER_SIZE, LOW_ATTRIBUTES_AT, TRANSACTIONAL_BIT
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.handlers.table import ApiRow
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import RequestContext

    Check = Callable[[Authorization, RequestContext], None]

GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
"""Key types of FindCoordinator (Kafka: ``FindCoordinatorRequest.CoordinatorType``)."""

RESOURCE_TYPES = {
    TOPIC: TOPIC_RESOURCE,
    GROUP: GROUP_RESOURCE,
    TRANSACTIONAL_ID: TRANSACTIONAL_ID_RESOURCE,
    CLUSTER: CLUSTER_RESOURCE,
}
"""By the kind of a resource in the table."""
_NAME_FIELDS = {GROUP: "group_id", TRANSACTIONAL_ID: "transactional_id"}


def check_of(row: ApiRow) -> Check | None:
    """Return the check that the dispatcher makes before the handler; None if there is none."""
    if row.handler_checks or not (row.rights or row.name in BY_DATA_CHECKS):
        return None
    return check_rights


def check_rights(authorization: Authorization, context: RequestContext) -> None:
    """Check the rights that the whole request needs. Raises KafkaError for the first one that is missing."""
    row, request = context.api.row, context.request
    for operation, kind in row.rights:
        name = CLUSTER_NAME if kind == CLUSTER else getattr(request, _NAME_FIELDS[kind]) or ""
        authorization.require(context, operation, RESOURCE_TYPES[kind], name)
    by_data = BY_DATA_CHECKS.get(row.name)
    if by_data is not None:
        by_data(authorization, context)


def _produce(authorization: Authorization, context: RequestContext) -> None:
    if _has_transactional(context.request):
        authorization.require(
            context, WRITE, TRANSACTIONAL_ID_RESOURCE, context.request.transactional_id or ""
        )


def _has_transactional(request: Any) -> bool:
    return any(
        partition.records is not None
        and len(partition.records) >= HEADER_SIZE
        and partition.records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _find_coordinator(authorization: Authorization, context: RequestContext) -> None:
    request = context.request
    if request.key_type not in (GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE):
        authorization.require_cluster(context, CLUSTER_ACTION)
    elif context.api_version < 4:
        kind = GROUP_RESOURCE if request.key_type == GROUP_KEY_TYPE else TRANSACTIONAL_ID_RESOURCE
        authorization.require(context, DESCRIBE, kind, request.key)


def _offset_fetch(authorization: Authorization, context: RequestContext) -> None:
    if context.api_version < 8:
        authorization.require(context, DESCRIBE, GROUP_RESOURCE, context.request.group_id)


def _init_producer_id(authorization: Authorization, context: RequestContext) -> None:
    request = context.request
    if request.transactional_id is None:
        may_write = authorization.allows(
            context, IDEMPOTENT_WRITE, CLUSTER_RESOURCE, CLUSTER_NAME, quiet=True
        )
        if not may_write and not authorization.allows_for_any(context, WRITE, TOPIC_RESOURCE):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    for operation in (WRITE, TWO_PHASE_COMMIT) if getattr(request, "enable2_pc", False) else (WRITE,):
        authorization.require(context, operation, TRANSACTIONAL_ID_RESOURCE, request.transactional_id)


def _add_partitions_to_txn(authorization: Authorization, context: RequestContext) -> None:
    if context.api_version < 4:
        name = context.request.v3_and_below_transactional_id
        authorization.require(context, WRITE, TRANSACTIONAL_ID_RESOURCE, name)
    else:
        authorization.require_cluster(context, CLUSTER_ACTION)


def _write_txn_markers(authorization: Authorization, context: RequestContext) -> None:
    if not authorization.allows(context, ALTER, CLUSTER_RESOURCE, CLUSTER_NAME, quiet=True):
        authorization.require_cluster(context, CLUSTER_ACTION)


def _group_heartbeat(authorization: Authorization, context: RequestContext) -> None:
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE)
    if not all(map(may_describe, context.request.subscribed_topic_names or ())):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _only_brokers(authorization: Authorization, context: RequestContext) -> None:
    """Check a request that a proxy with rights of its own answers itself."""
    authorization.require_cluster(context, CLUSTER_ACTION)


BY_DATA_CHECKS: dict[str, Check] = {
    "produce": _produce,
    "find_coordinator": _find_coordinator,
    "offset_fetch": _offset_fetch,
    "init_producer_id": _init_producer_id,
    "add_partitions_to_txn": _add_partitions_to_txn,
    "write_txn_markers": _write_txn_markers,
    "create_delegation_token": _only_brokers,
    "renew_delegation_token": _only_brokers,
    "expire_delegation_token": _only_brokers,
    "describe_delegation_token": _only_brokers,
    "consumer_group_heartbeat": _group_heartbeat,
    "share_group_heartbeat": _group_heartbeat,
}
"""By the name of the API: the check of what no row of the table can state."""
