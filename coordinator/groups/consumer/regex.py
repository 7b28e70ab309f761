"""Resolves a group's subscribed regular expressions to topics: when, and what follows for the group.

All expressions of a group are resolved together, in a step of its own soon after a heartbeat, so that one change causes
one rebalance. A heartbeat triggers it if an expression is new, topics were created, or the last resolution is old.
Source: Kafka's ``GroupMetadataManager.maybeUpdateRegularExpressions``, ``handleRegularExpressionsResult``.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from oncelog.coordinator.groups.consumer import expressions, records, timers
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.modern import group_epoch
from oncelog.coordinator.groups.modern.subscriptions import ResolvedRegex
from oncelog.coordinator.regular_expressions import ExpressionError, RegularExpression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember
    from oncelog.coordinator.groups.context import Client
    from oncelog.coordinator.groups.shard import GroupShard
    from oncelog.coordinator.partition_writer import CoordinatorRecord

REFRESH_MIN_INTERVAL_MS = 10_000
"""Minimum milliseconds between two resolutions for a group."""

NAMES_PER_STEP_MAX = 2_000
"""Names that one step matches with an expression: about three milliseconds."""
WORK_PER_STEP_MAX = 200_000
"""The work after which a step ends in any case (`RegularExpression.work`): up to four milliseconds."""


class RegexChange(NamedTuple):
    """The consequences of a member's new expression for its group.

    ``rebalances``: the group needs a new target assignment now, not only after an expression is resolved.
    ``resolves``: the group's expressions must be resolved soon.
    """

    records: list[CoordinatorRecord]
    changed: bool
    rebalances: bool
    resolves: bool


def change(
    shard: GroupShard, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> RegexChange:
    """Return the consequences of replacing ``old`` by ``new``. Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
    new_records: list[CoordinatorRecord] = []
    rebalances = is_new = False
    members = group.subscriptions.regexes
    changed = old.topic_regex != new.topic_regex
    if changed:
        if old.topic_regex and members.get(old.topic_regex, 0) == 1:
            new_records.append(records.regex_tombstone(group.group_id, old.topic_regex))
        if not new.topic_regex:
            rebalances = bool(old.topic_regex)
        elif new.topic_regex not in members:
            expressions.check(new.topic_regex)
            is_new = True
        else:
            rebalances = new.topic_regex in group.subscriptions.resolved
    resolves = _is_due(shard, group, old, new, is_new)
    return RegexChange(new_records, changed, rebalances, resolves)


def _is_due(
    shard: GroupShard, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember, is_new: bool
) -> bool:
    subscriptions = group.subscriptions
    if (not is_new and not subscriptions.regexes) or timers.resolves_soon(shard, group.group_id):
        return False
    now_ms = shard.context.now_ms()
    last = next(iter(subscriptions.resolved.values()), None)
    if last is not None and now_ms <= last.timestamp_ms + REFRESH_MIN_INTERVAL_MS:
        return False
    after = subscriptions.copy()
    after.replace(old, new)
    if not after.regexes:
        return False
    interval_ms = shard.context.settings().group_consumer_regex_refresh_interval_ms
    return (
        is_new
        or len(after.regexes) != len(subscriptions.resolved)
        or group.volatile.regexes_outdated
        or last is None
        or now_ms > last.timestamp_ms + interval_ms
    )


def resolve_soon(shard: GroupShard, group_id: str, client: Client) -> None:
    """Resolve all expressions of the group to topics that the client may describe."""
    timers.resolve_soon(shard, group_id, _Resolution(shard, group_id, client).step)


class _Resolution:
    """Matches all expressions of a group with all topics that exist at its begin, some in each step. To compile an
    expression is a step, too; it is kept no longer than until all names are matched.
    """

    def __init__(self, shard: GroupShard, group_id: str, client: Client) -> None:
        self._shard = shard
        self._client = client
        self._group_id = group_id
        self._left: list[str] | None = None
        self._compiled: RegularExpression | None = None
        self._matched: dict[str, set[str]] = {}
        self._names: Sequence[str] = ()
        self._at = 0
        self._version = 0

    def step(self) -> None:
        group = self._shard.groups.get(self._group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if self._left is None:
            self._left = list(group.subscriptions.regexes)
            self._names = self._shard.context.topics.names()
            self._version = self._shard.context.topics.version
            # Topics created from now on make the expressions outdated again.
            group.volatile.regexes_outdated = False
        if self._left:
            if self._compiled is None:
                self._compile(self._left[-1])
            else:
                self._match(self._compiled, self._matched[self._left[-1]])
            if self._at >= len(self._names):
                self._left.pop()
                self._compiled, self._at = None, 0
        if self._left:
            timers.resolve_soon(self._shard, self._group_id, self.step)
        else:
            _store(self._shard, group, self._matched, self._version)

    def _compile(self, expression: str) -> None:
        self._matched[expression] = set()
        try:
            self._compiled = RegularExpression(expression)
        except ExpressionError:  # another broker, or an older oncelog, has stored it: it matches nothing
            self._at = len(self._names)

    def _match(self, expression: RegularExpression, matched: set[str]) -> None:
        """Match the next names."""
        work = 0
        for name in islice(self._names, self._at, self._at + NAMES_PER_STEP_MAX):
            if expression.matches(name) and self._client.may_describe(name):
                matched.add(name)
            self._at += 1
            work += expression.work(name)
            if work >= WORK_PER_STEP_MAX:
                break


def _store(shard: GroupShard, group: ConsumerGroup, matched: dict[str, set[str]], version: int) -> None:
    """Store the matched topics. If they changed, bump the group epoch."""
    after = group.subscriptions.copy()
    new_records = []
    rebalances = False
    for expression, names in matched.items():
        if expression not in after.regexes:
            continue  # no member uses it any more
        before = after.resolved.get(expression)
        rebalances = rebalances or names != (before.topics if before is not None else frozenset())
        resolved = ResolvedRegex(frozenset(names), version, shard.context.now_ms())
        after.resolve(expression, resolved)
        new_records.append(records.regex(group.group_id, expression, resolved))
    epoch = group_epoch.after(shard.context, group, after, rebalances=rebalances)
    shard.commit([*new_records, *epoch.records])
    group.volatile.metadata_checked = True
