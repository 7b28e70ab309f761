"""The subscriptions of a group's members, by topic name and by regular expression.

Source: the subscribed topic names and the subscription type of Kafka's ``ModernGroup``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.coordinator.groups.context import Topics
    from oncelog.coordinator.groups.modern.member import ModernMember

    K = TypeVar("K", str, frozenset[str])


class ResolvedRegex(NamedTuple):
    """The topics that an expression matches, with the metadata version and the time (ms) of the resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions:
    """``by_names``: number of members by the topic names that they name; ``regexes``: number of members by expression;
    ``resolved``: the resolved expressions.

    Names are counted by whole sets, which the interpreter compares and unites many times faster than a loop would: a
    member may name `TOPIC_NAMES_MAX` topics.
    """

    __slots__ = ("by_names", "regexes", "resolved")

    def __init__(self) -> None:
        self.by_names: dict[frozenset[str], int] = {}
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}

    def copy(self) -> Subscriptions:
        result = Subscriptions()
        result.by_names = dict(self.by_names)
        result.regexes = dict(self.regexes)
        result.resolved = dict(self.resolved)
        return result

    def replace(self, old: ModernMember | None, new: ModernMember | None) -> None:
        """Count a member that changed, joined (``old`` is None) or left (``new`` is None)."""
        for member, change in ((old, -1), (new, 1)):
            if member is not None:
                _add(self.by_names, member.topic_names, change)
                _add(self.regexes, member.topic_regex, change)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that ``regex`` matches; None removes the expression."""
        self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved

    def has(self, topic: str) -> bool:
        """Tell whether a member names the topic, or a resolved expression matches it."""
        return any(topic in names for names in self._sets())

    def names(self) -> set[str]:
        """All names, and what resolved expressions match."""
        return set[str]().union(*self._sets())

    def existing(self, topics: Topics) -> set[str]:
        """The names of those subscribed topics that exist."""
        unnamed = set(topics.names())
        found: set[str] = set()
        for names in self._sets():
            named = unnamed & names  # goes through the smaller set
            found |= named
            unnamed -= named
        return found

    def _sets(self) -> Iterator[frozenset[str]]:
        yield from self.by_names
        for resolved in self.resolved.values():
            yield resolved.topics

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
            return all(count == member_count for count in self.by_names.values())
        return next(iter(self.regexes.values())) == member_count and not self.by_names


def _add(counts: dict[K, int], key: K | None, change: int) -> None:
    if not key:
        return
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
