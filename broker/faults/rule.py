"""A rule as data: which requests it matches, for which of these it acts, and how. The words are the same in Python and
in files.

    {"on": "EndTxn", "transactional_id": "a", "nth": 2, "drop_response": "close"}

`WORDS` describes every word; the JSON schema, the error messages and docs/reference/faults.md derive from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from oncelog.broker.faults.crash_point_names import CRASH_POINTS, EVENTS, RESPONSE, event_of
from oncelog.broker.faults.words import WORDS, RuleError, suggestion
from oncelog.broker.handlers.table import BY_NAME
from oncelog.broker.refusal.rows import FACTS


class Rule(NamedTuple):
    """A rule that was checked. ``data`` is the rule as it was written."""

    apis: frozenset[str] | None
    """The names of the APIs' modules; None: every API."""
    filters: dict[str, tuple[Any, ...]]
    """The values that each filter lets pass."""
    count_word: str
    """``nth``, ``first``, ``every``, ``with_probability`` or ``always``."""
    count_value: float
    """The value of ``count_word``."""
    seed: int | None
    action: str
    value: Any
    """The value of ``action``."""
    data: dict[str, Any]

    @property
    def is_about_requests(self) -> bool:
        """Whether the rule acts on requests."""
        return self.action not in EVENT_ACTIONS

    @property
    def counts_responses(self) -> bool:
        """Whether the rule counts responses that have records, not requests."""
        return self.action in RECORD_ACTIONS

    def is_for(self, name: str) -> bool:
        """Whether the rule is for the API with this module name."""
        if self.apis is not None and name not in self.apis:
            return False
        return name in ONLY_FOR.get(self.action, (name,))

    @property
    def text(self) -> str:
        """The rule in one line."""
        return ", ".join(f"{word}: {_shown(value)}" for word, value in self.data.items())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


LISTENER, NODE = "listener", "node"
ROW_FILTERS = FACTS
COUNTS = tuple(name for name, word in WORDS.items() if word.kind == "count")
ACTIONS = tuple(name for name, word in WORDS.items() if word.kind == "action")
EVENT_ACTIONS = frozenset(("refuse_connections", "crash_at"))
"""The actions that are not about the handling of requests: new connections and crash points ask
`FaultRules.fire_for_event` or `fire_for_request`."""
RECORD_ACTIONS = ("truncate", "damage_crc")
"""The actions that change fetched records."""
API_OF_RESPONSE = "end_txn"
"""The API whose response a crash point means if the rule does not say ``on``."""
_RESPONSES = tuple(point for point in CRASH_POINTS if event_of(point) == RESPONSE)


class TargetLimits(NamedTuple):
    """What is known of a target before it runs: what rules cannot do there."""

    refused: Mapping[str, str] = MappingProxyType({})
    """Actions that it cannot perform, with the reason."""
    listeners: Sequence[str] | None = None
    """The names of its listeners; None if they are not known."""
    nodes: Sequence[int] | None = None
    """The ids of its nodes if there are several; None if they are not known."""


NO_LIMITS = TargetLimits()
REFUSED_BY_PROXY = {
    "crash_at": "a proxy cannot let the brokers behind it die: kill the proxy, or a node of the cluster"
}
"""The actions that a proxy cannot perform, with the reason."""
ONLY_FOR = {
    action: tuple(name for name, row in BY_NAME.items() if action in row.faults)
    for action in ("duplicate", *RECORD_ACTIONS)
}
"""The APIs that can take an action, where not all can."""


def parse_rule(data: Any) -> Rule:
    """Check a rule. Raises RuleError, which names the word that is wrong."""
    if not isinstance(data, Mapping):
        raise RuleError(f"a rule is a table of words, not {data!r}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        word = WORDS.get(name)
        if word is None:
            raise RuleError(f"unknown word {name!r}{suggestion(str(name), WORDS)}", name)
        values[name] = word.check(value)
    action = _one_of(ACTIONS, values)
    if action is None:
        raise RuleError(f"the rule says nothing to do: one of {', '.join(ACTIONS)}")
    # A broker that dies each time would never come back.
    count = _one_of(COUNTS, values) or ("nth" if action == "crash_at" else "always")
    if "seed" in values and count != "with_probability":
        raise RuleError("seed belongs to with_probability", "seed")
    if "topic_exists" in values and "topic" not in values:
        raise RuleError("topic_exists belongs to topic", "topic_exists")
    rule = Rule(
        frozenset(values.get("on", ())) or None,
        {name: values[name] for name, word in WORDS.items() if word.kind == "filter" and name in values},
        count,
        values.get(count, 1),
        values.get("seed"),
        action,
        values[action],
        dict(data),
    )
    _check_combinations(rule, values)
    if rule.value in _RESPONSES and rule.apis is None and "on" not in values:
        rule = rule._replace(apis=frozenset((API_OF_RESPONSE,)))
    if rule.apis is not None:
        from oncelog.broker.faults.checks import check_apis

        check_apis(rule)
    return rule


def check_possible(rule: Rule, limits: TargetLimits) -> None:
    """Raises RuleError for an action that the target cannot do, and for a listener or a node that it does not have."""
    if rule.action in limits.refused:
        raise RuleError(f"{rule.action}: {limits.refused[rule.action]}", rule.action)
    for name in rule.filters.get(LISTENER, ()):
        if limits.listeners is not None and name not in limits.listeners:
            raise RuleError(f"listener {name!r} does not exist{suggestion(name, limits.listeners)}", LISTENER)
    for node_id in rule.filters.get(NODE, ()):
        if limits.nodes is not None and node_id not in limits.nodes:
            known = ", ".join(map(str, limits.nodes))
            there = f"there are {known}" if known else "there is only one node"
            raise RuleError(f"node {node_id} does not exist ({there})", NODE)


def _one_of(names: Iterable[str], values: Mapping[str, Any]) -> str | None:
    found = [name for name in names if name in values]
    if len(found) > 1:
        raise RuleError(f"{' and '.join(found)} exclude each other: make two rules", found[1])
    return found[0] if found else None


def _check_combinations(rule: Rule, values: Mapping[str, Any]) -> None:
    filters = WORDS[rule.action].filters
    if filters is None:
        if "on" not in values:
            raise RuleError('the rule does not say "on" which API: a name, a list of names, or "*"')
    else:
        what = rule.action
        if what == "crash_at":
            filters, what = EVENTS[event_of(rule.value)], f"crash_at {rule.value}"
        for name in ("on", *rule.filters):
            if name in values and name not in filters:
                raise RuleError(f"{what} cannot be combined with {name}", name)
    if rule.action == "pause":
        if "client_id" not in values:
            raise RuleError("pause needs client_id: whom to pause", "pause")
        if rule.count_word != "always":
            raise RuleError(
                f"pause holds every request; it cannot be combined with {rule.count_word}", rule.count_word
            )
