"""The rows of each API: what a request asks row by row, and where its response says the result of a row.

A row of a request names a topic, a partition, a group or a transactional id; the row of the response repeats it. `ROWS`
says for each API which list of the request belongs to which list of the response. The facts are those of Kafka's
message definitions and of ``getErrorResponse`` in ``org.apache.kafka.common.requests``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.wire.schema import Struct
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID = "topic", "partition", "group", "transactional_id"
FACTS = (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID)
"""The facts about a request's rows by which a rule can filter."""

TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
"""Resource types of the requests about configurations (Kafka: ``ConfigResource.Type``)."""
GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
"""Key types of FindCoordinator (Kafka: ``FindCoordinatorRequest.CoordinatorType``)."""

TOP_LEVEL_FACTS = {
    "group_id": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
}

ELEMENT = ""
"""In place of a field's name: the element itself, in a list of strings or numbers."""


class Rows(NamedTuple):
    """A list of a request whose elements are rows.

    ``response``: the list of the response, None where the response has none for them. ``key``: which fields of a
    response's row repeat which fields of the request's. ``facts``: which fields say what of `FACTS`. ``inner``: the
    rows inside a row.
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
    """A list of plain names."""
    return Rows(request, response, ((ELEMENT, told),), ((ELEMENT, fact),))


def _topic_ids(response: str, inner: Rows) -> Rows:
    """A list of topics that are named by their ids only."""
    return Rows("topics", response, (("topic_id", "topic_id"),), (("topic_id", "topic_id"),), inner)


_INDEXES = _partitions("partition_indexes", name=ELEMENT)
_TXN_PARTITIONS = _partitions("partitions", "results_by_partition", name=ELEMENT)

ROWS: dict[str, tuple[Rows, ...]] = {
    "produce": (
        _topics(
            "topic_data",
            "responses",
            _partitions("partition_data", "partition_responses", name="index", told="index"),
        ),
    ),
    "fetch": (_topics("topics", "responses", _partitions(name="partition"), name="topic", told="topic"),),
    "list_offsets": (_topics(inner=_partitions()),),
    "metadata": (_topics(),),
    "offset_commit": (_topics(inner=_partitions()),),
    "offset_fetch": (
        _topics(inner=_INDEXES),
        Rows(
            "groups", "groups", (("group_id", "group_id"),), (("group_id", GROUP),), _topics(inner=_INDEXES)
        ),
    ),
    "find_coordinator": (_names("coordinator_keys", "coordinators", "key", "key"),),
    "describe_groups": (_names("groups", "groups", "group_id", GROUP),),
    "alter_user_scram_credentials": (Rows("upsertions", "results", (("name", "user"),), ()),),
    "alter_client_quotas": (Rows("entries", "entries", (("entity", "entity"),), ()),),
    "create_topics": (_topics(),),
    "delete_topics": (_topics(response="responses"), _names("topic_names", "responses", "name", TOPIC)),
    "delete_records": (_topics(inner=_partitions()),),
    "offset_for_leader_epoch": (
        _topics(inner=_partitions(name="partition", told="partition"), name="topic", told="topic"),
    ),
    "add_partitions_to_txn": (
        Rows(
            "transactions",
            "results_by_transaction",
            (("transactional_id", "transactional_id"),),
            (("transactional_id", TRANSACTIONAL_ID),),
            _topics("topics", "topic_results", _TXN_PARTITIONS),
        ),
        _topics("v3_and_below_topics", "results_by_topic_v3_and_below", _TXN_PARTITIONS),
    ),
    "write_txn_markers": (
        Rows("markers", "markers", (("producer_id", "producer_id"),), (), _topics(inner=_INDEXES)),
    ),
    "txn_offset_commit": (_topics(inner=_partitions()),),
    "create_acls": (Rows("creations", "results", (), ()),),
    "delete_acls": (Rows("filters", "filter_results", (), ()),),
    "describe_configs": (_resources("results"),),
    "alter_configs": (_resources("responses"),),
    "incremental_alter_configs": (_resources("responses"),),
    "alter_replica_log_dirs": (
        Rows(
            "dirs", None, (), (), _topics("topics", "results", _partitions(name=ELEMENT), told="topic_name")
        ),
    ),
    "describe_log_dirs": (
        _topics(response=None, inner=_partitions(response=None, name=ELEMENT), name="topic"),
    ),
    "create_partitions": (_topics(response="results"),),
    "delete_groups": (_names("groups_names", "results", "group_id", GROUP),),
    "elect_leaders": (
        _topics(
            "topic_partitions",
            "replica_election_results",
            _partitions("partitions", "partition_result", name=ELEMENT, told="partition_id"),
            name="topic",
            told="topic",
        ),
    ),
    "alter_partition_reassignments": (_topics(response="responses", inner=_partitions()),),
    "list_partition_reassignments": (
        _topics(response=None, inner=_partitions("partition_indexes", None, name=ELEMENT)),
    ),
    "offset_delete": (_topics(inner=_partitions()),),
    "describe_user_scram_credentials": (Rows("users", "results", (("name", "user"),), ()),),
    "describe_quorum": (_topics(inner=_partitions(), name="topic_name", told="topic_name"),),
    "describe_producers": (_topics(inner=_INDEXES),),
    "describe_transactions": (
        _names("transactional_ids", "transaction_states", "transactional_id", TRANSACTIONAL_ID),
    ),
    "consumer_group_describe": (_names("group_ids", "groups", "group_id", GROUP),),
    "describe_topic_partitions": (_topics(),),
    "share_group_describe": (_names("group_ids", "groups", "group_id", GROUP),),
    "describe_share_group_offsets": (
        Rows(
            "groups",
            "groups",
            (("group_id", "group_id"),),
            (("group_id", GROUP),),
            _topics(inner=_partitions(name=ELEMENT), name="topic_name", told="topic_name"),
        ),
    ),
    "alter_share_group_offsets": (
        _topics("topics", "responses", _partitions(), name="topic_name", told="topic_name"),
    ),
    "delete_share_group_offsets": (_topics("topics", "responses", name="topic_name", told="topic_name"),),
    "share_fetch": (_topic_ids("responses", _partitions()),),
    "share_acknowledge": (_topic_ids("responses", _partitions()),),
}
"""By the name of the API's modules. An API that is not here has one result for the whole request."""


def fields_of(struct: type[Struct], version: int) -> dict[str, Any]:
    """Return the fields that a struct has in this version, by name."""
    return {field.name: field for field in struct.FIELDS if field.versions[0] <= version <= field.versions[1]}


@lru_cache(maxsize=256)
def levels_of(name: str, request: Any, version: int) -> tuple[Rows, ...]:
    """Return the lists of rows that requests of this version have, the outermost first."""
    present = fields_of(request, version)
    found = next((rows for rows in ROWS.get(name, ()) if rows.request in present), None)
    levels = []
    while found is not None:
        levels.append(found)
        found = found.inner
    return tuple(levels)


@lru_cache(maxsize=256)
def depths_of(name: str, request: Any, version: int) -> dict[str, int]:
    """Return where requests of this version say each of `FACTS`, if they do: 0 for the whole request, 1 for its
    outermost rows, and so on.
    """
    depths: dict[str, int] = {}
    present = fields_of(request, version)
    for field, fact in TOP_LEVEL_FACTS.items():
        if field in present:
            depths.setdefault(fact, 0)
    if name == "find_coordinator":
        depth = 0 if "key" in present else 1
        depths.update({GROUP: depth, TRANSACTIONAL_ID: depth})
    for depth, rows in enumerate(levels_of(name, request, version), 1):
        for _, fact in rows.facts:
            if fact == "resource":
                depths.update({TOPIC: depth, GROUP: depth})
            elif fact in FACTS:
                depths.setdefault(fact, depth)
            elif fact == "topic_id":
                depths.setdefault(TOPIC, depth)
    return depths


class Row:
    """A row of a request. ``inner`` holds the rows inside it, in their order."""

    __slots__ = ("element", "facts", "inner", "is_all", "key")

    def __init__(self, element: Any, key: dict[str, Any], facts: dict[str, Any]) -> None:
        self.element = element
        self.key = key
        """The fields of the response's row that repeat fields of the request's, with their values."""
        self.facts = facts
        """What the row names, with what the rows around it and the whole request name."""
        self.inner: list[Row] = []
        self.is_all = False
        """Whether its list of inner rows is null, which stands for all there are."""

    def leaves(self) -> Iterable[Row]:
        """Return the innermost rows."""
        if not self.inner:
            yield self
        for row in self.inner:
            yield from row.leaves()


class Located:
    """A request with its rows. ``whole`` stands for the request itself; its inner rows are the outermost ones."""

    __slots__ = ("depths", "levels", "whole")

    def __init__(self, levels: tuple[Rows, ...], depths: dict[str, int], whole: Row) -> None:
        self.levels = levels
        self.depths = depths
        self.whole = whole


def locate(name: str, request: Any, version: int, topic_name: Callable[[Uuid], str | None]) -> Located:
    """Find the rows of a request. ``topic_name`` gives the name of a topic id, None for an unknown one."""
    return finish(locate_in_steps(name, request, version, topic_name))


def locate_in_steps(
    name: str, request: Any, version: int, topic_name: Callable[[Uuid], str | None]
) -> Steps[Located]:
    """Do as `locate`, a row at each step."""
    kind: Any = type(request)
    levels = levels_of(name, kind, version)
    depths = depths_of(name, kind, version)
    facts: dict[str, Any] = {}
    present = fields_of(kind, version)
    for field, fact in TOP_LEVEL_FACTS.items():
        if field in present:
            facts[fact] = getattr(request, field)
    if name == "find_coordinator" and "key" in present:
        facts |= _coordinator_key(request, request.key)
    whole = Row(request, {}, facts)
    yield from _add_rows(whole, levels, request, topic_name)
    return Located(levels, depths, whole)


def _add_rows(
    parent: Row, levels: tuple[Rows, ...], request: Any, topic_name: Callable[[Uuid], str | None]
) -> Iterator[None]:
    if not levels:
        return
    rows = levels[0]
    elements = getattr(parent.element, rows.request)
    if elements is None:
        parent.is_all = True
        return
    for element in elements:
        row = Row(element, key_of(rows, element), parent.facts | _facts(rows, element, request, topic_name))
        yield from _add_rows(row, levels[1:], request, topic_name)
        parent.inner.append(row)
        yield


def key_of(rows: Rows, element: Any) -> dict[str, Any]:
    """Return the fields of the response's row that repeat fields of a request's row, with their values."""
    return {
        told: _value(element, field)
        for field, told in rows.key
        if field == ELEMENT or hasattr(element, field)
    }


def _value(element: Any, field: str) -> Any:
    return element if field == ELEMENT else getattr(element, field)


def _facts(
    rows: Rows, element: Any, request: Any, topic_name: Callable[[Uuid], str | None]
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for field, fact in rows.facts:
        if fact == "topic_id":
            if not facts.get(TOPIC) and hasattr(element, field):
                facts[TOPIC] = topic_name(element.topic_id)
        elif fact == "resource":
            kind = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP}.get(element.resource_type)
            if kind is not None:
                facts[kind] = element.resource_name
        elif fact == "key":
            facts |= _coordinator_key(request, element)
        else:
            facts[fact] = _value(element, field)
    return facts


def _coordinator_key(request: Any, key: str) -> dict[str, Any]:
    kind = {GROUP_KEY_TYPE: GROUP, TRANSACTION_KEY_TYPE: TRANSACTIONAL_ID}.get(request.key_type)
    return {kind: key} if kind is not None else {}
