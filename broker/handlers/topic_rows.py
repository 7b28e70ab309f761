"""Answers about partitions, topic by topic, that come from several places: what is not there, and what is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


class TopicRows(Protocol):
    partitions: list[Any]


T = TypeVar("T", bound=TopicRows)


def merged(topics: Iterable[T], topic_of: Callable[[T], Hashable]) -> list[T]:
    """One entry per topic, in the order of their first ones, to which the partitions of later ones are added.

    So Kafka puts an answer together (``OffsetCommitResponse.Builder.merge`` and its like).
    """
    rows: dict[Hashable, T] = {}
    for topic in topics:
        first = rows.setdefault(topic_of(topic), topic)
        if first is not topic:
            first.partitions += topic.partitions
    return list(rows.values())
