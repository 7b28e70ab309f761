"""The decisions of a replicated partition, each as a table: no log, no network, no time but what is given."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from oncelog.broker.replication.fetch_state import truncation_offset
from oncelog.broker.replication.followers import NEVER, FollowerState
from oncelog.broker.replication.isr import METADATA_WILL_TELL, REFUSED, Answer, Isr, answer_to
from oncelog.broker.replication.read_replica import ReplicaView, select_replica
from oncelog.broker.replication.waits import ABANDONED_MAX, OffsetWaits
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.partition_log import PartitionLogHarness, batch
from tests.harness.simulation import simulated

LAG_S = 4.0


class TestFollower:
    """When a follower counts as caught up."""

    def test_one_in_the_isr_has_caught_up_when_its_leader_begins(self) -> None:
        assert FollowerState(2, 100.0, is_in_sync=True).is_caught_up(5, 104.0, LAG_S)
        assert not FollowerState(2, 100.0, is_in_sync=True).is_caught_up(5, 104.1, LAG_S)
        assert not FollowerState(2, 100.0, is_in_sync=False).is_caught_up(5, 100.0, LAG_S)

    def test_one_with_the_whole_log_has_caught_up_however_long_ago_it_fetched(self) -> None:
        follower = FollowerState(2, 0.0, is_in_sync=False)
        follower.note_fetch(5, 0, -1, 1.0, 5)
        assert follower.is_caught_up(5, 1_000.0, LAG_S)
        assert not follower.is_caught_up(6, 1_000.0, LAG_S)

    @pytest.mark.parametrize(
        ("fetches", "caught_up_s"),
        [
            # (time, offset, the leader's end): what the leader knows after the last
            ([(1.0, 0, 10)], NEVER),
            ([(1.0, 10, 10)], 1.0),
            ([(1.0, 0, 10), (2.0, 10, 20)], 1.0),  # it has what the log had at its fetch before
            ([(1.0, 0, 10), (2.0, 9, 20)], NEVER),
            ([(1.0, 10, 10), (2.0, 15, 20), (3.0, 20, 30)], 2.0),
            ([(1.0, 10, 10), (2.0, 10, 20), (3.0, 10, 20)], 1.0),  # stuck
        ],
    )
    def test_under_steady_appends_it_has_caught_up_with_the_end_of_a_fetch_before(
        self, fetches: list[tuple[float, int, int]], caught_up_s: float
    ) -> None:
        follower = FollowerState(2, 0.0, is_in_sync=False)
        for now_s, offset, leader_end_offset in fetches:
            follower.note_fetch(offset, 0, -1, now_s, leader_end_offset)
        assert follower.caught_up_s == caught_up_s

    def test_one_that_is_idle_in_its_session_has_caught_up_as_long(self) -> None:
        follower = FollowerState(2, 0.0, is_in_sync=False)
        follower.note_fetch(10, 0, -1, 1.0, 10)
        follower.note_idle(60.0)
        assert follower.caught_up_s == 60.0


class TestIsr:
    """Which replicas count while a change is under way."""

    def test_a_replica_that_joins_is_waited_for_and_counts_for_nothing_yet(self) -> None:
        isr = Isr(frozenset({1}), frozenset({1, 2}))
        assert (sorted(isr.committed), sorted(isr.maximal)) == ([1], [1, 2])

    def test_a_replica_that_leaves_is_waited_for_until_it_has_left(self) -> None:
        isr = Isr(frozenset({1, 2}), frozenset({1}))
        assert (sorted(isr.committed), sorted(isr.maximal)) == ([1, 2], [1, 2])

    @pytest.mark.parametrize(
        ("code", "answer"),
        [
            *((code, Answer.BACK) for code in REFUSED),
            *((code, Answer.WAIT) for code in METADATA_WILL_TELL),
            (ErrorCode.UNKNOWN_SERVER_ERROR, Answer.RETRY),
            (ErrorCode.NOT_CONTROLLER, Answer.RETRY),
        ],
    )
    def test_what_becomes_of_an_error(self, code: ErrorCode, answer: Answer) -> None:
        assert answer_to(code) is answer


@pytest.mark.parametrize(
    ("own", "leaders_answer", "cut_to"),
    [
        # (own epochs with their number of records), (epoch, its end offset at the leader), where the own log is cut
        ([(0, 5)], (0, 3), 3),
        ([(0, 3)], (0, 5), 3),  # the leader has more of that epoch
        ([(0, 3), (2, 4)], (0, 3), 3),
        ([(0, 3), (2, 4)], (1, 5), 3),  # epoch 1 is not known here: to the end of the one before it
        ([(0, 3), (1, 2), (3, 4)], (2, 9), 5),
        ([(1, 3), (2, 4)], (0, 2), 0),  # no epoch here is as old: all of it is another history
        ([(0, 3)], (-1, -1), 0),  # to the watermark, which this log does not know to be higher
    ],
)
def test_where_a_follower_cuts_its_log(
    own: list[tuple[int, int]], leaders_answer: tuple[int, int], cut_to: int
) -> None:
    log = PartitionLogHarness().create()
    log.set_replicated(True)
    log.epochs.clear()
    for epoch, records in own:
        for _ in range(records):
            log.append(batch(), leader_epoch=epoch)
    assert truncation_offset(log, *leaders_answer) == cut_to


@pytest.mark.parametrize(
    ("rack", "chosen"),
    [
        ("", None),
        ("a", None),  # the leader's
        ("b", 3),  # the further one of the two there
        ("c", 4),
        ("elsewhere", None),
    ],
)
def test_the_replica_that_a_consumer_reads(rack: str, chosen: int | None) -> None:
    followers = [
        ReplicaView(2, "b", 9, 100.0),
        ReplicaView(3, "b", 10, 90.0),
        ReplicaView(4, "c", 10, 100.0),
        ReplicaView(5, None, 10, 100.0),
    ]
    assert select_replica(rack, "a", followers) == chosen


def test_of_equal_replicas_in_a_rack_the_one_that_caught_up_last_is_read() -> None:
    followers = [ReplicaView(2, "b", 10, 100.0), ReplicaView(3, "b", 10, 99.0)]
    assert select_replica("b", "a", followers) == 2
    assert select_replica("b", "a", [ReplicaView(2, "b", 10, 1.0), ReplicaView(3, "b", 10, 1.0)]) == 3


class TestWaits:
    """Who waits for an offset."""

    @simulated
    async def test_each_ends_when_its_offset_is_reached(self) -> None:
        waits, ended = OffsetWaits(), []

        async def wait(offset: int) -> None:
            await waits.wait(offset, 10)
            ended.append(offset)

        async with trio.open_nursery() as nursery:
            for offset in (3, 1, 2):
                nursery.start_soon(wait, offset)
            await trio.testing.wait_all_tasks_blocked()
            waits.reach(2)
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(ended) == [1, 2]
            assert len(waits) == 1
            waits.reach(3)
        assert ended[-1] == 3

    @simulated
    async def test_it_ends_with_the_error_that_is_given(self) -> None:
        waits, codes = OffsetWaits(), []

        async def wait(offset: int) -> None:
            with pytest.raises(KafkaError) as caught:
                await waits.wait(offset, 10)
            codes.append((offset, caught.value.code))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 1)
            nursery.start_soon(wait, 2)
            await trio.testing.wait_all_tasks_blocked()
            waits.reach(1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert sorted(codes) == [
            (1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
            (2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]

    @simulated
    async def test_many_that_ran_out_of_time_are_forgotten(self) -> None:
        waits = OffsetWaits()
        for offset in range(10 * ABANDONED_MAX):
            with pytest.raises(KafkaError) as caught:
                await waits.wait(offset, 0)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert len(waits) == 0
        assert len(waits._heap) <= ABANDONED_MAX + 1
