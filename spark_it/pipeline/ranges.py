"""Sets of offsets by topic id and partition."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self


class TopicIdPartition(NamedTuple):
    """A partition by topic id: a topic that is deleted and created again has another id. Named as in Kafka."""

    topic_id: str
    partition: int


Range = tuple[int, int]


class Ranges:
    """By partition a set of offsets, as sorted ranges [start, end) that neither touch nor overlap. Immutable."""

    __slots__ = ("_ranges",)

    def __init__(self, places: Mapping[TopicIdPartition, list[Range]] | None = None) -> None:
        merged = {tp: _merged(ranges) for tp, ranges in (places or {}).items()}
        self._ranges = {tp: ranges for tp, ranges in sorted(merged.items()) if ranges}

    def __getitem__(self, tp: TopicIdPartition) -> list[Range]:
        return list(self._ranges.get(tp, ()))

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Ranges({self._ranges})"

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(end - start for ranges in self._ranges.values() for start, end in ranges)

    def __or__(self, other: "Ranges") -> "Ranges":
        return Ranges({tp: self[tp] + other[tp] for tp in {*self, *other}})

    def __sub__(self, other: "Ranges") -> "Ranges":
        return Ranges({tp: list(_minus(self[tp], other[tp])) for tp in self})

    def layers(self) -> Iterator[dict[TopicIdPartition, Range]]:
        """The offsets as several sets with at most one range per partition, which a batch read can request."""
        for number in range(max((len(ranges) for ranges in self._ranges.values()), default=0)):
            yield {tp: ranges[number] for tp, ranges in self._ranges.items() if number < len(ranges)}

    def to_json(self) -> str:
        """{topic id: {partition: [[start, end], …]}}"""
        found: dict[str, dict[str, list[Range]]] = {}
        for tp, ranges in self._ranges.items():
            found.setdefault(tp.topic_id, {})[str(tp.partition)] = ranges
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse `to_json`'s text. Raises ValueError for any other."""
        places: dict[TopicIdPartition, list[Range]] = {}
        try:
            for topic_id, partitions in json.loads(text).items():
                for partition, ranges in partitions.items():
                    places[TopicIdPartition(topic_id, int(partition))] = [
                        (int(start), int(end)) for start, end in ranges
                    ]
        except (AttributeError, TypeError) as wrong:
            raise ValueError(f"not offset ranges: {text[:100]}") from wrong
        return cls(places)


def _merged(ranges: list[Range]) -> list[Range]:
    found: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _minus(ranges: list[Range], gone: list[Range]) -> Iterator[Range]:
    for start, end in ranges:
        at = start
        for gone_start, gone_end in gone:
            if gone_end <= at or gone_start >= end:
                continue
            if gone_start > at:
                yield at, gone_start
            at = gone_end
        if at < end:
            yield at, end
