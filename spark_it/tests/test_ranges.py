"""Offset ranges against sets of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_it.pipeline.ranges import Place, Ranges

PLACES = [Place("a", 0), Place("a", 1), Place("b", 0)]
some_range = st.tuples(st.integers(0, 20), st.integers(0, 20))
some = st.dictionaries(st.sampled_from(PLACES), st.lists(some_range, max_size=5), max_size=3)
Offsets = set[tuple[Place, int]]


def offsets(ranges: dict[Place, list[tuple[int, int]]]) -> Offsets:
    return {(place, one) for place, pairs in ranges.items() for pair in pairs for one in range(*pair)}


def offsets_of(ranges: Ranges) -> Offsets:
    return offsets({place: ranges[place] for place in ranges})


@given(some, some)
def test_as_sets(one: dict[Place, list[tuple[int, int]]], other: dict[Place, list[tuple[int, int]]]) -> None:
    left, right = Ranges(one), Ranges(other)
    assert offsets_of(left) == offsets(one)
    assert left.count == len(offsets(one))
    assert offsets_of(left | right) == offsets(one) | offsets(other)
    assert offsets_of(left - right) == offsets(one) - offsets(other)
    assert bool(left) == bool(offsets(one))
    assert Ranges.from_json(left.to_json()) == left
    assert (left == right) == (offsets(one) == offsets(other))
    one_by_one = [(place, (offset, offset + 1)) for place, offset in offsets(one)]
    assert Ranges({place: [pair for where, pair in one_by_one if where == place] for place in PLACES}) == left
    layers = [
        (place, offset) for layer in left.layers() for place, pair in layer.items() for offset in range(*pair)
    ]
    assert len(layers) == len(set(layers))
    assert set(layers) == offsets(one)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"a": {"x": [[1, 2]]}}', '{"a": {"0": [1]}}', "null"]
)
def test_what_is_no_ranges(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own or ours
        Ranges.from_json(text)
