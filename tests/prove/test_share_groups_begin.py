"""A trial does not end while a share group has yet to find where it begins: the group has no lag then."""

from __future__ import annotations

import pytest

from oncelog.broker.control.share_types import ShareGroupInfo, ShareMember, SharePartitionInfo
from oncelog.broker.prove.trials.trial import has_yet_to_begin

MEMBER = ShareMember("m", "", "/127.0.0.1", 1, ("orders",))


@pytest.mark.parametrize(
    ("members", "start_offsets", "expected"),
    [
        ((MEMBER,), (), True),
        ((MEMBER,), (None,), True),
        ((MEMBER,), (0, None), True),
        ((MEMBER,), (0, 7), False),
        ((), (), False),
        ((), (None,), False),
    ],
)
def test_a_group_that_has_members(
    members: tuple[ShareMember, ...], start_offsets: tuple[int | None, ...], expected: bool
) -> None:
    partitions = {at: SharePartitionInfo(start) for at, start in enumerate(start_offsets)}
    topics = {"orders": partitions} if partitions else {}
    assert has_yet_to_begin(ShareGroupInfo("g", "Stable", 1, members, topics)) is expected
