"""`rename_topics`: other names for topics, wherever a request or a response has them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.wire.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_RESOURCE = 2
"""The resource type of topics, of configurations and of ACLs (Kafka: ``ConfigResource.Type``, ``ResourceType``)."""
_NAMES = frozenset(("topic", "topic_name"))
_LISTS = frozenset(("topic_names", "subscribed_topic_names"))
_RESOURCES = (("resource_type", "resource_name"), ("resource_type_filter", "resource_name_filter"))


class _Plan(NamedTuple):
    """The fields of a struct that name topics, and the lists that do."""

    names: tuple[str, ...]
    lists: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    inner: tuple[str, ...]
    """Structs, and lists of structs, that have some."""


@cache
def topic_fields(struct: type[Struct]) -> _Plan:
    """Return where a struct has names of topics. (Kafka's definitions mark most of them as ``topicName``.)"""
    is_topic = "Topic" in struct.__name__ and "Config" not in struct.__name__
    kinds = {field.name: field for field in struct.FIELDS}
    names = [
        field.name
        for field in struct.FIELDS
        if field.kind == "string" and (field.name in _NAMES or (field.name == "name" and is_topic))
    ]
    inner = []
    for field in struct.FIELDS:
        element: Any = field.element
        if isinstance(element, type) and any(topic_fields(element)):
            inner.append(field.name)
    return _Plan(
        tuple(names),
        tuple(name for name in kinds if name in _LISTS and kinds[name].kind == "array"),
        tuple(pair for pair in _RESOURCES if pair[0] in kinds and pair[1] in kinds),
        tuple(inner),
    )


def rename_topics(message: Any, names: Mapping[str, str]) -> None:
    """Put other names for topics into a request or a response: ``names`` has the new one of each.

    Not renamed: topics that a message names by id, regular expressions of subscriptions, and what members of classic
    groups tell each other in bytes of their own.
    """
    struct: type[Struct] = type(message)
    plan = topic_fields(struct)
    for field in plan.names:
        name = getattr(message, field)
        if name in names:
            setattr(message, field, names[name])
    for field in plan.lists:
        listed = getattr(message, field)
        if listed:
            setattr(message, field, [names.get(name, name) for name in listed])
    for kind, field in plan.resources:
        if getattr(message, kind) == TOPIC_RESOURCE:
            name = getattr(message, field)
            setattr(message, field, names.get(name, name))
    for field in plan.inner:
        value = getattr(message, field)
        if isinstance(value, Struct):
            rename_topics(value, names)
        else:
            for row in value or ():
                rename_topics(row, names)
