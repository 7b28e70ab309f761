"""Removal of expired offsets and of offsets of deleted topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncelog.coordinator.groups import offset_expiry
from oncelog.coordinator.groups.admin import delete_groups
from oncelog.coordinator.groups.offset_expiry import TOMBSTONES_PER_BATCH_MAX
from oncelog.coordinator.groups.shard import GroupShard
from oncelog.coordinator.partition_writer import CoordinatorRecord
from tests.coordinator.groups.test_offsets import MINUTE_MS, all_of, commit, commit_in_transaction
from tests.harness.group_shard import GroupLog, GroupShardHarness


class CountingLog(GroupLog):
    """``sizes``: records per append."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def append(self, records: Sequence[CoordinatorRecord], *producer: int) -> int:
        self.sizes.append(len(records))
        return super().append(records, *producer)


def do_all(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def expire_group(shard: GroupShard, group_id: str) -> None:
    do_all(offset_expiry.expire_group(shard, group_id))


def test_offsets_expire_and_then_the_group() -> None:
    harness = GroupShardHarness({"offsets.retention.minutes": "2"})
    commit(harness, ("g", "a", 0), 1)
    commit(harness, ("g", "a", 1), 1, retention_time_ms=MINUTE_MS)
    harness.advance(MINUTE_MS - 1)
    expire_group(harness.shard, "g")
    assert all_of(harness.shard, "g") == {("a", 0): 1, ("a", 1): 1}
    harness.advance(1)
    expire_group(harness.shard, "g")
    assert all_of(harness.shard, "g") == {("a", 0): 1}
    commit_in_transaction(harness, 7, ("g", "a", 0), 2)
    harness.advance(MINUTE_MS)
    expire_group(harness.shard, "g")
    assert all_of(harness.shard, "g") == {("a", 0): 1}  # it has a pending offset
    harness.shard.replay_end_transaction(7, committed=False)
    expire_group(harness.shard, "g")
    assert (harness.shard.groups, all_of(harness.shard, "g")) == ({}, {})
    assert harness.reloaded().groups == {}


def test_a_group_of_many_offsets_expires_in_batches_of_a_bounded_size() -> None:
    harness = GroupShardHarness()
    for partition in range(2_500):
        commit(harness, ("g", "a", partition), 1)
    harness.advance(7 * 24 * 60 * MINUTE_MS)
    log = CountingLog()
    log.entries = harness.log.entries
    harness.log = log
    harness.restart()
    expire_group(harness.shard, "g")
    assert log.sizes == [1000, 1000, 501]
    assert harness.shard.groups == {}


def test_commits_between_the_steps_of_an_expiry() -> None:
    """An offset that is committed meanwhile stays, and so does its group; a group deleted meanwhile is skipped."""
    harness = GroupShardHarness()
    count = 2 * TOMBSTONES_PER_BATCH_MAX
    for partition in range(count):
        commit(harness, ("g", "a", partition), 1)
        commit(harness, ("h", "a", partition), 1)
    harness.advance(7 * 24 * 60 * MINUTE_MS)
    steps = offset_expiry.expire_group(harness.shard, "g")
    next(steps)
    assert len(all_of(harness.shard, "g")) == TOMBSTONES_PER_BATCH_MAX
    commit(harness, ("g", "a", 0), 7)
    commit(harness, ("g", "a", count - 1), 8)
    assert do_all(steps) == 1
    assert all_of(harness.shard, "g") == {("a", 0): 7, ("a", count - 1): 8}
    steps = offset_expiry.expire_group(harness.shard, "h")
    next(steps)
    delete_groups(harness.shard, ["h"])
    written = len(harness.log.entries)
    assert do_all(steps) == 0
    assert len(harness.log.entries) == written
    assert list(harness.shard.groups) == ["g"]


def test_a_topic_made_anew_between_the_steps_keeps_its_offsets() -> None:
    harness = GroupShardHarness()
    count = 2 * TOMBSTONES_PER_BATCH_MAX
    old = harness.topics.create("a", count).topic_id
    for partition in range(count):
        commit(harness, ("g", "a", partition), 1)
    harness.topics.delete("a")
    steps = offset_expiry.remove_deleted_topics(harness.shard, "g", [("a", old)])
    next(steps)
    harness.topics.create("a", count)
    commit(harness, ("g", "a", count - 1), 5)
    assert do_all(steps) == 1
    assert all_of(harness.shard, "g") == {("a", count - 1): 5}


def test_offsets_of_a_deleted_topic() -> None:
    harness = GroupShardHarness()
    old = harness.topics.create("a", 3).topic_id
    commit(harness, ("g", "a", 0), 1)
    commit_in_transaction(harness, 7, ("g", "a", 1), 1)
    commit(harness, ("g", "b", 0), 1)
    harness.topics.delete("a")
    harness.topics.create("a", 3)
    commit(harness, ("g", "a", 2), 1)
    do_all(offset_expiry.remove_deleted_topics(harness.shard, "g", [("a", old)]))
    assert all_of(harness.shard, "g") == {("a", 2): 1, ("b", 0): 1}
    harness.shard.replay_end_transaction(7, committed=True)
    assert all_of(harness.shard, "g") == {("a", 2): 1, ("b", 0): 1}
