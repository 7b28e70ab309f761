"""Committed offsets without a broker: random steps against a simple model, and equal state after every restart."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

from oncelog.coordinator.groups.offset_store import OffsetStore
from oncelog.coordinator.groups.offsets import (
    commit_offsets,
    commit_transactional_offsets,
    delete_offsets,
    fetch_offsets,
    group_offset_tombstones,
)
from oncelog.coordinator.groups.shard import GroupShard
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import finish
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_key, encode_value
from oncelog.wire.stored.groups import (
    KEY_TYPES,
    VALUE_TYPES,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitValue,
)
from tests.harness.group_shard import GroupLog, GroupShardHarness

Place = tuple[str, str, int]
MINUTE_MS = 60_000


def commit(
    harness: GroupShardHarness, place: Place, offset: int, metadata: str | None = "", **fields: Any
) -> int:
    """Commit one offset. Returns its error code."""
    group, topic, partition = place
    known = harness.topics.by_name(topic)
    row = OffsetCommitRequestPartition(partition, offset, 4, metadata)
    asked = OffsetCommitRequestTopic(topic, bytes(16) if known is None else known.topic_id, [row])
    response = commit_offsets(
        harness.shard, OffsetCommitRequest(group, topics=[asked], **fields), harness.client(9)
    )
    return response.topics[0].partitions[0].error_code


def commit_in_transaction(
    harness: GroupShardHarness, producer_id: int, place: Place, offset: int, generation: int = -1
) -> int:
    group, topic, partition = place
    asked = TxnOffsetCommitRequestTopic(
        topic, ZERO_UUID, [TxnOffsetCommitRequestPartition(partition, offset)]
    )
    request = TxnOffsetCommitRequest("t", group, producer_id, 0, generation, topics=[asked])
    return (
        commit_transactional_offsets(harness.shard, request, harness.client(3))
        .topics[0]
        .partitions[0]
        .error_code
    )


def fetched(shard: GroupShard, place: Place, *, stable: bool = False, topic_id: bytes = bytes(16)) -> int:
    """The committed offset; an error code as a number below -1."""
    group, topic, partition = place
    asked = OffsetFetchRequestTopics(topic, topic_id, [partition])
    response = finish(
        fetch_offsets(shard, OffsetFetchRequestGroup(group, topics=[asked]), require_stable=stable)
    )
    [row] = response.topics[0].partitions
    return -1 - row.error_code - 100 if row.error_code else row.committed_offset


def all_of(shard: GroupShard, group: str) -> dict[tuple[str, int], int]:
    response = finish(fetch_offsets(shard, OffsetFetchRequestGroup(group, topics=None), require_stable=False))
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in response.topics
        for row in topic.partitions
    }


COMMIT, ABORT = b"commit", b"abort"


class LogWithMarkers(GroupLog):
    """A log with markers: entries with the key `COMMIT` or `ABORT`."""

    def replay_into(self, shard: GroupShard) -> None:
        for offset, (key_bytes, value_bytes, producer_id) in enumerate(self.entries):
            if key_bytes in (COMMIT, ABORT):
                shard.replay_end_transaction(producer_id, committed=key_bytes == COMMIT)
                continue
            key = decode_key(key_bytes, KEY_TYPES)
            assert key is not None
            value = None if value_bytes is None else decode_value(value_bytes, VALUE_TYPES[key.API_KEY])
            shard.replay(key, value, offset, producer_id)
        shard.on_loaded()


def lab_with_markers(seed: int) -> GroupShardHarness:
    harness = GroupShardHarness(seed=seed)
    harness.log = LogWithMarkers()
    harness.restart()
    return harness


def end(harness: GroupShardHarness, producer_id: int, *, committed: bool) -> None:
    """Append a marker and replay it."""
    harness.log.entries.append((COMMIT if committed else ABORT, None, producer_id))
    harness.shard.replay_end_transaction(producer_id, committed=committed)


UNSTABLE = -1 - ErrorCode.UNSTABLE_OFFSET_COMMIT - 100


def test_pending_offsets_become_committed_with_their_transaction() -> None:
    harness = GroupShardHarness()
    place, other = ("g", "a", 0), ("g", "a", 1)
    commit(harness, place, 1)
    commit_in_transaction(harness, 7, place, 5)
    commit_in_transaction(harness, 8, other, 6)
    assert (fetched(harness.shard, place), fetched(harness.shard, other)) == (1, -1)
    assert fetched(harness.shard, place, stable=True) == UNSTABLE
    harness.shard.replay_end_transaction(7, committed=True)
    harness.shard.replay_end_transaction(8, committed=False)
    harness.shard.replay_end_transaction(9, committed=True)
    assert (fetched(harness.shard, place, stable=True), fetched(harness.shard, other, stable=True)) == (5, -1)
    assert harness.shard.offsets.pending == {}


def test_the_later_record_wins_whatever_the_order_of_the_markers() -> None:
    harness = GroupShardHarness()
    place = ("g", "a", 0)
    commit_in_transaction(harness, 7, place, 5)
    commit_in_transaction(harness, 8, place, 6)
    commit(harness, place, 4)
    commit_in_transaction(harness, 9, place, 8)
    for producer_id, expected in ((8, 4), (7, 4), (9, 8)):
        harness.shard.replay_end_transaction(producer_id, committed=True)
        assert fetched(harness.shard, place) == expected
        assert (fetched(harness.shard, place, stable=True) == UNSTABLE) == (producer_id != 9)


def test_a_generation_of_no_group() -> None:
    harness = GroupShardHarness()
    harness.topics.create("a", 1)
    with pytest.raises(KafkaError) as found:
        commit_in_transaction(harness, 7, ("g", "a", 0), 5, generation=0)
    assert found.value.code is ErrorCode.ILLEGAL_GENERATION
    assert harness.log.entries == []
    assert harness.shard.groups == {}


def test_a_failed_append_changes_nothing() -> None:
    harness = GroupShardHarness()
    commit(harness, ("g", "a", 0), 1)
    before = everything(harness.shard)
    for place in (("g", "a", 0), ("new", "a", 0)):
        harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(KafkaError):
            commit(harness, place, 2)
        assert everything(harness.shard) == before


def test_the_versions_that_values_are_written_in() -> None:
    """Kafka writes version 4, but 1 if the commit has a retention time."""
    harness = GroupShardHarness()
    topic = harness.topics.create("a", 1)
    commit(harness, ("g", "a", 0), 1, "note")
    commit(harness, ("g", "a", 0), 2, None, retention_time_ms=5)
    stored = [value for _, value, _ in harness.log.entries if value is not None]
    assert [value[:2] for value in stored] == [b"\0\4", b"\0\1"]
    now_ms = harness.now_ms()
    values = [decode_value(value, OffsetCommitValue) for value in stored]
    assert values == [
        OffsetCommitValue(1, 4, "note", now_ms, -1, topic.topic_id),
        OffsetCommitValue(2, -1, "", now_ms, now_ms + 5),
    ]


def test_records_of_the_first_brokers() -> None:
    harness = GroupShardHarness()
    key = encode_key(LegacyOffsetCommitKey("g", "a", 0))
    harness.log.entries.append((key, encode_value(LegacyOffsetCommitValue(9, "note", 1), 0), -1))
    assert fetched(harness.reloaded(), ("g", "a", 0)) == 9


def test_an_offset_of_an_earlier_topic_of_the_name() -> None:
    harness = GroupShardHarness()
    topic = harness.topics.create("a", 1)
    commit(harness, ("g", "a", 0), 1)
    assert fetched(harness.shard, ("g", "a", 0), topic_id=topic.topic_id) == 1
    assert fetched(harness.shard, ("g", "a", 0), topic_id=b"\7" * 16) == -1


def test_the_garbage_collector_does_not_traverse_offsets() -> None:
    harness = GroupShardHarness()
    for partition in range(10):
        commit(harness, ("g", "a", partition), partition)
    gc.collect()
    of_topic = harness.shard.offsets.topics("g")["a"]
    assert not any(gc.is_tracked(stored) for stored in of_topic.values())
    if sys.version_info < (3, 14):  # newer ones traverse every dict
        assert not gc.is_tracked(of_topic)


def everything(shard: GroupShard) -> object:
    """All stored offsets, sorted."""
    store: OffsetStore = shard.offsets
    return (
        sorted(store.committed.items()),
        {producer_id: sorted(offsets.items()) for producer_id, offsets in store.pending.items()},
        {group: sorted(store.pending_partitions(group)) for group in shard.groups},
        sorted(shard.groups),
    )


class Model:
    """The model: offsets by group and partition, and pending ones by producer id."""

    def __init__(self) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[int, dict[Place, tuple[int, int]]] = {}
        self.time = 0

    def put(self, place: Place, offset: int, producer_id: int | None = None) -> None:
        self.time += 1
        into = self.committed if producer_id is None else self.pending.setdefault(producer_id, {})
        into[place] = (self.time, offset)

    def forget(self, place: Place) -> None:
        for offsets in (self.committed, *self.pending.values()):
            offsets.pop(place, None)

    def end(self, producer_id: int, *, committed: bool) -> None:
        for place, put in self.pending.pop(producer_id, {}).items():
            if committed:
                self.committed[place] = max(self.committed.get(place, (0, 0)), put)

    def seen(self, place: Place, *, stable: bool) -> int:
        if stable and any(place in offsets for offsets in self.pending.values()):
            return UNSTABLE
        return self.committed.get(place, (0, -1))[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_random_walk(seed: int) -> None:
    rng = random.Random(seed)
    harness = lab_with_markers(seed)
    model = Model()
    places = [(group, topic, partition) for group in "gh" for topic in "ab" for partition in range(2)]
    for offset in range(300):
        place, producer_id = rng.choice(places), rng.randrange(4)
        match rng.randrange(8):
            case 0 | 1:
                commit(harness, place, offset)
                model.put(place, offset)
            case 2 | 3:
                commit_in_transaction(harness, producer_id, place, offset)
                model.put(place, offset, producer_id)
            case 4 | 5:
                committed = rng.random() < 0.6
                end(harness, producer_id, committed=committed)
                model.end(producer_id, committed=committed)
            case 6:
                group, topic, partition = place
                row = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
                if group in harness.shard.groups:
                    delete_offsets(harness.shard, OffsetDeleteRequest(group, [row]))
                model.forget(place)
            case _:
                if rng.random() < 0.2:
                    group = place[0]
                    harness.shard.commit(group_offset_tombstones(harness.shard, group))
                    for one in places:
                        if one[0] == group:
                            model.forget(one)
        for one in places:
            for stable in (False, True):
                assert fetched(harness.shard, one, stable=stable) == model.seen(one, stable=stable), (
                    f"seed {seed}"
                )
        if offset % 20 == 0:
            assert everything(harness.reloaded()) == everything(harness.shard), f"seed {seed}"
            harness.restart()
