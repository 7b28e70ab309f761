"""Subscriptions by regular expression: when a group's expressions are matched with the topics, and what follows.

All expressions of a group are resolved together, in a step of their own soon after the heartbeat that asks for it, so
that one change costs one rebalance. A heartbeat asks where an expression is new, topics were made, or the last time is
long ago. Source: Kafka's ``GroupMetadataManager.maybeUpdateRegularExpressions``, ``handleRegularExpressionsResult``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.groups.consumer import expressions, records, timeouts
from coordinator.groups.consumer.group import ConsumerGroup, ResolvedRegex

if TYPE_CHECKING:
    from coordinator.groups.consumer.member import Member
    from coordinator.groups.shard import GroupShard
    from coordinator.journal import CoordinatorRecord

REFRESH_MIN_INTERVAL_MS = 10_000
"""Milliseconds from one resolution of a group to the next at least."""


class Change(NamedTuple):
    """What a member's expression means for its group.

    ``rebalances``: the group needs another target assignment now; an expression that is yet to be resolved makes one
    later. ``resolves``: the group's expressions are to be resolved soon.
    """

    records: list[CoordinatorRecord]
    changed: bool
    rebalances: bool
    resolves: bool


def change(shard: GroupShard, group: ConsumerGroup, old: Member, new: Member) -> Change:
    """``old`` becomes ``new``. Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
    made: list[CoordinatorRecord] = []
    rebalances = is_new = False
    members = group.subscriptions.regexes
    changed = old.topic_regex != new.topic_regex
    if changed:
        if old.topic_regex and members.get(old.topic_regex, 0) == 1:
            made.append(records.no_regex(group.group_id, old.topic_regex))
        if not new.topic_regex:
            rebalances = bool(old.topic_regex)
        elif new.topic_regex not in members:
            expressions.check(new.topic_regex)
            is_new = True
        else:
            rebalances = new.topic_regex in group.subscriptions.resolved
    resolves = _is_due(shard, group, old, new, is_new)
    return Change(made, changed, rebalances, resolves)


def _is_due(shard: GroupShard, group: ConsumerGroup, old: Member, new: Member, is_new: bool) -> bool:
    subscriptions = group.subscriptions
    if (not is_new and not subscriptions.regexes) or timeouts.resolves_soon(shard, group.group_id):
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
        or group.soft.regexes_outdated
        or last is None
        or now_ms > last.timestamp_ms + interval_ms
    )


def resolve_soon(shard: GroupShard, group_id: str) -> None:
    timeouts.resolve_soon(shard, group_id, lambda: resolve(shard, group_id))


def resolve(shard: GroupShard, group_id: str) -> None:
    """Match the group's expressions with all topics. If they match others than before, the group's epoch rises."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or not group.subscriptions.regexes:
        return
    topics = shard.context.topics
    matched = expressions.matching(group.subscriptions.regexes, topics.names())
    after = group.subscriptions.copy()
    made = []
    rebalances = False
    for expression, names in matched.items():
        before = after.resolved.get(expression)
        rebalances = rebalances or names != (before.topics if before is not None else frozenset())
        resolved = ResolvedRegex(names, topics.version, shard.context.now_ms())
        after.resolve(expression, resolved)
        made.append(records.regex(group_id, expression, resolved))
    found = group.soft.topic_hashes.of_group(after.topics, topics)
    rebalances = rebalances or found != group.metadata_hash
    if rebalances:
        made.append(records.group_epoch(group_id, group.epoch + 1, found))
    shard.commit(made)
    group.soft.regexes_outdated = False
    group.soft.metadata_checked = group.soft.metadata_checked or rebalances
