"""Every field of every API version that names a topic, a group or a transactional id gets its other name.

Kafka's message definitions mark these fields. What they do not mark stands here, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import pytest
import trio

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.filters.named_fields import KINDS, Kind, apis_that_name
from oncelog.broker.filters.renaming import rename_groups, rename_topics, rename_transactional_ids
from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.schema import Field, Message, Struct
from tests.common import definitions
from tests.common.definitions import in_versions, snake

PREFIX = "a."
EXPRESSION = "a\\.(?:"
FILTERS = {
    "topic": rename_topics(prefix=PREFIX),
    "group": rename_groups(prefix=PREFIX),
    "transactional id": rename_transactional_ids(prefix=PREFIX),
}
WORDS = [kind.word for kind in KINDS]
KIND_OF = {kind.word: kind for kind in KINDS}

RESOURCE_TYPES = {
    "Configs": {"topic": 2, "group": 32},
    "Acls": {"topic": 2, "group": 3, "transactional id": 5},
}
KEY_TYPES = {"group": 0, "transactional id": 1}
NOT_RENAMED = {
    "error_message": "a text for people; the cluster's names stand in it",
    "acknowledge_error_message": "likewise",
    "batch_index_error_message": "likewise",
    "group_instance_id": "a member's name for itself, unique in its group",
    "group_state": "a state",
    "group_type": "a type",
    "transaction_state": "a state",
    "entity_name": "quotas are about users, client ids and addresses",
    "configs.name": "the name of a setting",
    "configs.value": "the value of a setting",
    "configs.synonyms.value": "the value of a setting",
    "configs.documentation": "a text for people",
    "config_resources.resource_name": "in version 0 always a subscription to metrics of clients",
    "configs.synonyms.name": "the name of a setting",
    "configuration_keys": "names of settings",
    "ops.key": "the name of a quota",
    "values.key": "the name of a quota",
}
"""By the end of the path: strings that look as if they had such names."""
SUSPICIOUS = (
    "group",
    "topic",
    "transaction",
    "resource",
    "key",
    "regex",
    "pattern",
    "message",
    "entity_name",
    "config",
)


class Case:
    """One message in one version: a struct whose texts are all different, and the paths of Kafka's marked fields."""

    def __init__(self, api_key: int, name: str, version: int, kind: type[Message]) -> None:
        self.api = Api(HANDLERS[api_key], is_handled=False)
        self.name = name
        self.version = version
        self.kind = kind

    @property
    def family(self) -> str:
        """The group of APIs whose resource types agree."""
        return "Acls" if "Acls" in self.name else "Configs"

    def filled(self, word: str, begin: str) -> Any:
        return _filled(self.kind, self.version, begin, self._facts(word))

    def _facts(self, word: str) -> dict[str, int]:
        resource_type = RESOURCE_TYPES[self.family].get(word, 0)
        return {
            "resource_type": resource_type,
            "resource_type_filter": resource_type,
            "key_type": KEY_TYPES.get(word, 99),
        }

    def strings(self, message: Any) -> dict[str, str]:
        """The texts of an encoded message by their paths, as Kafka's definitions read them."""
        fields = definitions.decode(self.name, self.version, message.encode(self.version))
        return dict(_strings(fields, ""))

    def expected(self, word: str) -> set[str]:
        """The paths of what is renamed in this version: what Kafka marks, and `unmarked`."""
        return {
            path
            for path, entity_type in fields_of(self.name, self.version)
            if entity_type == KIND_OF[word].entity_type or word in self.unmarked(path)
        }

    def unmarked(self, path: str) -> Collection[str]:
        """What a text names, though Kafka's definitions do not mark it."""
        end = path.split(".")[-1]
        if end in (
            "resource_name",
            "resource_name_filter",
        ):  # by the resource's type, which version 0 has not
            is_client_metric = self.name.startswith("ListConfigResources") and self.version == 0
            return () if is_client_metric else RESOURCE_TYPES[self.family]
        if end in ("key", "coordinator_keys") and self.name.startswith("FindCoordinator"):  # by key_type
            return KEY_TYPES if self.version else ("group",)
        if end == "group_id" and "ShareGroupState" in self.name:  # a request between brokers
            return ("group",)
        expressions = {
            "subscribed_topic_regex": ("topic",),
            "transactional_id_pattern": ("transactional id",),
        }
        return expressions.get(end, ())


def _filled(struct: Any, version: int, begin: str, facts: dict[str, int], path: str = "") -> Any:
    values: dict[str, Any] = {}
    for field in struct.FIELDS:
        if field.versions[0] <= version <= field.versions[1]:
            here = f"{path}.{field.name}".lstrip(".")
            values[field.name] = _value(field, version, begin, facts, here)
    return struct(**{name: value for name, value in values.items() if value is not None})


def _value(field: Field, version: int, begin: str, facts: dict[str, int], path: str) -> Any:
    if field.name in facts:
        return facts[field.name]
    if field.kind == "string":
        expression = "regex" in field.name or "pattern" in field.name
        return f"{EXPRESSION}{path})" if expression and begin else f"{begin}{path}"
    if field.kind == "records":
        return b""
    if isinstance(field.element, type) and issubclass(field.element, Struct):
        inner = _filled(field.element, version, begin, facts, path)
        return [inner] if field.kind == "array" else inner
    if isinstance(field.element, Field) and field.element.kind == "string":
        return [f"{begin}{path}"]
    return None


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(inner, f"{path}.{name}".lstrip("."))


@cache
def fields_of(name: str, version: int) -> list[tuple[str, str]]:
    """The paths of all texts in a version, with their entity types, from Kafka's definitions."""
    message = definitions.definition(name)
    shared = {one["name"]: one["fields"] for one in message.get("commonStructs", ())}

    def walk(fields: list[dict[str, Any]], path: str) -> Iterator[tuple[str, str]]:
        for field in fields:
            if in_versions(field.get("versions", field.get("taggedVersions")), version):
                here = f"{path}.{snake(field['name'])}".lstrip(".")
                kind = field["type"].removeprefix("[]")
                if kind == "string":
                    yield here, field.get("entityType", "")
                yield from walk(field.get("fields") or shared.get(kind, []), here)

    return list(walk(message["fields"], ""))


def cases(suffix: str) -> Iterator[Case]:
    for key, handler in HANDLERS.items():
        name = f"{api_name(handler.name)}{suffix}"
        api = Api(handler, is_handled=False)
        kind: Any = api.request if suffix == "Request" else api.response
        for version in range(handler.min_version, handler.max_version + 1):
            yield Case(key, name, version, kind)


def context_of(case: Case, request: Any) -> RequestContext:
    nobody: Any = None
    return RequestContext(case.api, case.version, 1, "client", nobody, request)


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {path for path in before if before[path] != after[path]}


def asked(kind: Interceptor, context: RequestContext) -> None:
    assert trio.run(kind.on_request, context) is None


@pytest.mark.parametrize("word", WORDS)
def test_requests(word: str) -> None:
    for case in cases("Request"):
        request = case.filled(word, "")
        before = case.strings(request)
        context = context_of(case, request)
        asked(FILTERS[word], context)
        after = case.strings(context.request)
        expected = case.expected(word)
        assert changed(before, after) == expected, f"{case.name} v{case.version}"
        for path in expected:
            assert after[path].startswith((PREFIX, EXPRESSION)), f"{case.name}.{path}"
        assert not expected or api_name(case.api.row.name) in apis_that_name(KIND_OF[word])


@pytest.mark.parametrize("word", WORDS)
def test_responses(word: str) -> None:
    """And those with names that the client does not see have none of them."""
    requests = {(case.api.row.api_key, case.version): case for case in cases("Request")}
    for case in cases("Response"):
        asking = requests[case.api.row.api_key, case.version]
        context = context_of(case, asking.filled(word, ""))
        asked(FILTERS[word], context)
        response = case.filled(word, PREFIX)
        before = case.strings(response)
        renamed = trio.run(FILTERS[word].on_response, context, response)
        expected = case.expected(word)
        assert changed(before, case.strings(renamed)) == expected, f"{case.name} v{case.version}"
        for path, text in case.strings(renamed).items():
            assert path not in expected or not text.startswith((PREFIX, EXPRESSION)), f"{case.name}.{path}"
        assert not expected or api_name(case.api.row.name) in apis_that_name(KIND_OF[word])


def test_what_looks_like_a_name_is_one_or_has_a_reason() -> None:
    """No text of any message is forgotten because Kafka's definitions do not mark it."""
    forgotten = set()
    for suffix in ("Request", "Response"):
        for case in cases(suffix):
            for path, entity_type in fields_of(case.name, case.version):
                is_suspicious = any(word in path.split(".")[-1] for word in SUSPICIOUS) or ".configs." in path
                is_named = entity_type or case.unmarked(path)
                if is_suspicious and not is_named and not path.endswith(tuple(NOT_RENAMED)):
                    forgotten.add(f"{case.name}.{path}")
    assert forgotten == set()


def test_every_kind_of_kafka_is_one_or_no_name() -> None:
    """Of the entity types of Kafka's definitions only numbers are not renamed."""
    found = {
        entity
        for suffix in ("Request", "Response")
        for case in cases(suffix)
        for _, entity in fields_of(case.name, case.version)
    }
    known = {kind.entity_type for kind in KINDS}
    assert found - {""} == known


@pytest.mark.parametrize("kind", KINDS, ids=WORDS)
def test_apis_without_such_names_pass_unread(kind: Kind) -> None:
    named = apis_that_name(kind)
    assert "ApiVersions" not in named
    assert ("Fetch" in named, "Produce" in named) == {
        "topic": (True, True),
        "group": (False, False),
        "transactional id": (False, True),
    }[kind.word]
