"""The fields of messages that name topics, groups and transactional ids, found in the declarations of messages.

Most names of fields say what they hold. Kafka's message definitions mark the same fields by ``entityType``; a test
compares.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from oncelog.broker.handlers.rights import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from oncelog.broker.handlers.table import api_names
from oncelog.broker.refusal.rows import GROUP_CONFIG, TOPIC_CONFIG
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import Field, Struct

ACL_ANY, ACL_TOPIC, ACL_GROUP, ACL_TRANSACTIONAL_ID = 1, 2, 3, 5
"""Resource types of ACLs (Kafka: ``ResourceType``); those of configurations are others."""
SHARE_KEY_TYPE = 2
"""The key type of FindCoordinator for a share group's partition (Kafka: ``CoordinatorType``)."""


class Kind(NamedTuple):
    """What is named, and how messages say so."""

    word: str
    entity_type: str
    """Kafka's word for it in message definitions."""
    fields: frozenset[str]
    lists: frozenset[str]
    """Lists of names."""
    expressions: frozenset[str]
    """Regular expressions for names."""
    acl_type: int
    config_type: int | None
    key_type: int | None
    """Of FindCoordinator."""
    refusal: ErrorCode
    """The answer to a name that cannot be."""


TOPICS = Kind(
    "topic",
    "topicName",
    frozenset(("topic", "topic_name")),
    frozenset(("topic_names", "subscribed_topic_names")),
    frozenset(("subscribed_topic_regex",)),
    ACL_TOPIC,
    TOPIC_CONFIG,
    None,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
GROUPS = Kind(
    "group",
    "groupId",
    frozenset(("group_id",)),
    frozenset(("group_ids", "groups_names", "groups")),
    frozenset(),
    ACL_GROUP,
    GROUP_CONFIG,
    GROUP_KEY_TYPE,
    ErrorCode.INVALID_GROUP_ID,
)
TRANSACTIONAL_IDS = Kind(
    "transactional id",
    "transactionalId",
    frozenset(("transactional_id", "v3_and_below_transactional_id")),
    frozenset(("transactional_ids",)),
    frozenset(("transactional_id_pattern",)),
    ACL_TRANSACTIONAL_ID,
    None,
    TRANSACTION_KEY_TYPE,
    ErrorCode.INVALID_REQUEST,
)
KINDS = (TOPICS, GROUPS, TRANSACTIONAL_IDS)

_CONFIG = ("resource_type", "resource_name")
_ACLS = (
    ("resource_type", "resource_name", "resource_pattern_type"),
    ("resource_type", "resource_name", "pattern_type"),
    ("resource_type_filter", "resource_name_filter", "pattern_type_filter"),
)


class Places(NamedTuple):
    """The fields of one struct that name something of one kind."""

    names: tuple[str, ...]
    lists: tuple[str, ...]
    expressions: tuple[str, ...]
    configs: tuple[tuple[str, str], ...]
    """Type and name of a resource of a configuration."""
    acls: tuple[tuple[str, str, str], ...]
    """Type, name and pattern type of a resource of ACLs."""
    inner: tuple[str, ...]
    """Structs, and lists of structs, that have such fields."""


@cache
def places_in(struct: type[Struct], kind: Kind) -> Places:
    """Return where a struct names something of this kind. The keys of FindCoordinator are not among them: only its
    requests say what they name.
    """
    fields = {field.name: field for field in struct.FIELDS}
    is_topic = kind == TOPICS and "Topic" in struct.__name__ and "Config" not in struct.__name__
    strings = [name for name, field in fields.items() if field.kind == "string"]
    string_lists = [name for name, field in fields.items() if _is_string_list(field)]
    inner = []
    for name, field in fields.items():
        element: Any = field.element
        if isinstance(element, type) and any(places_in(element, kind)):
            inner.append(name)
    acls = tuple(names for names in _ACLS if fields.keys() >= set(names))
    configs = (
        (_CONFIG,) if not acls and kind.config_type is not None and fields.keys() >= set(_CONFIG) else ()
    )
    return Places(
        tuple(name for name in strings if name in kind.fields or (is_topic and name == "name")),
        tuple(name for name in string_lists if name in kind.lists),
        tuple(name for name in strings if name in kind.expressions),
        configs,
        acls,
        tuple(inner),
    )


def _is_string_list(field: Field) -> bool:
    return isinstance(field.element, Field) and field.element.kind == "string"


def apis_that_name(kind: Kind) -> frozenset[str]:
    """Return Kafka's names of the APIs whose requests or responses name something of this kind. Imports the
    declarations of all messages (40 ms).
    """
    return frozenset(name for name, module in api_names().items() if _names_some(module, name, kind))


def _names_some(module: str, name: str, kind: Kind) -> bool:
    messages = importlib.import_module(f"oncelog.wire.messages.{module}")
    request, response = getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")
    has_keys = kind.key_type is not None and module == "find_coordinator"
    return has_keys or any(places_in(request, kind)) or any(places_in(response, kind))


class Renaming(NamedTuple):
    """Functions that give the new one of each; None where there is none."""

    name: Callable[[str], str | None]
    acl: Callable[[str, int], tuple[str, int] | None]
    """From a name and a pattern type to both."""
    expression: Callable[[str], str | None]


def rename(message: Struct, kind: Kind, renaming: Renaming) -> bool:
    """Rename all that the message names of this kind. Rows and names in lists without a new name are left out; returns
    False where the message itself has to be.

    An empty name stands for none, and stays.
    """
    places = places_in(type(message), kind)
    for field in places.names:
        name = getattr(message, field)
        if name:
            new = renaming.name(name)
            if new is None:
                return False
            setattr(message, field, new)
    for field in places.lists:
        names = getattr(message, field)
        if names:
            setattr(message, field, [new for new in map(renaming.name, names) if new is not None])
    for field in places.expressions:
        expression = getattr(message, field)
        if expression:
            setattr(message, field, renaming.expression(expression))
    for type_field, field in places.configs:
        name = getattr(message, field)
        if getattr(message, type_field) == kind.config_type and name:
            new = renaming.name(name)
            if new is None:
                return False
            setattr(message, field, new)
    for type_field, field, pattern_field in places.acls:
        name = getattr(message, field)
        if getattr(message, type_field) == kind.acl_type and name:
            changed = renaming.acl(name, getattr(message, pattern_field))
            if changed is None:
                return False
            setattr(message, field, changed[0])
            setattr(message, pattern_field, changed[1])
    return all(_rename_inner(message, field, kind, renaming) for field in places.inner)


def _rename_inner(message: Struct, field: str, kind: Kind, renaming: Renaming) -> bool:
    value = getattr(message, field)
    if isinstance(value, Struct):
        return rename(value, kind, renaming)
    if value:
        setattr(message, field, [row for row in value if rename(row, kind, renaming)])
    return True


def rename_key(key: str, key_type: int, kind: Kind, renaming: Renaming) -> str | None:
    """Return the new key of FindCoordinator, None if there is none. That of a share group's partition is
    ``group:topic id:partition`` (Kafka: ``SharePartitionKey``).
    """
    if key and key_type == kind.key_type:
        return renaming.name(key)
    if kind == GROUPS and key_type == SHARE_KEY_TYPE and key.count(":") >= 2:
        group, topic_id, partition = key.rsplit(":", 2)
        new = renaming.name(group) if group else group
        return None if new is None else f"{new}:{topic_id}:{partition}"
    return key
