"""`merged`: joins results that several steps made for partitions of the same topic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar


class TopicResult(Protocol):
    partitions: list[Any]


T = TypeVar("T", bound=TopicResult)


def merged(results: Iterable[T], topic_of: Callable[[T], Hashable]) -> list[T]:
    """Return one result for each topic, with its partitions from all ``results``. Topics stay in their order.

    ``topic_of`` returns a result's topic. The function extends each topic's first result.
    Source: ``OffsetCommitResponse.Builder.merge`` and its like.
    """
    by_topic: dict[Hashable, T] = {}
    for result in results:
        first = by_topic.setdefault(topic_of(result), result)
        if first is not result:
            first.partitions += result.partitions
    return list(by_topic.values())
