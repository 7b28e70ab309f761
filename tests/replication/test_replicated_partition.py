"""The leader's side of a replicated partition, by itself: what moves the watermark, and who may be in the ISR."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
from oncelog.broker.metadata.image import Partition
from oncelog.broker.replication.replicated_partition import LeaderEnvironment, ReplicatedPartition
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_partition import PartitionResult
from oncelog.wire.stored.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.harness.partition_log import TOPIC_ID, PartitionLogHarness, batch
from tests.harness.simulation import simulated

NODES = (1, 2, 3)
BROKER_EPOCH = 10


class HandClock(SystemClock):
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Leader:
    """Node 1 leads, nodes 2 and 3 follow; the lag may be 4 s."""

    def __init__(
        self,
        isr: Sequence[int] = NODES,
        records: int = 0,
        epoch: int = 0,
        high_watermark: int = 0,
        **configs: Any,
    ) -> None:
        self.clock = HandClock()
        config = BrokerConfig({"log.dirs": "/data", "replica.lag.time.max.ms": "4000"})
        self.metadata = ClusterMetadata(
            self.clock, random.Random(0), config, cluster_id="c", directory_id=bytes(16)
        )
        self.image = self.metadata.image
        self.image.replay(TopicRecord("topic", TOPIC_ID))
        self.metadata.broker_epoch = BROKER_EPOCH
        for node_id in NODES:
            self.image.replay(
                RegisterBrokerRecord(broker_id=node_id, broker_epoch=BROKER_EPOCH, fenced=False)
            )
        self.proposed: list[list[int]] = []
        self.log = PartitionLogHarness(**configs).create()
        self.log.set_replicated(True)
        for _ in range(records):
            self.append()
        self.log.advance_high_watermark(high_watermark)
        self.state = Partition(
            PartitionRecord(
                0, TOPIC_ID, list(NODES), list(isr), leader=1, leader_epoch=epoch, partition_epoch=5
            )
        )
        environment = LeaderEnvironment(
            1, DynamicBrokerConfig(config), self.metadata, self.clock, self._propose
        )
        self.partition = ReplicatedPartition(environment, self.log, self.state)

    def _propose(self, partition: ReplicatedPartition) -> None:
        assert partition.isr.proposed is not None
        self.proposed.append(sorted(partition.isr.proposed))

    def append(self) -> None:
        self.log.append(batch(), leader_epoch=0)

    def fetch(self, node_id: int, offset: int, broker_epoch: int = BROKER_EPOCH) -> None:
        self.partition.note_fetch(node_id, offset, 0, broker_epoch)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark


def test_the_watermark_is_the_lowest_end_of_the_isr() -> None:
    leader = Leader(records=5)
    leader.fetch(2, 5)
    assert leader.high_watermark == 0
    leader.fetch(3, 4)
    assert leader.high_watermark == 4
    leader.fetch(3, 5)
    assert leader.high_watermark == 5


def test_a_leader_alone_in_the_isr_moves_the_watermark_with_each_append() -> None:
    leader = Leader(isr=[1], records=2)
    assert leader.high_watermark == 2
    leader.append()
    assert leader.high_watermark == 3


def test_a_follower_that_will_join_is_waited_for() -> None:
    leader = Leader(isr=[1, 2], records=2, high_watermark=2, min_insync_replicas=1)
    leader.fetch(2, 2)
    leader.partition.isr = type(leader.partition.isr)(
        frozenset({1, 2}), frozenset({1, 2})
    )  # a change is under way
    leader.fetch(3, 2)  # caught up, and not in the ISR
    leader.append()
    leader.fetch(2, 3)
    assert leader.high_watermark == 2
    leader.fetch(3, 3)
    assert leader.high_watermark == 3


def test_a_fenced_follower_is_not_waited_for() -> None:
    leader = Leader(isr=[1, 2], records=2)
    leader.fetch(2, 2)
    leader.fetch(3, 2)
    leader.image.brokers[3].fenced = True
    leader.partition.on_refused(leader.partition.isr, ErrorCode.INELIGIBLE_REPLICA)
    leader.append()
    leader.fetch(2, 3)
    assert leader.high_watermark == 3


@simulated
async def test_a_low_watermark_that_was_reached_counts_although_a_follower_comes_back_below_it() -> None:
    leader = Leader(records=4, high_watermark=4)
    leader.log.delete_records(3)
    leader.image.brokers[3].fenced = True
    found: list[int] = []

    async def wait() -> None:
        found.append(await leader.partition.wait_low_watermark(3, 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        leader.partition.note_fetch(2, 4, 3, BROKER_EPOCH)
        leader.image.brokers[3].fenced = False
        assert leader.partition.low_watermark < 3
    assert found == [3]


def test_a_replica_that_was_proposed_is_waited_for_and_does_not_count_for_min_isr() -> None:
    leader = Leader(isr=[1], records=1, min_insync_replicas=2)
    leader.fetch(2, 1)
    assert leader.proposed == [[1, 2]]
    assert leader.high_watermark == 0
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        leader.partition.check_isr()
    leader.partition.on_accepted(leader.partition.isr, PartitionResult(0, 0, 1, 0, [1, 2], 0, 6))
    assert leader.high_watermark == 1
    leader.partition.check_isr()


def test_with_a_min_isr_of_one_a_proposed_replica_holds_the_watermark() -> None:
    leader = Leader(isr=[1], records=1)
    leader.fetch(2, 1)
    leader.clock.now_s += 100  # long ago: only the proposal makes the leader wait
    leader.append()
    assert leader.high_watermark == 1


def test_a_follower_joins_when_it_has_what_is_committed_and_has_reached_the_leaders_epoch() -> None:
    leader = Leader(isr=[1], records=5, epoch=1, high_watermark=2, min_insync_replicas=2)
    assert leader.partition.epoch_start_offset == 5
    leader.fetch(2, 3)
    leader.fetch(2, 4)
    assert leader.proposed == []
    leader.fetch(2, 5)
    assert leader.proposed == [[1, 2]]


def test_one_change_is_under_way_at_a_time() -> None:
    leader = Leader(isr=[1], records=1)
    leader.fetch(2, 1)
    leader.fetch(3, 1)
    assert leader.proposed == [[1, 2]]
    leader.partition.on_accepted(leader.partition.isr, PartitionResult(0, 0, 1, 0, [1, 2], 0, 6))
    assert leader.proposed == [[1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("fenced", "shutting_down", "fetched_with", "joins"),
    [
        (False, False, BROKER_EPOCH, True),
        (False, False, -1, True),  # its request names no epoch
        (True, False, BROKER_EPOCH, False),
        (False, True, BROKER_EPOCH, False),
        (False, False, BROKER_EPOCH + 1, False),  # its newer registration is not known here yet
    ],
)
def test_who_may_join(fenced: bool, shutting_down: bool, fetched_with: int, joins: bool) -> None:
    leader = Leader(isr=[1], records=1)
    broker = leader.image.brokers[2]
    broker.fenced, broker.in_controlled_shutdown = fenced, shutting_down
    leader.fetch(2, 1, fetched_with)
    assert leader.proposed == ([[1, 2]] if joins else [])


def test_a_fetch_from_before_the_followers_registration_is_refused_and_not_counted() -> None:
    leader = Leader(records=1)
    leader.fetch(3, 1)
    with pytest.raises(KafkaError) as caught:
        leader.fetch(2, 1, BROKER_EPOCH - 1)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.high_watermark == 0


def test_a_follower_of_an_idle_partition_joins_only_when_it_has_fetched_since_it_registered() -> None:
    leader = Leader(records=1)
    for node_id in (2, 3):
        leader.fetch(node_id, 1)
    leader.state.isr, leader.state.partition_epoch = [1, 3], 6  # node 2 has died
    leader.image.brokers[2].broker_epoch = BROKER_EPOCH + 1  # and is back
    leader.partition.update(leader.state)
    assert leader.proposed == []
    leader.fetch(2, 1, BROKER_EPOCH + 1)
    assert leader.proposed == [[1, 2, 3]]


def test_followers_that_do_not_catch_up_leave() -> None:
    leader = Leader(records=1)
    leader.fetch(2, 1)
    leader.fetch(3, 0)
    leader.clock.now_s += 4
    leader.partition.maybe_shrink()
    assert leader.proposed == []
    leader.clock.now_s += 0.1
    leader.partition.maybe_shrink()
    assert leader.proposed == [[1, 2]]
    leader.partition.maybe_shrink()
    assert leader.proposed == [[1, 2]]


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_taken"),
    [(0, 6, True), (0, 5, True), (0, 4, False), (1, 6, False)],
)
def test_an_answer_counts_unless_the_metadata_have_said_more(
    leader_epoch: int, partition_epoch: int, is_taken: bool
) -> None:
    leader = Leader(isr=[1], records=1)
    leader.fetch(2, 1)
    asked = leader.partition.isr
    leader.partition.on_accepted(asked, PartitionResult(0, 0, 1, leader_epoch, [1, 2], 0, partition_epoch))
    assert (leader.partition.isr is not asked) == is_taken


def test_an_answer_to_another_question_counts_for_nothing() -> None:
    leader = Leader(isr=[1], records=1)
    leader.fetch(2, 1)
    asked = leader.partition.isr
    leader.state.isr, leader.state.partition_epoch = [1, 3], 6
    leader.partition.update(leader.state)
    leader.partition.on_accepted(asked, PartitionResult(0, 0, 1, 0, [1, 2], 0, 7))
    assert sorted(leader.partition.isr.committed) == [1, 3]
    leader.partition.on_refused(asked, ErrorCode.INELIGIBLE_REPLICA)
    assert sorted(leader.partition.isr.committed) == [1, 3]


def test_older_metadata_than_the_controllers_answer_count_for_nothing() -> None:
    leader = Leader(isr=[1], records=1)
    leader.fetch(2, 1)
    leader.partition.on_accepted(leader.partition.isr, PartitionResult(0, 0, 1, 0, [1, 2], 0, 6))
    leader.partition.update(leader.state)  # of partition epoch 5
    assert sorted(leader.partition.isr.committed) == [1, 2]


def test_metadata_that_say_what_the_answer_said_leave_the_next_proposal() -> None:
    """They may come when the controller has accepted it: the watermark must not pass the replica that joins."""
    leader = Leader(isr=[1], records=2)
    leader.fetch(2, 2)
    leader.append()
    leader.partition.on_accepted(leader.partition.isr, PartitionResult(0, 0, 1, 0, [1, 2], 0, 6))
    leader.fetch(3, 2)
    assert leader.proposed == [[1, 2], [1, 2, 3]]
    leader.state.isr, leader.state.partition_epoch = [1, 2], 6
    leader.partition.update(leader.state)
    leader.fetch(2, 3)
    assert leader.high_watermark == 2
    leader.fetch(3, 3)
    assert leader.high_watermark == 3


@pytest.mark.parametrize(("min_isr", "effective"), [(1, 1), (3, 3), (5, 3)])
def test_min_isr_is_no_more_than_there_are_replicas(min_isr: int, effective: int) -> None:
    assert Leader(min_insync_replicas=min_isr).partition.min_isr == effective


def test_with_flush_messages_the_leader_counts_itself_up_to_what_is_flushed() -> None:
    leader = Leader(isr=[1], records=1, flush_messages=1)
    assert leader.high_watermark == 0
    work = leader.log.prepare_flush()
    assert work is not None
    work.run()
    leader.log.flushed(work)
    assert leader.high_watermark == 1
