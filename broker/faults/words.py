"""The words of rules: what each may say, in a check that names mistakes and in JSON schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from oncelog.broker.faults.crash_point_names import CRASH_POINTS, EVENTS, RESPONSE
from oncelog.broker.handlers.table import api_names
from oncelog.wire.errors import ErrorCode

CLOSE, HANG = "close", "hang"
EVERY_API = "*"
LOGIN_APIS = ("SaslHandshake", "SaslAuthenticate")
"""Requests that a connection takes while it logs in, and that no rule sees."""

NAME_LENGTH_MAX = 100
"""Characters of a wrong name for which a similar one is looked for."""
VERSION_MAX = 99
"""The highest version that ``version`` may name: above every API's."""

Schema = dict[str, Any]
"""A fragment of JSON schema."""


class RuleError(ValueError):
    """A rule that makes no sense. ``word`` is the word of the rule that is wrong, None for the rule as a whole."""

    def __init__(self, message: str, word: str | None = None) -> None:
        super().__init__(message)
        self.word = word


class Word(NamedTuple):
    """One word of a rule.

    ``check(value)`` returns the value in its normal form, or raises RuleError. ``schema`` describes it to other
    programs.
    """

    kind: str
    """``on``, ``filter``, ``count``, ``option`` or ``action``."""
    check: Callable[[Any], Any]
    schema: Schema
    text: str
    filters: tuple[str, ...] | None = None
    """The filters of an action that is not about an API; None for an action that is."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the closest known one, or all of a few."""
    import difflib

    known = list(known)
    if len(word) > NAME_LENGTH_MAX:
        return ""
    by_lower = {name.replace("_", "").lower(): name for name in known}
    close = difflib.get_close_matches(word.replace("_", "").lower(), by_lower, 1, 0.6)
    if close:
        return f": did you mean {by_lower[close[0]]}?"
    return f" (there are {', '.join(known)})" if 0 < len(known) <= 20 else ""


# -- the values of words


def _names_or(one: Schema) -> Schema:
    return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def _listed(word: str, value: Any, kind: type, what: str) -> tuple[Any, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise RuleError(f"{word} is an empty list", word)
    for one in values:
        if not isinstance(one, kind) or isinstance(one, bool) or one == "":
            raise RuleError(f"{word} is {what}, or a list of such, not {one!r}", word)
    return tuple(values)


def _text(word: str) -> Callable[[Any], Any]:
    return lambda value: _listed(word, value, str, "a text")


def _number(word: str) -> Callable[[Any], Any]:
    def check(value: Any) -> tuple[Any, ...]:
        values = _listed(word, value, int, "a number")
        if min(values) < 0:
            raise RuleError(f"{word} is a number from 0 on", word)
        return values

    return check


def _version(value: Any) -> tuple[int, ...]:
    """Return all versions that are meant."""
    found: set[int] = set()
    for one in value if isinstance(value, list | tuple) else [value]:
        text = str(one) if not isinstance(one, bool) else ""
        first, dash, last = text.removesuffix("+").partition("-")
        if text.endswith("+"):
            dash, last = "-", str(VERSION_MAX)
        bounds = (first, last) if dash else (first,)
        if not all(re.fullmatch("[0-9]{1,2}", bound) for bound in bounds):
            raise RuleError(f'version is a number, or versions as in "0-3" and "4+", not {one!r}', "version")
        found.update(range(int(first), int(last if dash else first) + 1))
    if not found:
        raise RuleError(f"version {value!r} means no version", "version")
    return tuple(sorted(found))


def _count(word: str) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RuleError(f"{word} is a number from 1 on, not {value!r}", word)
        return value

    return check


def _probability(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise RuleError(f"with_probability is a number from 0 to 1, not {value!r}", "with_probability")
    return float(value)


def _seed(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RuleError(f"seed is a whole number, not {value!r}", "seed")
    return value


def _true(word: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not True:
            raise RuleError(f"{word} is true, or not there; not {value!r}", word)
        return value

    return check


def _boolean(word: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, bool):
            raise RuleError(f"{word} is true or false, not {value!r}", word)
        return value

    return check


def _milliseconds(word: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**31:
            raise RuleError(f"{word} is a number of milliseconds, not {value!r}", word)
        if 0 < value < 1:
            raise RuleError(
                f"{word} is a number of milliseconds, and {value!r} is less than one: {value!r} s are {value * 1000:g}",
                word,
            )
        return value

    return check


def _connection(word: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is True:
            return CLOSE
        if value not in (CLOSE, HANG):
            raise RuleError(
                f'{word} is "close" or "hang" (what becomes of the connection), not {value!r}', word
            )
        return value

    return check


def _error(value: Any) -> ErrorCode:
    if not isinstance(value, str):
        raise RuleError(
            f"error is the name of an error, such as NOT_LEADER_OR_FOLLOWER, not {value!r}", "error"
        )
    found = ErrorCode.__members__.get(value)
    if found is None or found is ErrorCode.NONE:
        names = [name for name in ErrorCode.__members__ if name != "NONE"]
        raise RuleError(f"unknown error {value!r}{suggestion(value, names)}", "error")
    return found


def _crash_at(value: Any) -> str:
    if value not in CRASH_POINTS:
        raise RuleError(f"unknown crash point {value!r}{suggestion(str(value), CRASH_POINTS)}", "crash_at")
    return str(value)


def _on(value: Any) -> tuple[str, ...]:
    names = _listed("on", value, str, "the name of an API, such as EndTxn")
    known = api_names()
    if EVERY_API in names:
        return ()
    for name in names:
        if name not in known:
            raise RuleError(f"unknown API {name!r}{suggestion(name, known)}", "on")
        if name in LOGIN_APIS:
            raise RuleError(
                f"{name} is a part of the log-in, which no rule sees: a wrong password fails it, and "
                "refuse_connections keeps clients out",
                "on",
            )
    return tuple(known[name] for name in names)


_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_FROM_ONE: Schema = {"type": "integer", "minimum": 1}
_IS_TRUE: Schema = {"const": True}
_CONNECTION: Schema = {"enum": [CLOSE, HANG, True]}
_MS: Schema = {"type": "number", "anyOf": [{"const": 0}, {"minimum": 1}]}

WORDS: dict[str, Word] = {
    "on": Word(
        "on", _on, {}, 'Kafka\'s name of an API, or a list, or "*" for every API but those of the log-in.'
    ),
    "topic": Word("filter", _text("topic"), _names_or(_TEXT), "Requests with a row for this topic."),
    "partition": Word(
        "filter", _number("partition"), _names_or(_NUMBER), "Requests with a row for this partition."
    ),
    "group": Word("filter", _text("group"), _names_or(_TEXT), "Requests that name this group."),
    "transactional_id": Word(
        "filter", _text("transactional_id"), _names_or(_TEXT), "Requests that name this transactional id."
    ),
    "client_id": Word("filter", _text("client_id"), _names_or(_TEXT), "Requests of this client id."),
    "version": Word(
        "filter",
        _version,
        _names_or({"oneOf": [_NUMBER, {"type": "string", "pattern": r"^\d+(-\d+|\+)?$"}]}),
        'Requests of this version: 9, "9-11" or "9+".',
    ),
    "listener": Word(
        "filter", _text("listener"), _names_or(_TEXT), "Requests that come in by this listener."
    ),
    "node": Word(
        "filter", _number("node"), _names_or(_NUMBER), "Requests to the node with this id, of several."
    ),
    "topic_exists": Word(
        "option",
        _boolean("topic_exists"),
        {"type": "boolean"},
        "false: the topic, or the partition, is created only later.",
    ),
    "nth": Word("count", _count("nth"), _FROM_ONE, "Only the n-th request that matches."),
    "first": Word("count", _count("first"), _FROM_ONE, "The first n requests that match."),
    "every": Word("count", _count("every"), _FROM_ONE, "Every n-th request that matches."),
    "with_probability": Word(
        "count", _probability, {"type": "number", "minimum": 0, "maximum": 1}, "Each with this probability."
    ),
    "always": Word(
        "count",
        _true("always"),
        _IS_TRUE,
        "Every request that matches: the default where no count is given, except with crash_at.",
    ),
    "seed": Word(
        "option", _seed, {"type": "integer"}, "Of with_probability; without it, one is drawn and told."
    ),
    "error": Word("action", _error, {}, "Refused with this error, where Kafka puts it."),
    "delay_ms": Word("action", _milliseconds("delay_ms"), _MS, "Handled so many milliseconds later."),
    "drop_request": Word(
        "action",
        _connection("drop_request"),
        _CONNECTION,
        'Never handled. "close" ends the connection; with "hang" it stays open and silent.',
    ),
    "drop_response": Word(
        "action",
        _connection("drop_response"),
        _CONNECTION,
        'Handled, but no response. "close" and "hang" as for drop_request.',
    ),
    "close": Word("action", _true("close"), _IS_TRUE, 'As "drop_request": "close".'),
    "throttle_ms": Word(
        "action",
        _milliseconds("throttle_ms"),
        _MS,
        "The response says throttle_time_ms, and its connection is muted.",
    ),
    "hold": Word(
        "action", _true("hold"), _IS_TRUE, "Waits before it is handled, until the rule is released."
    ),
    "duplicate": Word("action", _true("duplicate"), _IS_TRUE, "Handled twice; the second response is sent."),
    "truncate": Word(
        "action", _true("truncate"), _IS_TRUE, "The last fetched batch of each row ends in its middle."
    ),
    "damage_crc": Word(
        "action", _true("damage_crc"), _IS_TRUE, "The first fetched batch of each row has a wrong CRC."
    ),
    "pause": Word(
        "action",
        _true("pause"),
        _IS_TRUE,
        "Every request of client_id waits until the rule is released.",
        ("client_id", "listener", "node"),
    ),
    "refuse_connections": Word(
        "action",
        _true("refuse_connections"),
        _IS_TRUE,
        "New connections are closed at once.",
        ("listener", "node"),
    ),
    "crash_at": Word(
        "action",
        _crash_at,
        {"enum": list(CRASH_POINTS)},
        "The broker dies there, the first time if nothing else is said.",
        # All filters of any crash point; `rule._check_combinations` takes those of its event.
        EVENTS[RESPONSE],
    ),
}
