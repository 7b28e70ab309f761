"""What the members of a group read: topics by name, and by regular expressions with what those match.

Source: the subscribed topic names and the subscription type of Kafka's ``ModernGroup``; ``SubscriptionCount``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.coordinator.groups.consumer.member import ConsumerGroupMember


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, in which version of the metadata, and when, in milliseconds."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class SubscriptionCount(NamedTuple):
    """How many members name a topic, and how many resolved expressions match it."""

    by_name: int
    by_regex: int


class Subscriptions:
    """``topics``: who reads each topic; ``regexes``: members per expression; ``resolved``: what expressions match."""

    __slots__ = ("regexes", "resolved", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, SubscriptionCount] = {}
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}

    def copy(self) -> Subscriptions:
        made = Subscriptions()
        made.topics = dict(self.topics)
        made.regexes = dict(self.regexes)
        made.resolved = dict(self.resolved)
        return made

    def replace(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        """A member changed, came (``old`` is None) or went."""
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
        """What ``regex`` matches now; None: nobody asks any more."""
        before = self.resolved.pop(regex, None)
        if before is not None:
            for name in before.topics:
                self._count(name, 0, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for name in resolved.topics:
                self._count(name, 0, 1)

    def without_last_of(self, old: ConsumerGroupMember, new: ConsumerGroupMember | None) -> Subscriptions:
        """A copy as it is when ``old`` has become ``new``, with the expression gone that only ``old`` asked for."""
        made = self.copy()
        made.replace(old, new)
        regex = old.topic_regex
        if regex and regex not in made.regexes:
            made.resolve(regex, None)
        return made

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The names of all topics that the member reads; an expression that is not resolved yet matches none."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        if resolved is None:
            return member.topic_names
        return member.topic_names | resolved.topics if member.topic_names else resolved.topics

    def are_homogeneous(self, member_count: int) -> bool:
        """Whether all members are known to read the same topics; assignors have a simpler way then."""
        if not self.regexes:
            return all(readers.by_name == member_count for readers in self.topics.values())
        if next(iter(self.regexes.values())) != member_count:
            return False
        return all(readers.by_regex == 1 and readers.by_name == 0 for readers in self.topics.values())

    def _count(self, name: str, by_name: int, by_regex: int) -> None:
        known = self.topics.get(name, _NOBODY)
        readers = SubscriptionCount(known.by_name + by_name, known.by_regex + by_regex)
        if readers == _NOBODY:
            del self.topics[name]
        else:
            self.topics[name] = readers


_NOBODY = SubscriptionCount(0, 0)


def _add(counts: dict[str, int], key: str | None, change: int) -> None:
    if not key:
        return
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
