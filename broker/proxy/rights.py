"""The rights that each API needs, for the whole request and for each row, as a proxy checks them.

The broker's handlers check the same rights (`docs/rights.md`), each beside its data. Here they are tables, and a
function for each API whose rights no table can state. Source: ``KafkaApis``, ``ControllerApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.handlers.config_rights import config_refusal
from oncelog.broker.refusal.rows import GROUP, GROUP_KEY_TYPE, TOPIC, TRANSACTION_KEY_TYPE, TRANSACTIONAL_ID
from oncelog.broker.requests.authorization import (
    ALTER,
    ALTER_CONFIGS,
    AUTHORIZATION_ERROR,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_OPERATION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP_RESOURCE,
    IDEMPOTENT_WRITE,
    READ,
    RESOURCE_NAMES,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    TWO_PHASE_COMMIT,
    WRITE,
)
from oncelog.wire.batch import HEADER_SIZE
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.refusal.rows import Located, Row
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import RequestContext

    May = Callable[[str], bool]
    """Whether something may be done to the resource with a name."""

ATTRIBUTES_AT, TRANSACTIONAL = 22, 0x10
"""The position of the byte of a batch that has the transactional bit: the lower byte of its attributes."""
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))

_GROUP, _TOPIC, _ID = GROUP_RESOURCE, TOPIC_RESOURCE, TRANSACTIONAL_ID_RESOURCE

REQUEST_RIGHTS: dict[str, tuple[tuple[int, int, str], ...]] = {
    "offset_commit": ((READ, _GROUP, "group_id"),),
    "join_group": ((READ, _GROUP, "group_id"),),
    "heartbeat": ((READ, _GROUP, "group_id"),),
    "leave_group": ((READ, _GROUP, "group_id"),),
    "sync_group": ((READ, _GROUP, "group_id"),),
    "offset_delete": ((DELETE, _GROUP, "group_id"),),
    "consumer_group_heartbeat": ((READ, _GROUP, "group_id"),),
    "share_group_heartbeat": ((READ, _GROUP, "group_id"),),
    "share_fetch": ((READ, _GROUP, "group_id"),),
    "share_acknowledge": ((READ, _GROUP, "group_id"),),
    "alter_share_group_offsets": ((READ, _GROUP, "group_id"),),
    "delete_share_group_offsets": ((DELETE, _GROUP, "group_id"),),
    "add_offsets_to_txn": ((WRITE, _ID, "transactional_id"), (READ, _GROUP, "group_id")),
    "end_txn": ((WRITE, _ID, "transactional_id"),),
    "txn_offset_commit": ((WRITE, _ID, "transactional_id"), (READ, _GROUP, "group_id")),
}
"""By API: operation, type of resource, and the field of the request that names it."""

ROW_RIGHTS: dict[str, tuple[tuple[int, int, str], ...]] = {
    "produce": ((WRITE, _TOPIC, TOPIC),),
    "fetch": ((READ, _TOPIC, TOPIC),),
    "list_offsets": ((DESCRIBE, _TOPIC, TOPIC),),
    "metadata": ((DESCRIBE, _TOPIC, TOPIC),),
    "offset_commit": ((READ, _TOPIC, TOPIC),),
    "offset_fetch": ((DESCRIBE, _GROUP, GROUP), (DESCRIBE, _TOPIC, TOPIC)),
    "find_coordinator": ((DESCRIBE, _GROUP, GROUP), (DESCRIBE, _ID, TRANSACTIONAL_ID)),
    "describe_groups": ((DESCRIBE, _GROUP, GROUP),),
    "create_topics": ((CREATE, _TOPIC, TOPIC),),
    "delete_topics": ((DESCRIBE, _TOPIC, TOPIC), (DELETE, _TOPIC, TOPIC)),
    "delete_records": ((DELETE, _TOPIC, TOPIC),),
    "offset_for_leader_epoch": ((DESCRIBE, _TOPIC, TOPIC),),
    "add_partitions_to_txn": ((WRITE, _TOPIC, TOPIC),),
    "txn_offset_commit": ((READ, _TOPIC, TOPIC),),
    "create_partitions": ((ALTER, _TOPIC, TOPIC),),
    "delete_groups": ((DELETE, _GROUP, GROUP),),
    "offset_delete": ((READ, _TOPIC, TOPIC),),
    "describe_producers": ((READ, _TOPIC, TOPIC),),
    "describe_transactions": ((DESCRIBE, _ID, TRANSACTIONAL_ID),),
    "consumer_group_describe": ((DESCRIBE, _GROUP, GROUP),),
    "share_group_describe": ((DESCRIBE, _GROUP, GROUP),),
    "describe_topic_partitions": ((DESCRIBE, _TOPIC, TOPIC),),
    "share_fetch": ((READ, _TOPIC, TOPIC),),
    "share_acknowledge": ((READ, _TOPIC, TOPIC),),
    "describe_share_group_offsets": ((DESCRIBE, _GROUP, GROUP), (DESCRIBE, _TOPIC, TOPIC)),
    "alter_share_group_offsets": ((READ, _TOPIC, TOPIC),),
    "delete_share_group_offsets": ((READ, _TOPIC, TOPIC),),
}
"""By API: operation, type of resource, and the fact that names it in a row (`oncelog.broker.refusal.rows`)."""

CONFIG_OPERATIONS = {
    "describe_configs": DESCRIBE_CONFIGS,
    "alter_configs": ALTER_CONFIGS,
    "incremental_alter_configs": ALTER_CONFIGS,
}
WITH_ERROR_MESSAGE = frozenset((*CONFIG_OPERATIONS, "find_coordinator"))
"""APIs whose rows have an error message beside the error code."""
CLUSTER_INSTEAD = {
    "create_topics": CREATE,
    "delete_topics": DELETE,
    "offset_for_leader_epoch": CLUSTER_ACTION,
}
"""By API: the operation on the cluster that implies the right to all rows."""
WITHOUT_TABLE = frozenset(
    (
        *("api_versions", "sasl_handshake", "sasl_authenticate", "list_groups", "list_transactions"),
        *("describe_cluster", "init_producer_id", "write_txn_markers"),
        *("get_telemetry_subscriptions", "push_telemetry"),
    )
)
"""APIs that need no right, or whose rights `_REQUEST_CHECKS` or `rights_in_responses` checks."""


class RefusedRows(NamedTuple):
    """The rows that name a resource to which the client has no right; see `RowChoice`."""

    fact: str
    may: May
    error: KafkaError

    def depth_in(self, located: Located) -> int:
        """See `RowChoice`."""
        return located.depths.get(self.fact, 0)

    def matches(self, row: Row) -> bool:
        """See `RowChoice`. A row with an unknown topic id does not match: upstream refuses it."""
        name = row.facts.get(self.fact)
        return name is not None and not self.may(name)


class RefusedConfigs(NamedTuple):
    """The resources of one type whose configurations the client has no right to; see `RowChoice`."""

    refusal: Callable[[int, str], KafkaError | None]
    error: KafkaError

    def depth_in(self, located: Located) -> int:
        """See `RowChoice`."""
        return 1

    def matches(self, row: Row) -> bool:
        """See `RowChoice`."""
        element = row.element
        found = self.refusal(element.resource_type, element.resource_name)
        return found is not None and found.code is self.error.code


class AllRows(NamedTuple):
    """All rows; see `RowChoice`."""

    error: KafkaError

    def depth_in(self, located: Located) -> int:
        """See `RowChoice`."""
        return len(located.levels)

    def matches(self, row: Row) -> bool:
        """See `RowChoice`."""
        return True


Choice = RefusedRows | RefusedConfigs | AllRows


def check_request(authorization: Authorization, context: RequestContext) -> None:
    """Check the rights that the whole request needs. Raises KafkaError for the first one that is missing."""
    name, request = context.api.handler.name, context.request
    key = context.api.handler.api_key
    operation = CLUSTER_OPERATION.get(key)
    if operation is not None:
        authorization.require_cluster(context, operation)
    elif (
        name not in REQUEST_RIGHTS
        and name not in ROW_RIGHTS
        and name not in CONFIG_OPERATIONS
        and name not in WITHOUT_TABLE
    ):
        authorization.require_cluster(context, CLUSTER_ACTION)
    for needed, resource_type, field in REQUEST_RIGHTS.get(name, ()):
        authorization.require(context, needed, resource_type, getattr(request, field) or "")
    special = _REQUEST_CHECKS.get(name)
    if special is not None:
        special(authorization, context)


def _produce(authorization: Authorization, context: RequestContext) -> None:
    if _has_transactional(context.request):
        authorization.require(context, WRITE, _ID, context.request.transactional_id or "")


def _has_transactional(request: Any) -> bool:
    return any(
        partition.records is not None
        and len(partition.records) >= HEADER_SIZE
        and partition.records[ATTRIBUTES_AT] & TRANSACTIONAL
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _find_coordinator(authorization: Authorization, context: RequestContext) -> None:
    request = context.request
    if request.key_type not in (GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE):
        authorization.require_cluster(context, CLUSTER_ACTION)
    elif context.api_version < 4:
        kind = _GROUP if request.key_type == GROUP_KEY_TYPE else _ID
        authorization.require(context, DESCRIBE, kind, request.key)


def _offset_fetch(authorization: Authorization, context: RequestContext) -> None:
    if context.api_version < 8:
        authorization.require(context, DESCRIBE, _GROUP, context.request.group_id)


def _init_producer_id(authorization: Authorization, context: RequestContext) -> None:
    request = context.request
    if request.transactional_id is None:
        may_write = authorization.allows(context, IDEMPOTENT_WRITE, *CLUSTER, quiet=True)
        if not may_write and not authorization.allows_for_any(context, WRITE, _TOPIC):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    for operation in (WRITE, TWO_PHASE_COMMIT) if getattr(request, "enable2_pc", False) else (WRITE,):
        authorization.require(context, operation, _ID, request.transactional_id)


def _add_partitions_to_txn(authorization: Authorization, context: RequestContext) -> None:
    if context.api_version < 4:
        name = context.request.v3_and_below_transactional_id
        authorization.require(context, WRITE, _ID, name)
    else:
        authorization.require_cluster(context, CLUSTER_ACTION)


def _write_txn_markers(authorization: Authorization, context: RequestContext) -> None:
    if not authorization.allows(context, ALTER, *CLUSTER, quiet=True):
        authorization.require_cluster(context, CLUSTER_ACTION)


def _group_heartbeat(authorization: Authorization, context: RequestContext) -> None:
    may_describe = authorization.filter(context, DESCRIBE, _TOPIC)
    if not all(map(may_describe, context.request.subscribed_topic_names or ())):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


_REQUEST_CHECKS: dict[str, Callable[[Authorization, RequestContext], None]] = {
    "produce": _produce,
    "find_coordinator": _find_coordinator,
    "offset_fetch": _offset_fetch,
    "init_producer_id": _init_producer_id,
    "add_partitions_to_txn": _add_partitions_to_txn,
    "write_txn_markers": _write_txn_markers,
    "consumer_group_heartbeat": _group_heartbeat,
    "share_group_heartbeat": _group_heartbeat,
}


def refused_rows(authorization: Authorization, services: Any, context: RequestContext) -> Iterator[Choice]:
    """Yield the choices of the refused rows, in Kafka's order of checks."""
    name, request = context.api.handler.name, context.request
    if name in CONFIG_OPERATIONS:
        refusal = config_refusal(services, context, CONFIG_OPERATIONS[name])
        assert refusal is not None, "there is an authorizer"
        for kind in (_TOPIC, _GROUP, CLUSTER[0]):
            yield RefusedConfigs(refusal, error_of(name, kind))
        return
    if name == "find_coordinator" and context.api_version < 4:
        return
    if name in CLUSTER_INSTEAD and authorization.allows(context, CLUSTER_INSTEAD[name], *CLUSTER, quiet=True):
        return
    if name == "fetch" and _replica_of(request) >= 0:
        if not authorization.allows(context, CLUSTER_ACTION, *CLUSTER):
            yield AllRows(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    if name == "add_partitions_to_txn" and context.api_version >= 4:
        return
    for operation, resource_type, fact in ROW_RIGHTS.get(name, ()):
        if name == "offset_fetch" and fact == GROUP and context.api_version < 8:
            continue
        may = authorization.filter(context, operation, resource_type)
        if name == "add_partitions_to_txn":
            may = _but_internal(may)
        yield RefusedRows(fact, may, error_of(name, resource_type))


def error_of(api: str, resource_type: int) -> KafkaError:
    """Return the error of a row that names a denied resource of this type."""
    text = f"The client may not do this to the {RESOURCE_NAMES[resource_type]}."
    return KafkaError(AUTHORIZATION_ERROR[resource_type], text if api in WITH_ERROR_MESSAGE else None)


def _but_internal(may: May) -> May:
    return lambda name: name not in INTERNAL_TOPICS and may(name)


def _replica_of(request: Any) -> int:
    """Return the id of the replica that fetches, -1 for a consumer."""
    state = getattr(request, "replica_state", None)
    if state is not None and state.replica_id >= 0:
        return int(state.replica_id)
    return int(getattr(request, "replica_id", -1))
