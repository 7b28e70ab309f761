"""Decoded messages as the journal needs them: the errors in them, copies, the names of topics that they know by id, and
no secrets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from oncelog.broker.config.definitions import is_secret
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import ZERO_UUID, Struct, Uuid

TOPIC_NAMES = ("name", "topic", "topic_name")
"""The names of the field for a topic's name, beside ``topic_id``."""
SECRETS: Final = frozenset(("auth_bytes", "hmac", "salted_password"))
"""Fields with secrets: tokens of a log-in, of a delegation token, of SCRAM. Bytes in every message that has them."""
HIDDEN: Final = "[hidden]"
"""The text in the place of a secret, as in Kafka's ``Password``."""


class _Plan(NamedTuple):
    """The fields of a struct that have errors, and the lists that do."""

    codes: tuple[str, ...]
    lists: tuple[tuple[str, _Plan], ...]
    """Lists of structs that have errors; and other lists of structs, whose rows are only counted."""


@cache
def _plan(struct: type[Struct]) -> _Plan:
    codes, lists = [], []
    for field in struct.FIELDS:
        if field.kind == "int16" and field.name.endswith("error_code"):
            codes.append(field.name)
        elif field.kind == "array" and isinstance(field.element, type):
            lists.append((field.name, _plan(field.element)))
    return _Plan(tuple(codes), tuple(lists))


def errors_and_rows(response: Struct) -> tuple[tuple[str, ...], int]:
    """Return the names of the errors in a response, each once, and the number of its rows."""
    codes: dict[int, None] = {}
    rows = _collect(response, _plan(type(response)), codes)
    return tuple(_error_name(code) for code in codes) if codes else (), rows


def _collect(struct: Any, plan: _Plan, codes: dict[int, None]) -> int:
    for name in plan.codes:
        code = getattr(struct, name)
        if code:
            codes[code] = None
    rows = 0
    for name, inner in plan.lists:
        elements = getattr(struct, name)
        if elements:
            rows += len(elements)
            for element in elements:
                rows += _collect(element, inner, codes)
    return rows


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def hide_secrets(message: Any) -> None:
    """Put `HIDDEN` in place of the secrets in a message, and of the values of secret configuration keys."""
    fields = message.FIELDS
    for field in fields:
        value = getattr(message, field.name)
        if field.name in SECRETS and value:
            setattr(message, field.name, HIDDEN.encode())
        elif isinstance(value, Struct):
            hide_secrets(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            if not _has_secrets(type(value[0])):
                continue
            for element in value:
                hide_secrets(element)
    struct: type[Struct] = type(message)
    if _is_config(struct) and message.value and is_secret(message.name):
        message.value = HIDDEN


@cache
def _has_secrets(struct: type[Struct]) -> bool:
    """Whether `hide_secrets` may find something in a struct."""
    return _is_config(struct) or any(
        field.name in SECRETS or (isinstance(field.element, type) and _has_secrets(field.element))
        for field in struct.FIELDS
    )


@cache
def _is_config(struct: type[Struct]) -> bool:
    kinds = {field.name: field.kind for field in struct.FIELDS}
    return kinds.get("name") == kinds.get("value") == "string"


def name_topics(message: Any, topic_name: Callable[[Uuid], str | None]) -> None:
    """Fill in the names of topics that the message has by id."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if isinstance(value, Struct):
            name_topics(value, topic_name)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for element in value:
                name_topics(element, topic_name)
    topic_id = getattr(message, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        for field in message.FIELDS:
            if field.name in TOPIC_NAMES and not getattr(message, field.name):
                setattr(message, field.name, topic_name(topic_id) or "")
