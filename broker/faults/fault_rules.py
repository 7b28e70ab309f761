"""`FaultRules`: the rules of a broker, between its clients and its handlers, or of a proxy, between its clients and the
cluster behind it.

They are installed in the dispatcher of a node or a proxy only while there are any, and outlive it: `attach` gives them
the next one. Of several nodes each is a target; a rule counts what passes any of them, unless it names some. Several
rules may match one request: all of them count it when it arrives, then they act in the order of their addition.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import trio

from oncelog.broker.dispatch.interfaces import Interceptor, KnownTopics, RequestPath
from oncelog.broker.faults.active_rule import ActiveRule
from oncelog.broker.faults.exchange import Exchange, is_without_response
from oncelog.broker.faults.fetched import (
    RememberedFetches,
    RememberedShareFetches,
    add_session,
    add_share_session,
)
from oncelog.broker.faults.rule import (
    LISTENER,
    NO_LIMITS,
    NODE,
    ONLY_FOR,
    Rule,
    TargetLimits,
    check_possible,
    parse_rule,
)
from oncelog.broker.faults.state import RuleState
from oncelog.broker.faults.words import RuleError, suggestion
from oncelog.broker.handlers.table import PARTITION, TOPIC, api_name
from oncelog.broker.refusal.rows import RequestRows, Row, rows_of_request
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.wire.schema import Uuid

TOPIC_MAY_BE_MISSING = frozenset(("create_topics", "metadata", "describe_topic_partitions", "delete_topics"))
"""APIs whose requests often name a topic that does not exist."""


RULES_MAX = 1_000
"""How many rules may be in force at once. Each looks at every request."""


class RuleTimeoutError(Exception):
    """A rule did not fire in time."""


class UnknownRuleError(Exception):
    """There is no rule with this id, or it was removed."""


class Target(Protocol):
    """A `Node` or a proxy in which rules are in force."""

    @property
    def dispatcher(self) -> RequestPath:
        """The dispatcher in which rules are installed."""

    @property
    def known_topics(self) -> KnownTopics:
        """The topics that there are."""

    @property
    def fetch_sessions(self) -> RememberedFetches:
        """The partitions of fetch sessions."""

    @property
    def share_sessions(self) -> RememberedShareFetches | None:
        """The partitions of share sessions; None if they are not known."""


class FaultRules(Interceptor):
    """``rng`` draws the seeds of rules that say none. ``limits`` say what its targets cannot do, and which listeners
    they have.
    """

    def __init__(self, rng: random.Random, limits: TargetLimits = NO_LIMITS) -> None:
        self._rng = rng
        self.limits = limits
        self._rules: list[ActiveRule] = []
        self._removed: deque[RuleState] = deque(maxlen=RULES_MAX)
        self._next_id = 1
        self._targets: dict[int | None, Target] = {}
        """By node id; None: the only one."""
        self._installed: set[int | None] = set()
        """The targets whose dispatchers have the rules."""
        self._changed = trio.Event()
        self.on_change: list[Callable[[Any, FaultRules], None]] = []
        """Called for each target after each change of the rules, and for one that is attached."""
        self.on_fired: list[Callable[[], None]] = []
        """Called when a rule has fired, before anything else happens to the request, and when it releases one."""

    # -- the targets

    def attach(self, target: Target, node_id: int | None = None) -> None:
        """From now on the rules are for ``target``, whose dispatcher exists: call it before the target listens.
        ``node_id``: which one of several nodes it is.
        """
        self._targets[node_id] = target
        self._installed.discard(node_id)
        self._install([node_id])

    def detach(self, node_id: int | None = None) -> None:
        """The target has ended. The rules stay, for the next one."""
        self._targets.pop(node_id, None)
        self._installed.discard(node_id)

    def _target_of(self, context: RequestContext) -> Target:
        node_id = context.connection.node_id
        return self._targets[node_id if node_id in self._targets else None]

    def _install(self, node_ids: Iterable[int | None]) -> None:
        """Install in the targets exactly what the rules need."""
        rules = [active.rule for active in self._rules if active.rule.is_about_requests]
        apis = apis_of(rules)
        # An interceptor is asked for `apis` at its installation only: other APIs need another one.
        is_same = bool(rules) and apis == self.apis
        if rules:
            self.apis = apis
        accepts = self._accepts if self.of("refuse_connections") else None
        for node_id in node_ids:
            target = self._targets[node_id]
            interception = target.dispatcher.interception
            if node_id in self._installed and not is_same:
                interception.remove(self)
                self._installed.discard(node_id)
            if rules and node_id not in self._installed:
                interception.install(self)
                self._installed.add(node_id)
            interception.accepts = accepts
            for call in self.on_change:
                call(target, self)

    # -- the rules

    def add(self, data: Mapping[str, Any] | Rule, *, topics_must_exist: bool = False) -> int:
        """Add a rule; return its id. Raises RuleError, before anything has changed.

        ``topics_must_exist``: a topic of the rule that the target does not have is an error, too, and so is a partition
        that none of its topics has, unless the rule says ``topic_exists: false``.
        """
        rule = data if isinstance(data, Rule) else parse_rule(data)
        check_possible(rule, self.limits)
        if topics_must_exist:
            self.check_topics(rule)
        if len(self._rules) >= RULES_MAX:
            raise RuleError(f"there are {RULES_MAX} rules already: remove some")
        seed = rule.seed
        if rule.count_word == "with_probability" and seed is None:
            seed = self._rng.getrandbits(32)
        active = ActiveRule(self._next_id, rule, seed, self._note_change)
        self._next_id += 1
        self._rules.append(active)
        self._install(self._targets)
        return active.id

    def check_topics(self, rule: Rule) -> None:
        """Raises RuleError for a topic, or a partition, that the rule needs and the target does not have."""
        if not self._targets or not needs_topics(rule):
            return
        known = next(iter(self._targets.values())).known_topics.topics
        for name in rule.filters.get(TOPIC, ()):
            if name not in known:
                raise RuleError(
                    f"topic {name!r} does not exist{suggestion(name, known)}; if it is created later, say "
                    '"topic_exists": false',
                    TOPIC,
                )
        counts = {name: len(known[name].partitions) for name in rule.filters.get(TOPIC, ())}
        for partition in rule.filters.get(PARTITION, ()):
            if counts and partition >= max(counts.values()):
                there = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
                raise RuleError(
                    f"partition {partition} does not exist (partitions are counted from 0: {there}); if it is "
                    'created later, say "topic_exists": false',
                    PARTITION,
                )

    @property
    def removed(self) -> list[RuleState]:
        """The states of rules that were removed before they fired; of the latest `RULES_MAX`."""
        return list(self._removed)

    @property
    def states(self) -> list[RuleState]:
        """The states of all rules, in the order of their addition."""
        return [active.state for active in self._rules]

    def has_fired(self, rule_id: int) -> bool:
        """Return whether a rule has fired. Raises UnknownRuleError."""
        return self._active(rule_id).fired > 0

    def node_of(self, rule_id: int) -> int:
        """Return the node, of several, that got the request for which a rule has fired. Raises UnknownRuleError."""
        node_id = self._active(rule_id).node_id
        assert node_id is not None
        return node_id

    def release(self, rule_id: int) -> None:
        """Release the requests that the rule holds; it holds no others. Raises UnknownRuleError."""
        self._active(rule_id).release()

    def remove(self, rule_id: int) -> None:
        """Remove a rule, and release the requests that it holds. Raises UnknownRuleError."""
        active = self._active(rule_id)
        self._rules.remove(active)
        if not active.fired:
            self._removed.append(active.state)
        active.is_removed = True
        active.release()
        self._install(self._targets)

    def clear(self) -> None:
        """Remove all rules."""
        for active in list(self._rules):
            self.remove(active.id)

    async def wait_fired(self, rule_id: int, times: int = 1, timeout_s: float = 10) -> RuleState:
        """Wait until a rule has fired so many times; return its state.

        Raises RuleTimeoutError after ``timeout_s`` seconds of real time, UnknownRuleError.
        """
        with real_time.move_on_after(timeout_s):
            while (active := self._active(rule_id)).fired < times:
                await self._changed.wait()
            return active.state
        state = self._active(rule_id).state
        raise RuleTimeoutError(f"after {timeout_s:g} s, fired less than {times} times: {state}")

    def _active(self, rule_id: int) -> ActiveRule:
        found = next((active for active in self._rules if active.id == rule_id), None)
        if found is None:
            raise UnknownRuleError(f"there is no rule {rule_id}: it was removed, or never added")
        return found

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
        for call in self.on_fired:
            call()

    # -- what passes

    def of(self, action: str) -> list[ActiveRule]:
        """Return the rules with this action."""
        return [active for active in self._rules if active.rule.action == action]

    def pauses(self, client_id: str) -> bool:
        """Return whether a rule holds all requests of this client id, as if the client had stopped."""
        return any(active.pauses(client_id) for active in self.of("pause"))

    def fire_for_event(self, action: str, value: Any, facts: Mapping[str, Any]) -> ActiveRule | None:
        """Count an event that is no request; return the rule that fires for it, None if none does.

        A filter for what ``facts`` does not have does not match.
        """
        for active in self._rules:
            rule = active.rule
            if rule.action != action or rule.value != value:
                continue
            active.see(facts)
            if all(facts.get(name) in values for name, values in rule.filters.items()) and active.count():
                active.fire()
                return active
        return None

    def fire_for_request(self, action: str, value: Any, context: RequestContext) -> ActiveRule | None:
        """As `fire_for_event`, for an event that is about a request. Its API and its rows have to match, too."""
        facts, rows = _header(context), self._rows_of(context)
        for active in self._rules:
            rule = active.rule
            if rule.action != action or rule.value != value or not rule.is_for(context.api.row.name):
                continue
            active.see(facts, rows)
            if active.matches_header(facts) and active.matches_any_row(rows) and active.count():
                active.fire()
                return active
        return None

    async def on_request(self, context: RequestContext) -> Any:
        """Apply the rules. Returns None if the handler goes on as usual, else the response."""
        rows = self._rows_of(context)
        header = _header(context)
        due = []
        for active in tuple(self._rules):
            rule = active.rule
            if not rule.is_about_requests or not rule.is_for(context.api.row.name):
                continue
            active.see(header, rows)
            if not active.matches_header(header) or not active.matches_any_row(rows):
                continue
            if rule.action == "drop_response" and is_without_response(context):
                active.note("a Produce with acks=0 has no response to drop")
            elif rule.counts_responses or active.count():
                due.append(active)
        if not due:
            return None
        dispatcher = self._target_of(context).dispatcher
        return await Exchange(dispatcher, context, due, self._rows_of, self._topic_name).run()

    def _rows_of(self, context: RequestContext) -> RequestRows:
        if context.request is None:
            return RequestRows((), {}, Row(None, {}, {}))
        rows = rows_of_request(context.api.row.name, context.request, context.api_version, self._topic_name)
        if context.api.row.name == "fetch":
            sessions = self._target_of(context).fetch_sessions
            add_session(rows, context.request, sessions, self._topic_name)
        elif context.api.row.name == "share_fetch":
            share_sessions = self._target_of(context).share_sessions
            if share_sessions is not None:
                add_share_session(rows, context.request, share_sessions, self._topic_name)
        return rows

    def _topic_name(self, topic_id: Uuid) -> str | None:
        for target in self._targets.values():
            topic = target.known_topics.topics_by_id.get(topic_id)
            if topic is not None:
                return topic.name
        return None

    def _accepts(self, listener: str, node_id: int | None) -> bool:
        """Return whether this listener, of this node, accepts new connections."""
        return self.fire_for_event("refuse_connections", True, {LISTENER: listener, NODE: node_id}) is None


def needs_topics(rule: Rule) -> bool:
    """Return whether the topics that the rule names must exist."""
    if rule.data.get("topic_exists") is False or TOPIC not in rule.filters:
        return False
    return rule.apis is None or bool(rule.apis - TOPIC_MAY_BE_MISSING)


def apis_of(rules: Iterable[Rule]) -> frozenset[str] | None:
    """Return Kafka's names of the APIs that the rules are for; None for all."""
    found: set[str] = set()
    for rule in rules:
        apis = ONLY_FOR.get(rule.action, rule.apis) if rule.apis is None else rule.apis
        if apis is None:
            return None
        found.update(map(api_name, apis))
    return frozenset(found)


def _header(context: RequestContext) -> dict[str, Any]:
    """Return what a rule can ask of any request."""
    return {
        "client_id": context.client_id,
        "version": context.api_version,
        LISTENER: context.connection.listener_name,
        NODE: context.connection.node_id,
    }
