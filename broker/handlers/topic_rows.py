"""Results about partitions, grouped by topic, merged from several lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


class TopicRows(Protocol):
    partitions: list[Any]


T = TypeVar("T", bound=TopicRows)


def merged(topics: Iterable[T], topic_of: Callable[[T], Hashable]) -> list[T]:
    """Return one row for each topic, in the order of first rows, with the partitions of all its rows.

    ``topic_of`` returns a row's topic. A topic's first row is changed. Source: ``OffsetCommitResponse.Builder.merge``
    and its like.
    """
    rows: dict[Hashable, T] = {}
    for topic in topics:
        first = rows.setdefault(topic_of(topic), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(rows.values())
