"""The table of all APIs: one row of data for each.

Versions, rights, rows, what an error says and which faults an API can take: everything else derives from `HANDLERS`. So
do ApiVersions, the version check of every request, the checks of rights in broker and proxy, the responses with an
error, the words of fault rules, docs/reference/apis.md and the compatibility matrix. What no row can state, since it
depends on the data, is a function in `oncelog.broker.handlers.rights` or in the handler.

An API's name is the name of three modules: ``wire.messages.<name>``, ``broker.handlers.<name>`` and
``tests.handlers.test_<name>``. The first request of an API imports its modules, so that the broker starts quickly.
Source: Kafka's message definitions, ``KafkaApis``, ``ControllerApis``, and ``getErrorResponse`` in
``org.apache.kafka.common.requests``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.requests.authorization import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Message

Handle = Callable[["Services", Any, "RequestContext"], "Message | Pending[Any] | None"]
"""Returns the response, a `Pending` one, or None if the request gets none. Raises CloseConnection, and KafkaError for a
response with this error only."""

# -- what a request names

TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID, CLUSTER = (
    "topic",
    "partition",
    "group",
    "transactional_id",
    "cluster",
)

Rights = tuple[tuple[int, str], ...]
"""Operations, and the kinds of the resources that they need: of a whole request, that of the field ``group_id`` or
``transactional_id``, or the cluster; of a row, what the row names."""
NO_RIGHT: Rights = ()
"""Everybody may use the API."""
BY_DATA: Rights = ()
"""Which right a request needs depends on its data, or on what is in the response."""
BY_ROW: Rights = ()
"""Only the rows of a request need rights."""

ELEMENT = ""
"""In place of a field's name: the element itself, in a list of strings or numbers."""


class Rows(NamedTuple):
    """A list of a request whose elements are rows.

    A row of a request names a topic, a partition, a group or a transactional id; the row of the response repeats it.
    ``response``: the list of the response, None where the response has none for them. ``key``: which fields of a
    response's row repeat which fields of the request's. ``facts``: which fields name what. ``inner``: the rows inside a
    row.
    """

    request: str
    response: str | None
    key: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    inner: Rows | None = None


def _topics(
    request: str = "topics",
    response: str | None = "topics",
    inner: Rows | None = None,
    *,
    name: str = "name",
    told: str = "name",
) -> Rows:
    key = ((name, told), ("topic_id", "topic_id"))
    return Rows(request, response, key, ((name, TOPIC), ("topic_id", "topic_id")), inner)


def _partitions(
    request: str = "partitions",
    response: str | None = "partitions",
    *,
    name: str = "partition_index",
    told: str = "partition_index",
) -> Rows:
    return Rows(request, response, ((name, told),), ((name, PARTITION),))


def _resources(response: str) -> Rows:
    key = (("resource_type", "resource_type"), ("resource_name", "resource_name"))
    return Rows("resources", response, key, (("resource_name", "resource"),))


def _names(request: str, response: str, told: str, fact: str) -> Rows:
    """Return a list of plain names."""
    return Rows(request, response, ((ELEMENT, told),), ((ELEMENT, fact),))


def _groups(inner: Rows) -> Rows:
    return Rows("groups", "groups", (("group_id", "group_id"),), (("group_id", GROUP),), inner)


def _topic_ids(inner: Rows) -> Rows:
    """Return a list of topics that are named by their ids only."""
    return Rows("topics", "responses", (("topic_id", "topic_id"),), (("topic_id", "topic_id"),), inner)


_INDEXES = _partitions("partition_indexes", name=ELEMENT)
_TXN_PARTITIONS = _partitions("partitions", "results_by_partition", name=ELEMENT)
_SHARE_STATES = Rows(
    "topics",
    "results",
    (("topic_id", "topic_id"),),
    (("topic_id", "topic_id"),),
    _partitions(name="partition", told="partition"),
)
_BETWEEN_BROKERS: Rights = ((CLUSTER_ACTION, CLUSTER),)


# -- a row of the table


class ApiRow(NamedTuple):
    """One API."""

    api_key: int
    name: str
    min_version: int
    max_version: int
    announced_min: int
    """The lowest version that ApiVersions returns."""
    rights: Rights = NO_RIGHT
    """The rights that a whole request needs, before anything else is looked at."""
    row_rights: Rights = ()
    """The rights that each row needs. Only a proxy reads them; the broker's handlers ask for theirs beside the data."""
    cluster_instead: int | None = None
    """The operation on the cluster that implies the right to all rows."""
    config_operation: int | None = None
    """The operation that the configuration of a row's resource needs."""
    handler_checks: bool = False
    """Whether the handler checks `rights`, after what Kafka looks at before."""
    rows: tuple[Rows, ...] = ()
    """The lists of rows; without any, the whole request has one result."""
    error_in_rows: tuple[int, int] = (0, -1)
    """The first and the last version in which an error of the whole request stands in its rows, too."""
    beside_error: Mapping[str, Any] = MappingProxyType({})
    """Values of other fields beside an error, where they are not the field's default."""
    has_error_message: bool = True
    """Whether Kafka fills the field for an error's message, if the response has one."""
    denied_message: bool = False
    """Whether the row of a denied resource has a message, too."""
    faults: tuple[str, ...] = ()
    """Actions of fault rules that only some APIs can take."""
    may_wait: bool = False
    """Whether its handler waits for others as long as its client asks for, or for the world outside: names of hosts."""
    has_records: bool = False
    """Whether request or response are records: neither made of many small elements, nor encoded in steps."""
    proxy_reads: bool = False
    """Whether a proxy reads the response: addresses stand in it, versions, or news about topics."""
    endpoints_min: int | None = None
    """The first version whose response may end with node endpoints, as a tagged field (KIP-951)."""
    unstable_max: int | None = None
    """The highest version with ``unstable.api.versions.enable``, where it is another one."""
    is_telemetry: bool = False
    """Whether it is served only where clients may send their metrics."""
    is_forwarded: bool = False
    """Whether the controller handles it, to which another node forwards it (Kafka: ``ApiKeys.forwardable``)."""


def _api(
    api_key: int,
    name: str,
    versions: tuple[int, int],
    rights: Rights,
    row_rights: Rights = (),
    *rows: Rows,
    announced_min: int | None = None,
    **more: Any,
) -> ApiRow:
    low, high = versions
    return ApiRow(
        api_key,
        name,
        low,
        high,
        low if announced_min is None else announced_min,
        rights,
        row_rights,
        rows=rows,
        **more,
    )


_RECORDS_DAMAGED = ("truncate", "damage_crc")

# A row is to be read as a row.
# fmt: off
_TABLE = (
    # Older librdkafka does not compress unless ApiVersions returns 0 as the lowest version of Produce. The broker still
    # refuses versions 0 to 2 (KAFKA-18659).
    _api(0, "produce", (3, 13), BY_DATA, ((WRITE, TOPIC),),
         _topics("topic_data", "responses",
                 _partitions("partition_data", "partition_responses", name="index", told="index")),
         announced_min=0, handler_checks=True, beside_error={"base_offset": -1}, faults=("duplicate",),
         has_records=True, endpoints_min=10),
    _api(1, "fetch", (4, 18), BY_ROW, ((READ, TOPIC),),
         _topics("topics", "responses", _partitions(name="partition"), name="topic", told="topic"),
         error_in_rows=(7, 12), beside_error={"high_watermark": -1, "records": b""}, faults=_RECORDS_DAMAGED,
         may_wait=True, has_records=True, endpoints_min=16),
    _api(2, "list_offsets", (1, 11), BY_ROW, ((DESCRIBE, TOPIC),), _topics(inner=_partitions())),
    _api(3, "metadata", (0, 13), BY_ROW, ((DESCRIBE, TOPIC),), _topics(), error_in_rows=(13, 13), proxy_reads=True),
    _api(8, "offset_commit", (2, 10), ((READ, GROUP),), ((READ, TOPIC),), _topics(inner=_partitions()),
         handler_checks=True),
    _api(9, "offset_fetch", (1, 10), BY_DATA, ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)), _topics(inner=_INDEXES),
         _groups(_topics(inner=_INDEXES)), handler_checks=True, beside_error={"committed_offset": -1}),
    _api(10, "find_coordinator", (0, 6), BY_DATA, ((DESCRIBE, GROUP), (DESCRIBE, TRANSACTIONAL_ID)),
         _names("coordinator_keys", "coordinators", "key", "key"), handler_checks=True,
         beside_error={"node_id": -1, "port": -1}, denied_message=True, proxy_reads=True),
    _api(11, "join_group", (0, 9), ((READ, GROUP),), handler_checks=True, may_wait=True),
    _api(12, "heartbeat", (0, 4), ((READ, GROUP),)),
    _api(13, "leave_group", (0, 5), ((READ, GROUP),)),
    _api(14, "sync_group", (0, 5), ((READ, GROUP),), handler_checks=True, may_wait=True),
    _api(15, "describe_groups", (0, 6), BY_ROW, ((DESCRIBE, GROUP),), _names("groups", "groups", "group_id", GROUP),
         has_error_message=False),
    _api(16, "list_groups", (0, 5), BY_DATA, handler_checks=True),
    _api(17, "sasl_handshake", (0, 1), NO_RIGHT),
    _api(18, "api_versions", (0, 5), NO_RIGHT, proxy_reads=True),
    _api(19, "create_topics", (2, 7), BY_ROW, ((CREATE, TOPIC),), _topics(), cluster_instead=CREATE,
         proxy_reads=True, is_forwarded=True),
    _api(20, "delete_topics", (1, 6), BY_ROW, ((DESCRIBE, TOPIC), (DELETE, TOPIC)), _topics(response="responses"),
         _names("topic_names", "responses", "name", TOPIC), cluster_instead=DELETE, has_error_message=False,
         proxy_reads=True, is_forwarded=True),
    _api(21, "delete_records", (0, 2), BY_ROW, ((DELETE, TOPIC),), _topics(inner=_partitions()),
         beside_error={"low_watermark": -1}),
    _api(22, "init_producer_id", (0, 5), BY_DATA, beside_error={"producer_epoch": -1}, unstable_max=6),
    _api(23, "offset_for_leader_epoch", (2, 4), BY_ROW, ((DESCRIBE, TOPIC),),
         _topics(inner=_partitions(name="partition", told="partition"), name="topic", told="topic"),
         cluster_instead=CLUSTER_ACTION),
    _api(24, "add_partitions_to_txn", (0, 5), BY_DATA, ((WRITE, TOPIC),),
         Rows("transactions", "results_by_transaction", (("transactional_id", "transactional_id"),),
              (("transactional_id", TRANSACTIONAL_ID),), _topics("topics", "topic_results", _TXN_PARTITIONS)),
         _topics("v3_and_below_topics", "results_by_topic_v3_and_below", _TXN_PARTITIONS), handler_checks=True),
    _api(25, "add_offsets_to_txn", (0, 4), ((WRITE, TRANSACTIONAL_ID), (READ, GROUP))),
    _api(26, "end_txn", (0, 5), ((WRITE, TRANSACTIONAL_ID),), faults=("duplicate",)),
    _api(27, "write_txn_markers", (1, 2), BY_DATA, (),
         Rows("markers", "markers", (("producer_id", "producer_id"),), (), _topics(inner=_INDEXES))),
    _api(28, "txn_offset_commit", (0, 6), ((WRITE, TRANSACTIONAL_ID), (READ, GROUP)), ((READ, TOPIC),),
         _topics(inner=_partitions()), handler_checks=True, faults=("duplicate",)),
    _api(29, "describe_acls", (1, 3), ((DESCRIBE, CLUSTER),)),
    _api(30, "create_acls", (1, 3), ((ALTER, CLUSTER),), (), Rows("creations", "results", (), ()), is_forwarded=True),
    _api(31, "delete_acls", (1, 3), ((ALTER, CLUSTER),), (), Rows("filters", "filter_results", (), ()),
         is_forwarded=True),
    _api(32, "describe_configs", (1, 4), BY_ROW, (), _resources("results"), config_operation=DESCRIBE_CONFIGS,
         denied_message=True, proxy_reads=True),
    _api(33, "alter_configs", (0, 2), BY_ROW, (), _resources("responses"), config_operation=ALTER_CONFIGS,
         denied_message=True, is_forwarded=True),
    _api(34, "alter_replica_log_dirs", (1, 2), ((ALTER, CLUSTER),), (),
         Rows("dirs", None, (), (), _topics("topics", "results", _partitions(name=ELEMENT), told="topic_name"))),
    _api(35, "describe_log_dirs", (1, 5), ((DESCRIBE, CLUSTER),), (),
         _topics(response=None, inner=_partitions(response=None, name=ELEMENT), name="topic")),
    _api(36, "sasl_authenticate", (0, 2), NO_RIGHT),
    _api(37, "create_partitions", (0, 3), BY_ROW, ((ALTER, TOPIC),), _topics(response="results"), is_forwarded=True),
    _api(38, "create_delegation_token", (1, 3), BY_DATA, handler_checks=True,
         beside_error={"principal_type": "User", "principal_name": "ANONYMOUS", "issue_timestamp_ms": -1,
                       "expiry_timestamp_ms": -1, "max_timestamp_ms": -1}, is_forwarded=True),
    _api(39, "renew_delegation_token", (1, 2), BY_DATA, handler_checks=True, is_forwarded=True),
    _api(40, "expire_delegation_token", (1, 2), BY_DATA, handler_checks=True, is_forwarded=True),
    _api(41, "describe_delegation_token", (1, 3), BY_DATA, handler_checks=True),
    _api(42, "delete_groups", (0, 3), BY_ROW, ((DELETE, GROUP),),
         _names("groups_names", "results", "group_id", GROUP), has_error_message=False),
    _api(43, "elect_leaders", (0, 2), ((ALTER, CLUSTER),), (),
         _topics("topic_partitions", "replica_election_results",
                 _partitions("partitions", "partition_result", name=ELEMENT, told="partition_id"),
                 name="topic", told="topic"),
         error_in_rows=(1, 2), is_forwarded=True),
    _api(44, "incremental_alter_configs", (0, 1), BY_ROW, (), _resources("responses"), config_operation=ALTER_CONFIGS,
         denied_message=True, is_forwarded=True),
    _api(45, "alter_partition_reassignments", (0, 1), ((ALTER, CLUSTER),), (),
         _topics(response="responses", inner=_partitions()), error_in_rows=(0, 1), is_forwarded=True),
    _api(46, "list_partition_reassignments", (0, 0), ((DESCRIBE, CLUSTER),), (),
         _topics(response=None, inner=_partitions("partition_indexes", None, name=ELEMENT)), is_forwarded=True),
    _api(47, "offset_delete", (0, 0), ((DELETE, GROUP),), ((READ, TOPIC),), _topics(inner=_partitions())),
    _api(48, "describe_client_quotas", (0, 1), ((DESCRIBE_CONFIGS, CLUSTER),), beside_error={"entries": None}),
    _api(49, "alter_client_quotas", (0, 1), ((ALTER_CONFIGS, CLUSTER),), (),
         Rows("entries", "entries", (("entity", "entity"),), ()), is_forwarded=True, may_wait=True),
    _api(50, "describe_user_scram_credentials", (0, 0), ((DESCRIBE, CLUSTER),), (),
         Rows("users", "results", (("name", "user"),), ())),
    _api(51, "alter_user_scram_credentials", (0, 0), ((ALTER, CLUSTER),), (),
         Rows("upsertions", "results", (("name", "user"),), ()), is_forwarded=True),
    _api(55, "describe_quorum", (0, 2), ((DESCRIBE, CLUSTER),), (),
         _topics(inner=_partitions(), name="topic_name", told="topic_name"), proxy_reads=True, is_forwarded=True),
    _api(57, "update_features", (0, 2), ((ALTER, CLUSTER),), is_forwarded=True),
    _api(60, "describe_cluster", (0, 2), BY_DATA, handler_checks=True, proxy_reads=True),
    _api(61, "describe_producers", (0, 0), BY_ROW, ((READ, TOPIC),), _topics(inner=_INDEXES),
         has_error_message=False),
    _api(64, "unregister_broker", (0, 0), ((ALTER, CLUSTER),), is_forwarded=True),
    _api(65, "describe_transactions", (0, 0), BY_ROW, ((DESCRIBE, TRANSACTIONAL_ID),),
         _names("transactional_ids", "transaction_states", "transactional_id", TRANSACTIONAL_ID)),
    _api(66, "list_transactions", (0, 2), BY_DATA, handler_checks=True),
    _api(68, "consumer_group_heartbeat", (0, 1), ((READ, GROUP),), handler_checks=True, has_error_message=False),
    _api(69, "consumer_group_describe", (0, 1), BY_ROW, ((DESCRIBE, GROUP),),
         _names("group_ids", "groups", "group_id", GROUP), has_error_message=False),
    _api(71, "get_telemetry_subscriptions", (0, 0), NO_RIGHT, is_telemetry=True),
    _api(72, "push_telemetry", (0, 0), NO_RIGHT, is_telemetry=True),
    _api(74, "list_config_resources", (0, 1), ((DESCRIBE_CONFIGS, CLUSTER),)),
    _api(75, "describe_topic_partitions", (0, 0), BY_ROW, ((DESCRIBE, TOPIC),), _topics()),
    _api(76, "share_group_heartbeat", (1, 1), ((READ, GROUP),), handler_checks=True, has_error_message=False),
    _api(77, "share_group_describe", (1, 1), BY_ROW, ((DESCRIBE, GROUP),),
         _names("group_ids", "groups", "group_id", GROUP), has_error_message=False),
    _api(78, "share_fetch", (1, 2), ((READ, GROUP),), ((READ, TOPIC),), _topic_ids(_partitions()),
         handler_checks=True, beside_error={"records": b""}, has_error_message=False, faults=_RECORDS_DAMAGED,
         may_wait=True, has_records=True, proxy_reads=True),
    _api(79, "share_acknowledge", (1, 2), ((READ, GROUP),), ((READ, TOPIC),), _topic_ids(_partitions()),
         handler_checks=True, has_error_message=False, proxy_reads=True),
    _api(80, "add_raft_voter", (0, 1), ((ALTER, CLUSTER),), is_forwarded=True),
    _api(81, "remove_raft_voter", (0, 0), ((ALTER, CLUSTER),), is_forwarded=True),
    _api(83, "initialize_share_group_state", (0, 0), _BETWEEN_BROKERS, (), _SHARE_STATES),
    _api(84, "read_share_group_state", (0, 0), _BETWEEN_BROKERS, (), _SHARE_STATES),
    _api(85, "write_share_group_state", (0, 1), _BETWEEN_BROKERS, (), _SHARE_STATES),
    _api(86, "delete_share_group_state", (0, 0), _BETWEEN_BROKERS, (), _SHARE_STATES),
    _api(87, "read_share_group_state_summary", (0, 1), _BETWEEN_BROKERS, (), _SHARE_STATES),
    _api(90, "describe_share_group_offsets", (0, 1), BY_ROW, ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
         _groups(_topics(inner=_partitions(name=ELEMENT), name="topic_name", told="topic_name")),
         beside_error={"start_offset": -1}),
    _api(91, "alter_share_group_offsets", (0, 0), ((READ, GROUP),), ((READ, TOPIC),),
         _topics("topics", "responses", _partitions(), name="topic_name", told="topic_name"), handler_checks=True),
    _api(92, "delete_share_group_offsets", (0, 0), ((DELETE, GROUP),), ((READ, TOPIC),),
         _topics("topics", "responses", name="topic_name", told="topic_name"), handler_checks=True),
    _api(94, "unregister_controller", (0, 0), ((ALTER, CLUSTER),), is_forwarded=True),
)
# fmt: on

HANDLERS: dict[int, ApiRow] = {row.api_key: row for row in _TABLE}
"""By API key."""
BY_NAME: dict[str, ApiRow] = {row.name: row for row in _TABLE}
"""By the name of the API's modules."""

TELEMETRY_KEYS = frozenset(row.api_key for row in _TABLE if row.is_telemetry)
"""API keys that are served only where clients may send their metrics."""
UNSTABLE_VERSIONS = {row.api_key: row.unstable_max for row in _TABLE if row.unstable_max is not None}
"""By API key: `ApiRow.unstable_max`, where there is one."""


def api_names() -> dict[str, str]:
    """Return the names of the APIs' modules by Kafka's names."""
    return {api_name(name): name for name in BY_NAME}


def api_name(module: str) -> str:
    """Return Kafka's name of an API: EndTxn for ``end_txn``."""
    return "".join(part.capitalize() for part in module.split("_"))
