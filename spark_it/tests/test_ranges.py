"""Offset ranges, compared with plain sets of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_it.pipeline.ranges import Ranges, TopicIdPartition

PARTITIONS = [TopicIdPartition("a", 0), TopicIdPartition("a", 1), TopicIdPartition("b", 0)]
bounds = st.tuples(st.integers(0, 20), st.integers(0, 20))
ranges_by_partition = st.dictionaries(st.sampled_from(PARTITIONS), st.lists(bounds, max_size=5), max_size=3)
Offsets = set[tuple[TopicIdPartition, int]]


def offsets(ranges: dict[TopicIdPartition, list[tuple[int, int]]]) -> Offsets:
    return {(tp, one) for tp, pairs in ranges.items() for pair in pairs for one in range(*pair)}


def offsets_of(ranges: Ranges) -> Offsets:
    return offsets({tp: ranges[tp] for tp in ranges})


@given(ranges_by_partition, ranges_by_partition)
def test_as_sets(
    one: dict[TopicIdPartition, list[tuple[int, int]]], other: dict[TopicIdPartition, list[tuple[int, int]]]
) -> None:
    left, right = Ranges(one), Ranges(other)
    assert offsets_of(left) == offsets(one)
    assert left.count == len(offsets(one))
    assert offsets_of(left | right) == offsets(one) | offsets(other)
    assert offsets_of(left - right) == offsets(one) - offsets(other)
    assert bool(left) == bool(offsets(one))
    assert Ranges.from_json(left.to_json()) == left
    assert (left == right) == (offsets(one) == offsets(other))
    one_by_one = [(tp, (offset, offset + 1)) for tp, offset in offsets(one)]
    assert Ranges({tp: [pair for where, pair in one_by_one if where == tp] for tp in PARTITIONS}) == left
    layers = [
        (tp, offset) for layer in left.layers() for tp, pair in layer.items() for offset in range(*pair)
    ]
    assert len(layers) == len(set(layers))
    assert set(layers) == offsets(one)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"a": {"x": [[1, 2]]}}', '{"a": {"0": [1]}}', "null"]
)
def test_invalid_texts(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own or ours
        Ranges.from_json(text)
