"""What every API asks of the authorizer, and what it answers whom is denied: `CASES`, a row for each right.

The rows are tested one by one against both targets in `test_rights.py`; `rights_page.py` makes the page of the docs. A
right has alternatives if any of several is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from compat_tests.batches import TRANSACTIONAL, batch
from compat_tests.definitions import Fields
from compat_tests.security.authorizing import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID

OPERATIONS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
RESOURCES = {"topic": TOPIC, "group": GROUP, "cluster": CLUSTER, "transactional id": TRANSACTIONAL_ID}
LEFT_OUT, ZERO = "left out", "0"
"""In place of an error: the row is left out; the bit field of operations is 0."""
TOPIC_FAILED, GROUP_FAILED = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
CLUSTER_FAILED, ID_FAILED = "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
ERRORS = {TOPIC_FAILED: 29, GROUP_FAILED: 30, CLUSTER_FAILED: 31, ID_FAILED: 53}


TOPIC_KEYS = ("name", "topic", "topic_name", "resource_name")
ROW_KEYS = (
    *TOPIC_KEYS,
    *("group_id", "transactional_id", "key", "user"),
    *("partition_index", "partition", "partition_id", "index"),
)
"""Fields that tell the rows of a response apart."""


class Names(NamedTuple):
    """What a case is about. All but `missing` exist: a topic without records, a group with an offset, an id."""

    topic: str
    missing: str
    group: str
    id: str


class Right(NamedTuple):
    """`operation` on `resource`, and what is answered without it. `note` says when it is asked for."""

    operation: str
    resource: str
    denied: str
    note: str = ""


class Case(NamedTuple):
    """A request of `api`. `rights` are asked for one after the other; each has alternatives, any of which is enough."""

    api: str
    version: int
    values: Callable[[Names], Fields]
    rights: tuple[tuple[Right, ...], ...]
    observed: Callable[[Any, Names], Any] = lambda response, names: response
    """The part of the response that both targets have in common."""
    note: str = ""
    also: tuple[Right, ...] = ()
    """Rights that change the answer to who lacks another."""


def topic_right(operation: str, denied: str = TOPIC_FAILED, note: str = "") -> tuple[Right]:
    return (Right(operation, "topic", denied, note),)


def group_right(operation: str, denied: str = GROUP_FAILED, note: str = "") -> tuple[Right]:
    return (Right(operation, "group", denied, note),)


def cluster_right(operation: str, denied: str = CLUSTER_FAILED, note: str = "") -> tuple[Right]:
    return (Right(operation, "cluster", denied, note),)


def id_right(operation: str, denied: str = ID_FAILED, note: str = "") -> tuple[Right]:
    return (Right(operation, "transactional id", denied, note),)


def errors(response: Any, names: Names) -> Any:
    """The error codes of a response whose other fields differ."""
    if isinstance(response, dict):
        return [
            value if key.endswith("error_code") else errors(value, names)
            for key, value in response.items()
            if key.endswith("error_code") or isinstance(value, list | dict)
        ]
    return [errors(one, names) for one in response] if isinstance(response, list) else []


def in_order(value: Any) -> Any:
    """The response with its rows in one order: Kafka's is that of hash tables, or puts the denied rows last."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return value
    keys = [key for key in ROW_KEYS if key in value[0]]
    return sorted(map(in_order, value), key=lambda row: [str(row[key]) for key in keys])


def own_rows(rows: str, key: str) -> Callable[[Any, Names], Any]:
    """The response, of whose `rows` only those about `names` are kept: other cases' are there, too."""

    def observed(response: Any, names: Names) -> Any:
        return {**response, rows: [row for row in response[rows] if row[key] in names]}

    return observed


def produce(names: Names, *, transactional: bool = False) -> Fields:
    records = batch(1)
    if transactional:
        records = batch(1, attributes=TRANSACTIONAL, producer=(77, 0, 0))
    data = [
        {"name": name, "partition_data": [{"index": 0, "records": records}]}
        for name in (names.topic, names.missing)
    ]
    return {
        "transactional_id": names.id if transactional else None,
        "acks": -1,
        "timeout_ms": 9000,
        "topic_data": data,
    }


def fetch(names: Names, replica_id: int = -1) -> Fields:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": name, "partitions": rows} for name in (names.topic, names.missing)]
    return {"replica_id": replica_id, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics}


def partitions_of(names: Names, key: str = "partitions", name: str = "name", row: Any = 0) -> list[Fields]:
    return [{name: one, key: [row]} for one in (names.topic, names.missing)]


def offset_rows(names: Names) -> list[Fields]:
    return partitions_of(names, row={"partition_index": 0, "committed_offset": 1, "committed_metadata": ""})


def configs(names: Names, key: str = "configs") -> Fields:
    value: Any = {"configs": [], "configuration_keys": ["none"]}[key]
    rows = [(2, names.topic), (2, names.missing), (32, names.group), (4, "1"), (4, "")]
    return {"resources": [{"resource_type": kind, "resource_name": name, key: value} for kind, name in rows]}


ACL_FILTER: Fields = {
    "resource_type_filter": 7,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL: Fields = {
    "resource_type": 2,
    "resource_name": "",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
CREATED: Fields = {"num_partitions": 1, "replication_factor": 1}
DENIED_DESCRIBES = topic_right("DESCRIBE")

CASES = (
    Case("Produce", 9, produce, (topic_right("WRITE"),)),
    Case(
        "Produce",
        9,
        lambda names: produce(names, transactional=True),
        (id_right("WRITE"), topic_right("WRITE")),
        note="with transactional records",
    ),
    Case("Fetch", 12, fetch, (topic_right("READ"),)),
    Case(
        "Fetch",
        12,
        lambda names: fetch(names, 5),
        ((Right("CLUSTER_ACTION", "cluster", TOPIC_FAILED),),),
        note="of a replica",
    ),
    Case(
        "ListOffsets",
        8,
        lambda names: {
            "replica_id": -1,
            "topics": partitions_of(names, row={"partition_index": 0, "timestamp": -1}),
        },
        (DENIED_DESCRIBES,),
    ),
    Case(
        "Metadata",
        10,
        lambda names: {
            "topics": [{"name": names.topic}, {"name": names.missing}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        (DENIED_DESCRIBES, cluster_right("DESCRIBE", ZERO, "for the cluster's operations")),
        note="of topics by name",
    ),
    Case(
        "Metadata",
        12,
        lambda names: {"topics": None},
        (topic_right("DESCRIBE", LEFT_OUT),),
        own_rows("topics", "name"),
        note="of all topics",
    ),
    Case(
        "Metadata",
        9,
        lambda names: {"topics": [{"name": names.missing}], "allow_auto_topic_creation": True},
        (
            DENIED_DESCRIBES,
            (Right("CREATE", "cluster", TOPIC_FAILED), Right("CREATE", "topic", TOPIC_FAILED)),
        ),
        lambda response, names: response["topics"][0]["error_code"] == ERRORS[TOPIC_FAILED] and response,
        note="that creates a topic",
    ),
    Case(
        "OffsetCommit",
        9,
        lambda names: {
            "group_id": names.group,
            "generation_id_or_member_epoch": -1,
            "topics": offset_rows(names),
        },
        (group_right("READ"), topic_right("READ")),
    ),
    Case(
        "OffsetFetch",
        8,
        lambda names: {
            "groups": [
                {"group_id": names.group, "topics": partitions_of(names, "partition_indexes")},
                {"group_id": names.missing, "topics": partitions_of(names, "partition_indexes")},
            ]
        },
        (group_right("DESCRIBE"), DENIED_DESCRIBES),
        note="of some topics",
    ),
    Case(
        "OffsetFetch",
        8,
        lambda names: {"groups": [{"group_id": names.group, "topics": None}]},
        (group_right("DESCRIBE"), topic_right("DESCRIBE", LEFT_OUT)),
        note="of all topics",
    ),
    Case(
        "OffsetFetch",
        1,
        lambda names: {"group_id": names.group, "topics": partitions_of(names, "partition_indexes")},
        (group_right("DESCRIBE"), DENIED_DESCRIBES),
        note="before version 2",
    ),
    Case(
        "FindCoordinator",
        4,
        lambda names: {"key_type": 0, "coordinator_keys": [names.group, names.missing]},
        (group_right("DESCRIBE"),),
        note="of groups",
    ),
    Case(
        "FindCoordinator",
        3,
        lambda names: {"key_type": 1, "key": names.id},
        (id_right("DESCRIBE"),),
        note="of a transactional id",
    ),
    Case(
        "JoinGroup",
        9,
        lambda names: {
            "group_id": names.missing,
            "session_timeout_ms": 10000,
            "rebalance_timeout_ms": 10000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        (group_right("READ"),),
    ),
    Case(
        "Heartbeat",
        4,
        lambda names: {"group_id": names.group, "generation_id": 1, "member_id": "m"},
        (group_right("READ"),),
    ),
    Case(
        "LeaveGroup",
        5,
        lambda names: {"group_id": names.group, "members": [{"member_id": "m"}]},
        (group_right("READ"),),
    ),
    Case(
        "SyncGroup",
        5,
        lambda names: {
            "group_id": names.group,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        (group_right("READ"),),
    ),
    Case(
        "DescribeGroups",
        5,
        lambda names: {"groups": [names.group, names.missing], "include_authorized_operations": True},
        (group_right("DESCRIBE"),),
    ),
    Case(
        "ListGroups",
        4,
        lambda names: {},
        ((Right("DESCRIBE", "cluster", LEFT_OUT), Right("DESCRIBE", "group", LEFT_OUT)),),
        own_rows("groups", "group_id"),
    ),
    Case(
        "DeleteGroups",
        2,
        lambda names: {"groups_names": [names.group]},
        (group_right("DELETE"),),
    ),
    Case(
        "OffsetDelete",
        0,
        lambda names: {
            "group_id": names.group,
            "topics": partitions_of(names, row={"partition_index": 0}),
        },
        (group_right("DELETE"), topic_right("READ")),
    ),
    Case(
        "ConsumerGroupHeartbeat",
        1,
        lambda names: {
            "group_id": names.missing,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 5,
            "rebalance_timeout_ms": 10000,
            "subscribed_topic_names": [names.topic],
            "topic_partitions": [],
        },
        (group_right("READ"), topic_right("DESCRIBE", note="for subscribed names")),
    ),
    Case(
        "ConsumerGroupDescribe",
        1,
        lambda names: {"group_ids": [names.group, names.missing], "include_authorized_operations": True},
        (group_right("DESCRIBE"),),
        note="(also DESCRIBE on the topics of the members' assignments, else TOPIC_AUTHORIZATION_FAILED)",
    ),
    Case(
        "CreateTopics",
        7,
        lambda names: {"topics": [{"name": names.missing, **CREATED}], "validate_only": True},
        (
            (Right("CREATE", "cluster", TOPIC_FAILED), Right("CREATE", "topic", TOPIC_FAILED)),
            (Right("DESCRIBE_CONFIGS", "topic", TOPIC_FAILED, "for its configuration in the response"),),
        ),
        lambda response, names: [
            (
                row["error_code"],
                row.get("topic_config_error_code"),
                row["num_partitions"],
                bool(row["configs"]),
            )
            for row in response["topics"]
        ],
    ),
    Case(
        "DeleteTopics",
        6,
        lambda names: {"topics": [{"name": names.topic}, {"name": names.missing}], "timeout_ms": 15000},
        ((Right("DELETE", "cluster", TOPIC_FAILED), Right("DELETE", "topic", TOPIC_FAILED)),),
        also=topic_right("DESCRIBE", note="for whether the topic exists"),
    ),
    Case(
        "DeleteRecords",
        2,
        lambda names: {"topics": partitions_of(names, row={"partition_index": 0, "offset": 0})},
        (topic_right("DELETE"),),
    ),
    Case(
        "CreatePartitions",
        3,
        lambda names: {
            "topics": [{"name": names.topic, "count": 2}, {"name": names.missing, "count": 2}],
            "timeout_ms": 15000,
            "validate_only": True,
        },
        (topic_right("ALTER"),),
    ),
)
