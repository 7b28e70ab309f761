"""The table of all APIs that the broker serves, with their versions.

ApiVersions, the version check of every request, the API table in the docs and the compatibility matrix all derive
from `HANDLERS`. An API's name is the name of three modules: ``wire.messages.<name>``, ``broker.handlers.<name>`` and
``tests.handlers.test_<name>``. The first request of an API imports its modules, so that the broker starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Message

Handle = Callable[["Services", Any, "RequestContext"], "Message | Pending[Any] | None"]
"""Returns the response, a `Pending` one, or None if the request gets none. Raises CloseConnection, and KafkaError for a
response with this error only."""


class Handler(NamedTuple):
    """One API: its key, its name, the versions that the broker serves, and the lowest that ApiVersions returns."""

    api_key: int
    name: str
    min_version: int
    max_version: int
    announced_min: int


def _table(*rows: tuple[int, str, int, int]) -> dict[int, Handler]:
    return {key: Handler(key, name, low, high, low) for key, name, low, high in rows}


HANDLERS: dict[int, Handler] = _table(
    (0, "produce", 3, 13),
    (1, "fetch", 4, 18),
    (2, "list_offsets", 1, 11),
    (3, "metadata", 0, 13),
    (8, "offset_commit", 2, 10),
    (9, "offset_fetch", 1, 10),
    (10, "find_coordinator", 0, 6),
    (11, "join_group", 0, 9),
    (12, "heartbeat", 0, 4),
    (13, "leave_group", 0, 5),
    (14, "sync_group", 0, 5),
    (15, "describe_groups", 0, 6),
    (16, "list_groups", 0, 5),
    (17, "sasl_handshake", 0, 1),
    (18, "api_versions", 0, 4),
    (19, "create_topics", 2, 7),
    (20, "delete_topics", 1, 6),
    (21, "delete_records", 0, 2),
    (22, "init_producer_id", 0, 5),
    (23, "offset_for_leader_epoch", 2, 4),
    (24, "add_partitions_to_txn", 0, 5),
    (25, "add_offsets_to_txn", 0, 4),
    (26, "end_txn", 0, 5),
    (27, "write_txn_markers", 1, 2),
    (28, "txn_offset_commit", 0, 5),
    (29, "describe_acls", 1, 3),
    (30, "create_acls", 1, 3),
    (31, "delete_acls", 1, 3),
    (32, "describe_configs", 1, 4),
    (33, "alter_configs", 0, 2),
    (34, "alter_replica_log_dirs", 1, 2),
    (35, "describe_log_dirs", 1, 5),
    (36, "sasl_authenticate", 0, 2),
    (37, "create_partitions", 0, 3),
    (38, "create_delegation_token", 1, 3),
    (39, "renew_delegation_token", 1, 2),
    (40, "expire_delegation_token", 1, 2),
    (41, "describe_delegation_token", 1, 3),
    (42, "delete_groups", 0, 2),
    (43, "elect_leaders", 0, 2),
    (44, "incremental_alter_configs", 0, 1),
    (45, "alter_partition_reassignments", 0, 1),
    (46, "list_partition_reassignments", 0, 0),
    (47, "offset_delete", 0, 0),
    (48, "describe_client_quotas", 0, 1),
    (49, "alter_client_quotas", 0, 1),
    (50, "describe_user_scram_credentials", 0, 0),
    (51, "alter_user_scram_credentials", 0, 0),
    (55, "describe_quorum", 0, 2),
    (57, "update_features", 0, 2),
    (60, "describe_cluster", 0, 2),
    (61, "describe_producers", 0, 0),
    (64, "unregister_broker", 0, 0),
    (65, "describe_transactions", 0, 0),
    (66, "list_transactions", 0, 2),
    (68, "consumer_group_heartbeat", 0, 1),
    (69, "consumer_group_describe", 0, 1),
    (71, "get_telemetry_subscriptions", 0, 0),
    (72, "push_telemetry", 0, 0),
    (74, "list_config_resources", 0, 1),
    (75, "describe_topic_partitions", 0, 0),
    (76, "share_group_heartbeat", 1, 1),
    (77, "share_group_describe", 1, 1),
    (78, "share_fetch", 1, 2),
    (79, "share_acknowledge", 1, 2),
    (80, "add_raft_voter", 0, 1),
    (81, "remove_raft_voter", 0, 0),
    (90, "describe_share_group_offsets", 0, 1),
    (91, "alter_share_group_offsets", 0, 0),
    (92, "delete_share_group_offsets", 0, 0),
)

TELEMETRY_KEYS = frozenset((71, 72))
"""API keys that are served only where clients may send their metrics."""
UNSTABLE_VERSIONS = {22: 6}
"""By API key: the highest version with ``unstable.api.versions.enable``, where it is another one."""

# Older librdkafka does not compress unless ApiVersions returns 0 as Produce's lowest version. The broker still refuses
# versions 0 to 2 (KAFKA-18659).
HANDLERS[0] = HANDLERS[0]._replace(announced_min=0)


def api_names() -> dict[str, str]:
    """Return the names of the APIs' modules by Kafka's names."""
    return {api_name(handler.name): handler.name for handler in HANDLERS.values()}


def api_name(module: str) -> str:
    """Return Kafka's name of an API: EndTxn for ``end_txn``."""
    return "".join(part.capitalize() for part in module.split("_"))
