"""The subscriptions of a group's members, by topic name and by regular expression.

Source: the subscribed topic names and the subscription type of Kafka's ``ModernGroup``; ``SubscriptionCount``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.coordinator.groups.modern.member import ModernMember


class ResolvedRegex(NamedTuple):
    """The topics that an expression matches, with the metadata version and the time (ms) of the resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class SubscriptionCount(NamedTuple):
    """The number of members that name a topic, and of resolved expressions that match it."""

    by_name: int
    by_regex: int


class Subscriptions:
    """``topics``: counts by topic name. ``regexes``: number of members by expression. ``resolved``: resolved
    expressions.
    """

    __slots__ = ("regexes", "resolved", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, SubscriptionCount] = {}
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}

    def copy(self) -> Subscriptions:
        result = Subscriptions()
        result.topics = dict(self.topics)
        result.regexes = dict(self.regexes)
        result.resolved = dict(self.resolved)
        return result

    def replace(self, old: ModernMember | None, new: ModernMember | None) -> None:
        """Count a member that changed, joined (``old`` is None) or left (``new`` is None)."""
        old_names = old.topic_names if old is not None else frozenset[str]()
        new_names = new.topic_names if new is not None else frozenset[str]()
        if old_names != new_names:
            for name in old_names:
                self._count(name, -1, 0)
            for name in new_names:
                self._count(name, 1, 0)
        old_regex = old.topic_regex if old is not None else None
        new_regex = new.topic_regex if new is not None else None
        if old_regex != new_regex:
            _add(self.regexes, old_regex, -1)
            _add(self.regexes, new_regex, 1)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that ``regex`` matches; None removes the expression."""
        before = self.resolved.pop(regex, None)
        if before is not None:
            for name in before.topics:
                self._count(name, 0, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for name in resolved.topics:
                self._count(name, 0, 1)

    def without_last_of(self, old: ModernMember, new: ModernMember | None) -> Subscriptions:
        """A copy with ``old`` replaced by ``new``, and without an expression that only ``old`` used."""
        result = self.copy()
        result.replace(old, new)
        regex = old.topic_regex
        if regex and regex not in result.regexes:
            result.resolve(regex, None)
        return result

    def topics_of(self, member: ModernMember) -> frozenset[str]:
        """The names of all topics to which the member is subscribed; an unresolved expression matches none."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        if resolved is None:
            return member.topic_names
        return member.topic_names | resolved.topics if member.topic_names else resolved.topics

    def are_homogeneous(self, member_count: int) -> bool:
        """Whether all members are surely subscribed to the same topics, for which assignors have a simpler
        algorithm.
        """
        if not self.regexes:
            return all(count.by_name == member_count for count in self.topics.values())
        if next(iter(self.regexes.values())) != member_count:
            return False
        return all(count.by_regex == 1 and count.by_name == 0 for count in self.topics.values())

    def _count(self, name: str, by_name: int, by_regex: int) -> None:
        old = self.topics.get(name, _NO_SUBSCRIPTION)
        count = SubscriptionCount(old.by_name + by_name, old.by_regex + by_regex)
        if count == _NO_SUBSCRIPTION:
            del self.topics[name]
        else:
            self.topics[name] = count


_NO_SUBSCRIPTION = SubscriptionCount(0, 0)


def _add(counts: dict[str, int], key: str | None, change: int) -> None:
    if not key:
        return
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
