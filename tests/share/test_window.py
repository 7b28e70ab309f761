"""The window of a share partition: acquire, acknowledge, release, locks that end, the log start, stored state."""

from __future__ import annotations

import gc
import itertools
from typing import TYPE_CHECKING

import pytest

from oncelog.broker.share.window.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    acknowledge,
)
from oncelog.broker.share.window.acquisition import Acquired, Acquisition, without_aborted
from oncelog.broker.share.window.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    TRANSITIONS,
    InFlightBatch,
    InFlightState,
)
from oncelog.broker.share.window.window import Limits, StoredStateError, Window
from oncelog.coordinator.share.state import DeliveryState, StateBatch
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMITS = Limits(2_000, 5)


def window(start: int = 0, *stored: tuple[int, int, DeliveryState, int], limits: Limits = LIMITS) -> Window:
    return Window(start, limits, [StateBatch(*one) for one in stored])


def batches(*sizes: int, base: int = 0) -> list[tuple[int, int]]:
    """The bounds of record batches with so many records each."""
    ends = list(itertools.accumulate(sizes, initial=base))
    return [(first, end - 1) for first, end in itertools.pairwise(ends)]


def acquire(
    of: Window,
    fetched: Sequence[tuple[int, int]],
    member: str = "m",
    *,
    most: int = 500,
    batch_size: int = 500,
    by_record: bool = False,
    until: float = 30.0,
) -> list[tuple[int, int, int]]:
    acquisition = Acquisition(of, member, fetched, until, batch_size=batch_size, by_record=by_record)
    return [(*one,) for one in acquisition.acquire(of.next_fetch_offset(), most)]


def say(
    of: Window, *said: tuple[int, int, list[int]], member: str = "m", until: float = 30.0
) -> list[StateBatch]:
    """Acknowledge, and have it stored."""
    changes = acknowledge(of, member, [Acknowledgement(*one) for one in said], until)
    of.complete(changes, is_stored=True)
    return changes


def states(of: Window) -> list[tuple[int, int, str, int]]:
    return [
        (records.first, records.last, records.state.name.lower(), records.delivery_count)
        for records in of.states()
    ]


def error(of: Window, *said: tuple[int, int, list[int]], member: str = "m") -> tuple[ErrorCode, str]:
    """Return the error of acknowledgements, which must not change any state."""
    before, complete = states(of), of.delivery_complete_count
    with pytest.raises(KafkaError) as caught:
        say(of, *said, member=member)
    assert (states(of), of.delivery_complete_count) == (before, complete)
    return caught.value.code, str(caught.value)


def test_the_table_of_moves_is_kafkas() -> None:
    assert TRANSITIONS[AVAILABLE] == {ACQUIRED, ARCHIVED}
    assert TRANSITIONS[ACQUIRED] == {AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED}
    assert TRANSITIONS[ARCHIVING] == {ARCHIVED}
    assert not TRANSITIONS[ACKNOWLEDGED]
    assert not TRANSITIONS[ARCHIVED]
    for state in DeliveryState:
        for other in DeliveryState:
            records = InFlightState(0, 0, state, 1)
            if other in TRANSITIONS[state]:
                records.transition_to(other)
            else:
                with pytest.raises(AssertionError):
                    records.transition_to(other)


def test_records_are_acquired_once_and_the_window_moves_on() -> None:
    it = window()
    assert acquire(it, batches(10, 10)) == [(0, 19, 1)]
    assert it.next_fetch_offset() == 20
    assert acquire(it, batches(10, 10), "other") == []
    assert say(it, (0, 19, [ACCEPT])) == [StateBatch(0, 19, ACKNOWLEDGED, 1)]
    assert (it.start_offset, it.end_offset, it.record_count, it.next_fetch_offset()) == (20, 19, 0, 20)


def test_whole_record_batches_are_acquired_unless_the_member_wants_a_limit() -> None:
    assert acquire(window(), batches(10, 10, 10), most=15) == [(0, 19, 1)]
    it = window()
    assert acquire(it, batches(10, 10, 10), most=15, by_record=True) == [(0, 14, 1)]
    assert states(it) == [(0, 14, "acquired", 1), (15, 19, "available", 0)]
    assert it.next_fetch_offset() == 15
    assert acquire(it, batches(10, 10, base=10), most=15, by_record=True) == [(15, 19, 1), (20, 29, 1)]


def test_the_batch_size_ends_batches_where_record_batches_end() -> None:
    it = window()
    assert acquire(it, batches(4, 4, 4, 4), batch_size=5) == [(0, 7, 1), (8, 15, 1)]


def test_what_is_released_is_delivered_again_and_counted() -> None:
    it = window()
    acquire(it, batches(10))
    say(it, (3, 4, [RELEASE]))
    assert it.next_fetch_offset() == 3
    assert acquire(it, batches(10), "other") == [(3, 4, 2)]
    assert states(it) == [(0, 2, "acquired", 1), (3, 4, "acquired", 2), (5, 9, "acquired", 1)]


def test_a_type_for_each_offset() -> None:
    it = window()
    acquire(it, batches(6))
    changes = say(it, (0, 5, [ACCEPT, ACCEPT, REJECT, RELEASE, GAP, ACCEPT]))
    assert changes == [
        StateBatch(0, 1, ACKNOWLEDGED, 1),
        StateBatch(2, 2, ARCHIVED, 1),
        StateBatch(3, 3, AVAILABLE, 1),
        StateBatch(4, 4, ARCHIVED, 1),
        StateBatch(5, 5, ACKNOWLEDGED, 1),
    ]
    assert it.start_offset == 3
    assert it.delivery_complete_count == 2


def test_a_record_is_archived_after_the_last_delivery_that_is_allowed() -> None:
    it = window(limits=Limits(2_000, 2))
    acquire(it, batches(1))
    say(it, (0, 0, [RELEASE]))
    assert acquire(it, batches(1)) == [(0, 0, 2)]
    assert say(it, (0, 0, [RELEASE])) == [StateBatch(0, 0, ARCHIVED, 2)]
    assert it.start_offset == 1


def test_batches_that_fail_are_delivered_in_ever_smaller_parts_and_records_alone_the_last_time() -> None:
    it = window(limits=Limits(2_000, 5))
    sizes = []
    for _ in range(4):
        [(first, last, _), *more] = acquire(it, batches(16))
        assert not more
        sizes.append(last - first + 1)
        say(it, (first, last, [RELEASE]))
    assert sizes == [16, 16, 16, 8]
    assert acquire(it, batches(16)) == [(0, 0, 5)]


def test_locks_end_and_a_renewed_one_later() -> None:
    it = window()
    acquire(it, batches(10), until=30)
    acquire(it, batches(10, base=10), until=40)
    assert say(it, (0, 4, [RENEW]), until=50) == []
    assert it.next_deadline() == 30
    assert it.expire(29.9) == []
    assert it.expire(30) == [StateBatch(5, 9, AVAILABLE, 1)]
    assert it.expire(45) == [StateBatch(10, 19, AVAILABLE, 1)]
    assert it.next_fetch_offset() == 5
    assert it.expire(50) == [StateBatch(0, 4, AVAILABLE, 1)]
    assert it.next_deadline() == float("inf")


def test_a_lock_that_ends_while_its_end_is_being_stored() -> None:
    it = window()
    acquire(it, batches(4), until=30)
    changes = acknowledge(it, "m", [Acknowledgement(0, 3, [ACCEPT])], 0)
    assert it.expire(30) == []
    it.complete(changes, is_stored=False)
    assert it.next_deadline() <= 30
    assert it.expire(30) == [StateBatch(0, 3, AVAILABLE, 1)]


def test_a_member_that_leaves_gives_back_its_records_only() -> None:
    it = window()
    acquire(it, batches(5), "a")
    acquire(it, batches(5, base=5), "b")
    say(it, (0, 1, [ACCEPT]), member="a")
    changes = it.release("a")
    assert changes == [StateBatch(2, 4, AVAILABLE, 1)]
    it.complete(changes, is_stored=True)
    assert states(it) == [
        (0, 1, "acknowledged", 1),
        (2, 4, "available", 1),
        (5, 9, "acquired", 1),
    ]


def test_what_cannot_be_stored_is_taken_back() -> None:
    it = window()
    acquire(it, batches(6))
    before = states(it)
    changes = acknowledge(it, "m", [Acknowledgement(0, 5, [ACCEPT, REJECT, RELEASE, ACCEPT, GAP, ACCEPT])], 0)
    assert it.delivery_complete_count == 5
    it.complete(changes, is_stored=False)
    assert (states(it), it.delivery_complete_count, it.start_offset) == (before, 0, 0)
    say(it, (0, 5, [ACCEPT]))
    assert it.start_offset == 6


def test_no_more_than_the_limit_is_in_flight() -> None:
    it = window(limits=Limits(10, 5))
    assert acquire(it, batches(*[1] * 30)) == [(0, 9, 1)]
    assert not it.can_acquire()
    assert acquire(it, batches(*[1] * 20, base=10)) == []
    say(it, (4, 4, [RELEASE]))
    assert it.can_acquire()
    assert acquire(it, batches(*[1] * 26, base=4)) == [(4, 4, 2)]
    say(it, (0, 2, [ACCEPT]))
    assert acquire(it, batches(*[1] * 20, base=10)) == [(10, 12, 1)]


def test_a_limit_lowered_under_what_is_in_flight() -> None:
    it = window(limits=Limits(100, 5))
    acquire(it, batches(*[1] * 60))
    it.limits = Limits(10, 2)
    assert not it.can_acquire()
    say(it, (0, 54, [ACCEPT]))
    assert acquire(it, batches(*[1] * 60, base=60)) == [(60, 64, 1)]


ERRORS = {
    "before the window": ((0, 3, [ACCEPT]), None),
    "not acquired yet": ((30, 31, [ACCEPT]), (ErrorCode.INVALID_REQUEST, "first offset in request is past")),
    "reaches beyond": ((18, 21, [ACCEPT]), (ErrorCode.INVALID_REQUEST, "last offset in request is past")),
    "done already": ((12, 12, [ACCEPT]), (ErrorCode.INVALID_RECORD_STATE, "The offset is not acquired")),
    "some done": ((10, 13, [ACCEPT]), (ErrorCode.INVALID_RECORD_STATE, "The offset is not acquired")),
    "another's": ((16, 17, [ACCEPT]), (ErrorCode.INVALID_RECORD_STATE, "not the owner of batch record")),
}


@pytest.mark.parametrize(("said", "expected"), ERRORS.values(), ids=ERRORS)
def test_wrong_acknowledgements(
    said: tuple[int, int, list[int]], expected: tuple[ErrorCode, str] | None
) -> None:
    it = window(10)
    acquire(it, batches(5, base=10))
    acquire(it, batches(5, base=15), "other")
    say(it, (12, 12, [ACCEPT]))
    if expected is None:
        assert say(it, said) == []
    else:
        code, text = error(it, said)
        assert code is expected[0]
        assert expected[1] in text


def test_one_wrong_acknowledgement_undoes_those_before_it() -> None:
    it = window()
    acquire(it, batches(5, 5))
    code, _ = error(it, (0, 2, [ACCEPT]), (3, 3, [RELEASE]), (3, 4, [ACCEPT]))
    assert code is ErrorCode.INVALID_RECORD_STATE
    assert it.next_fetch_offset() == 10


def test_renewal_may_be_forbidden() -> None:
    it = window(limits=LIMITS._replace(may_renew=False))
    acquire(it, batches(5))
    assert "not enabled" in error(it, (0, 4, [RENEW]))[1]


def test_the_log_start_moves_over_the_window() -> None:
    it = window()
    acquire(it, batches(10), "a")
    acquire(it, batches(10, base=10), "b")
    say(it, (2, 5, [RELEASE]), member="a")
    say(it, (12, 14, [ACCEPT]), member="b")
    it.move_log_start(13)
    assert (it.start_offset, it.end_offset, it.delivery_complete_count) == (13, 19, 2)
    assert states(it)[1] == (2, 5, "archived", 1)
    assert say(it, (6, 9, [ACCEPT]), member="a") == []
    assert it.expire(30) == [
        StateBatch(0, 1, ARCHIVED, 1),
        StateBatch(6, 11, ARCHIVED, 1),
        StateBatch(15, 19, AVAILABLE, 1),
    ]
    it.advance()
    assert it.start_offset == 15
    it.move_log_start(40)
    assert (it.start_offset, it.end_offset, it.next_fetch_offset()) == (40, 39, 40)


def test_records_that_compaction_removed_are_archived() -> None:
    it = window()
    acquire(it, batches(5, 5, 5))
    say(it, (0, 14, [RELEASE]))
    assert it.next_fetch_offset() == 0
    assert acquire(it, batches(5, base=10)) == [(10, 14, 2)]
    assert states(it) == [(0, 9, "archived", 1), (10, 14, "acquired", 2)]


def test_gaps_in_the_log_are_acquired_with_their_neighbours() -> None:
    it = window()
    assert acquire(it, [(0, 4), (10, 14)]) == [(0, 14, 1)]
    it = window()
    assert acquire(it, [(3, 4), (10, 14)]) == [(3, 14, 1)]
    assert it.start_offset == 3


def test_aborted_records_are_archived_and_not_delivered() -> None:
    it = window()
    acquisition = Acquisition(it, "m", batches(4, 4, 4), 30.0, batch_size=500, by_record=False)
    left = without_aborted(it, acquisition.acquire(0, 500), [(0, 3), (6, 7)])
    assert left == [(4, 5, 1), (8, 11, 1)]
    assert it.delivery_complete_count == 6
    say(it, (4, 5, [ACCEPT]), (8, 11, [ACCEPT]))
    assert it.start_offset == 12


def test_stored_state_with_gaps() -> None:
    it = window(5, (10, 14, ACKNOWLEDGED, 1), (15, 15, AVAILABLE, 2), (20, 29, ACKNOWLEDGED, 1))
    assert (it.start_offset, it.end_offset, it.delivery_complete_count) == (5, 29, 15)
    assert it.next_fetch_offset() == 5
    assert acquire(it, batches(15, 15, 10, base=5)) == [
        (5, 9, 1),
        (15, 15, 3),
        (16, 19, 1),
        (30, 44, 1),
    ]
    say(it, (5, 9, [ACCEPT]))
    assert it.start_offset == 15


def test_stored_state_moves_the_start_offset() -> None:
    it = window(5, (5, 9, ACKNOWLEDGED, 1), (10, 10, AVAILABLE, 1), (11, 12, ARCHIVED, 5))
    assert (it.start_offset, it.delivery_complete_count, it.next_fetch_offset()) == (10, 2, 10)
    it = window(5, (5, 9, ACKNOWLEDGED, 1))
    assert (it.start_offset, it.end_offset, it.next_fetch_offset()) == (10, 9, 10)


@pytest.mark.parametrize("stored", [[(3, 6)], [(9, 7)], [(5, 8), (8, 9)]])
def test_stored_state_that_contradicts_itself(stored: list[tuple[int, int]]) -> None:
    with pytest.raises(StoredStateError):
        window(5, *[(first, last, AVAILABLE, 1) for first, last in stored])


@pytest.mark.slow
def test_the_cost_is_that_of_batches_not_of_records() -> None:
    """2,000 records acquired and accepted in batches of 500 touch a handful of objects."""

    def count() -> int:
        return sum(isinstance(one, InFlightState | InFlightBatch) for one in gc.get_objects())

    it = window()
    fetched = batches(*[1] * 2_000)
    gc.collect()
    before = count()  # of other tests
    for first in range(0, 2_000, 500):
        acquire(it, fetched[first:], most=500)
    assert count() - before == 8
    for first in range(0, 2_000, 500):
        assert len(say(it, (first, first + 499, [ACCEPT]))) == 1
    assert it.start_offset == 2_000


def test_a_batch_size_below_one_puts_nothing_empty_into_the_window() -> None:
    it = window()
    assert acquire(it, batches(3, 3), batch_size=0) == [(0, -1, 1), (0, 2, 1), (3, 5, 1)]
    assert states(it) == [(0, 2, "acquired", 1), (3, 5, "acquired", 1)]
    say(it, (0, 5, [ACCEPT]))
    assert (it.start_offset, it.batches) == (6, [])


@pytest.mark.parametrize("what", ["acknowledged", "locks end", "aborted"])
def test_the_cost_of_a_batch_in_many_parts_does_not_grow_with_their_square(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each part is compared with its neighbours a few times, not once for each other part."""
    count = 1_000
    it = window()
    if what == "locks end":
        for number in range(count):
            acquire(it, [(0, count - 1)], by_record=True, most=1, until=30 + number / count)
    else:
        acquired = [Acquired(*one) for one in acquire(it, [(0, count - 1)], most=count)]
    compared = 0
    compare = InFlightState.continues

    def continues(records: InFlightState, other: InFlightState) -> bool:
        nonlocal compared
        compared += 1
        return compare(records, other)

    monkeypatch.setattr(InFlightState, "continues", continues)
    if what == "acknowledged":
        say(it, (0, count - 1, [ACCEPT, RELEASE] * (count // 2)))
        assert len(states(it)) == count
    elif what == "locks end":
        it.expire(31)
        assert states(it) == [(0, count - 1, "available", 1)]
    else:
        left = without_aborted(it, acquired, [(offset, offset) for offset in range(0, count, 2)])
        assert [one.first for one in left] == list(range(1, count, 2))
    assert compared < 10 * count
