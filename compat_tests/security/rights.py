"""The words for a row of the table of rights: an API, the operations that it needs, the response without them.

The rows are in `rights_topics.py`, `rights_admin.py` and `rights_tokens.py`. `test_rights.py` tests them one by one
against both targets, `rights_page.py` makes the page of the docs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from compat_tests.security.authorizing import (
    CLUSTER,
    DELEGATION_TOKEN,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)
from tests.common.batches import TRANSACTIONAL, batch
from tests.common.definitions import Fields

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
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
    "TWO_PHASE_COMMIT": 15,
}
RESOURCES = {
    "topic": TOPIC,
    "group": GROUP,
    "cluster": CLUSTER,
    "transactional id": TRANSACTIONAL_ID,
    "delegation token": DELEGATION_TOKEN,
    "user": USER,
}
LEFT_OUT, ZERO = "left out", "0"
"""In place of an error: the row is left out; the bit field of operations is 0."""
TOPIC_FAILED, GROUP_FAILED = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
CLUSTER_FAILED, ID_FAILED = "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
TOKEN_FAILED = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
ERRORS = {TOPIC_FAILED: 29, GROUP_FAILED: 30, CLUSTER_FAILED: 31, ID_FAILED: 53, TOKEN_FAILED: 65}


TOPIC_KEYS = ("name", "topic", "topic_name", "resource_name")
ROW_KEYS = (
    *TOPIC_KEYS,
    *("group_id", "transactional_id", "key", "user"),
    *("partition_index", "partition", "partition_id", "index"),
)
"""Fields that tell the rows of a response apart."""


class Names(NamedTuple):
    """The names in a case. All but `missing` exist: a topic without records, a group with an offset, an id."""

    topic: str
    missing: str
    group: str
    id: str
    topic_id: bytes = bytes(16)
    owner: str = ""
    """Another user, without the "User:"."""
    token_id: str = ""
    share_group: str = ""
    """An empty share group with an offset."""
    hmac: bytes = b""
    """A delegation token of `owner`; only for a case that is `logged_in`."""


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
    versions: tuple[int, int] = (0, 99)
    """Those in which the request has the fields of `values`; a denial is compared in all that are served."""
    also: tuple[Right, ...] = ()
    """Rights that change the answer to who lacks another."""
    logged_in: bool = False
    """Whether the client has logged in. Without a log-in the APIs of delegation tokens do not ask for rights."""


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
