"""Sets of offsets, per topic id and partition. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self


class Place(NamedTuple):
    """A partition of one life of a topic: a topic that is deleted and made anew has another id."""

    topic_id: str
    partition: int


Range = tuple[int, int]


class Ranges:
    """For each place the offsets in it, as sorted ranges [start, end) that neither touch nor overlap. Immutable."""

    __slots__ = ("_places",)

    def __init__(self, places: Mapping[Place, list[Range]] | None = None) -> None:
        merged = {place: _merged(ranges) for place, ranges in (places or {}).items()}
        self._places = {place: ranges for place, ranges in sorted(merged.items()) if ranges}

    def __getitem__(self, place: Place) -> list[Range]:
        return list(self._places.get(place, ()))

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def __bool__(self) -> bool:
        return bool(self._places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._places == other._places

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Ranges({self._places})"

    @property
    def count(self) -> int:
        """How many offsets there are."""
        return sum(end - start for ranges in self._places.values() for start, end in ranges)

    def __or__(self, other: "Ranges") -> "Ranges":
        return Ranges({place: self[place] + other[place] for place in {*self, *other}})

    def __sub__(self, other: "Ranges") -> "Ranges":
        return Ranges({place: list(_minus(self[place], other[place])) for place in self})

    def layers(self) -> Iterator[dict[Place, Range]]:
        """The same offsets as a few sets with at most one range per place: what one batch read can ask for."""
        for number in range(max((len(ranges) for ranges in self._places.values()), default=0)):
            yield {place: ranges[number] for place, ranges in self._places.items() if number < len(ranges)}

    def to_json(self) -> str:
        """{topic id: {partition: [[start, end], …]}}"""
        found: dict[str, dict[str, list[Range]]] = {}
        for place, ranges in self._places.items():
            found.setdefault(place.topic_id, {})[str(place.partition)] = ranges
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError where it is something else."""
        places: dict[Place, list[Range]] = {}
        try:
            for topic_id, partitions in json.loads(text).items():
                for partition, ranges in partitions.items():
                    places[Place(topic_id, int(partition))] = [
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
