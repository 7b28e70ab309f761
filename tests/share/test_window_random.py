"""Random acquisitions, acknowledgements, releases, lock time-outs, log starts and restarts against a model with one
entry for each record.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from oncelog.broker.share.window.acknowledgement import REJECT, RENEW, STATE_OF, Acknowledgement, acknowledge
from oncelog.broker.share.window.acquisition import Acquisition, without_aborted
from oncelog.broker.share.window.in_flight import ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, FINAL, NEVER
from oncelog.broker.share.window.window import DeadLetterRange, Limits, Window
from oncelog.coordinator.share.state import DeliveryState, StateBatch
from oncelog.wire.errors import KafkaError

SEEDS = range(60)
STEPS = 300
MEMBERS = ("a", "b", "c")
LOCK_S = 30.0


@dataclass
class Record:
    state: DeliveryState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = NEVER
    pending: bool = False
    is_gone: bool = False
    """Compaction has removed it while its release was being stored."""


class World:
    """A log, a window on it, and the model of the window."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.window = Window(0, self.any_limits())
        self.log: list[tuple[int, int]] = []
        self.log_end = 0
        self.log_start = 0
        self.now = 0.0
        self.records: dict[int, Record] = {}
        self.stored: dict[int, tuple[DeliveryState, int]] = {}
        self.under_way: list[list[StateBatch]] = []
        self.letters: list[DeadLetterRange] = []
        """Records on their way to the dead-letter queue."""
        self.largest = 1

    def step(self) -> None:
        before = self.window.start_offset
        step = self.rng.choices(
            (
                self.append,
                self.acquire,
                self.acknowledge,
                self.complete,
                self.release,
                self.wait,
                self.delete,
                self.compact,
                self.archive_dead_letters,
                self.restart,
                self.change_limits,
            ),
            (6, 10, 12, 12, 1, 3, 1, 1, 3, 0.3, 0.5),
        )[0]
        step()
        assert self.window.start_offset >= before
        self.check()

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            size = self.rng.choice((1, 1, 3, 10))
            self.largest = max(self.largest, size)
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    def acquire(self) -> None:
        window, rng = self.window, self.rng
        if not window.can_acquire():
            return
        offset = window.next_fetch_offset()
        if offset < self.log_start:
            self.move_log_start()
            return
        fetched = [one for one in self.log if one[1] >= offset][: rng.randrange(1, 6)]
        if not fetched:
            return
        member, by_record = rng.choice(MEMBERS), rng.random() < 0.3
        wanted = rng.choice((1, 5, 20, 500))
        deadline = self.now + LOCK_S
        acquisition = Acquisition(
            window, member, fetched, deadline, batch_size=rng.choice((1, 4, 500)), by_record=by_record
        )
        in_flight = window.record_count
        got = acquisition.acquire(offset, wanted)
        # What compaction has removed was archived.
        for one in range(max(offset, window.start_offset), fetched[0][0]):
            if one in self.records and self.records[one].state is AVAILABLE:
                self.records[one].state = ARCHIVED
            elif one in self.records and self.records[one].pending:
                self.records[one].is_gone = True
        aborted = [one for one in fetched if rng.random() < 0.05]
        for first, last, count in got:
            for one in range(first, last + 1):
                record = self.records.setdefault(one, Record())
                assert record.state is AVAILABLE, one
                assert not record.pending
                assert one not in self.stored or self.stored[one][0] not in FINAL
                record.state, record.member, record.deadline = ACQUIRED, member, deadline
                record.count += 1
                assert record.count == count
        for first, last in [one for one in aborted if one[0] <= fetched[-1][1]]:
            for one in range(first, last + 1):
                if one in self.records and self.records[one].state is ACQUIRED:
                    record = self.records[one]
                    if not record.pending:
                        self.records[one] = Record(ARCHIVED, record.count)
        if got:
            left = without_aborted(window, got, aborted)
            delivered = {n for first, last, _ in left for n in range(first, last + 1)}
            lost = {n for first, last in aborted for n in range(first, last + 1)}
            assert delivered == {n for first, last, _ in got for n in range(first, last + 1)} - lost
            if by_record:
                assert sum(last - first + 1 for first, last, _ in got) <= wanted
        else:
            for first, last in aborted:
                for one in range(first, last + 1):
                    if one in self.records and self.records[one].state is ARCHIVED:
                        self.resync(one)
        assert self.in_flight() <= max(in_flight, window.limits.records_max + self.largest)
        # With a limit, the rest of a batch that was read belongs to the window, available.
        for records in window.states():
            for one in range(records.first, records.last + 1):
                self.records.setdefault(one, Record())

    def in_flight(self) -> int:
        """The records from the start offset on, without gaps."""
        start = self.window.start_offset
        return sum(max(0, records.last - max(records.first, start) + 1) for records in self.window.states())

    def resync(self, offset: int) -> None:
        for records in self.window.states():
            if records.first <= offset <= records.last:
                self.records[offset] = Record(
                    records.state,
                    records.delivery_count,
                    records.member_id,
                    records.deadline,
                    records.pending is not None,
                )

    def acknowledge(self) -> None:
        rng, window = self.rng, self.window
        if not self.records:
            return
        member = rng.choice(MEMBERS)
        mine = [
            records
            for records in window.states()
            if records.state is ACQUIRED and records.member_id == member
        ]
        asked: list[Acknowledgement] = []
        for records in sorted(
            rng.sample(mine, min(len(mine), rng.randrange(1, 4))), key=lambda records: records.first
        ):
            first, last = records.first, records.last
            if rng.random() < 0.5:
                first = rng.randint(first, last)
                last = rng.randint(first, last)
            if rng.random() < 0.05:
                last += 1
            count = 1 if rng.random() < 0.6 else last - first + 1
            asked.append(Acknowledgement(first, last, rng.choices((0, 1, 2, 3, 4), (1, 8, 3, 1, 1), k=count)))
        deadline = self.now + LOCK_S
        model = {n: Record(**vars(record)) for n, record in self.records.items()}
        try:
            changes = acknowledge(window, member, asked, deadline)
        except KafkaError:
            # Nothing has changed but locks that were renewed before the error, as in Kafka.
            for records in window.states():
                for one in range(records.first, records.last + 1):
                    if records.deadline == deadline:
                        self.records[one].deadline = deadline
            return
        for said in asked:
            kinds = said.types if len(said.types) > 1 else list(said.types) * (said.last - said.first + 1)
            for offset, kind in zip(range(said.first, said.last + 1), kinds, strict=True):
                if offset < window.start_offset:
                    continue
                record = model[offset]
                assert record.state is ACQUIRED
                assert record.member == member
                assert not record.pending
                if kind == RENEW:
                    record.deadline = deadline
                else:
                    record.pending = True
                    expected = window.after_failure if kind == REJECT else STATE_OF[kind]
                    if expected is AVAILABLE and record.count >= window.limits.deliveries_max:
                        expected = window.after_failure
                    assert StateBatch(offset, offset, expected, record.count) in [
                        StateBatch(offset, offset, *change[2:])
                        for change in changes
                        if change.first_offset <= offset <= change.last_offset
                    ]
        self.records = model
        if changes:
            self.under_way.append(changes)

    def release(self) -> None:
        member = self.rng.choice(MEMBERS)
        changes = self.window.release(member)
        for change in changes:
            for one in range(change.first_offset, change.last_offset + 1):
                record = self.records[one]
                assert (record.state, record.member, record.pending) == (ACQUIRED, member, False)
                record.pending = True
        assert not any(
            record.state is ACQUIRED and record.member == member and not record.pending
            for record in self.records.values()
        )
        if changes:
            self.under_way.append(changes)

    def complete(self) -> None:
        if not self.under_way:
            return
        changes = self.under_way.pop(self.rng.randrange(len(self.under_way)))
        is_stored = self.rng.random() < 0.8
        lost = self.window.start_offset
        self.window.complete(changes, is_stored=is_stored)
        for first, last, state, count in changes:
            for one in range(first, last + 1):
                if one not in self.records:
                    continue
                record = self.records[one]
                assert record.pending
                record.pending = False
                is_gone, record.is_gone = record.is_gone or one < lost, False
                if is_stored:
                    after = ARCHIVED if is_gone and state is AVAILABLE else state
                    self.records[one] = Record(DeliveryState(after), count)
                    self.stored[one] = (DeliveryState(state), count)

    def wait(self) -> None:
        self.now += self.rng.choice((1.0, 10.0, 40.0))
        for first, last, state, count in self.window.expire(self.now):
            for one in range(first, last + 1):
                record = self.records[one]
                assert record.state is ACQUIRED
                assert record.deadline <= self.now
                assert not record.pending
                over = record.count >= self.window.limits.deliveries_max
                after = self.window.after_failure if over else AVAILABLE
                assert state is (ARCHIVED if one < self.window.start_offset else after)
                self.records[one] = Record(DeliveryState(state), count)
                if self.rng.random() < 0.8:
                    self.stored[one] = (DeliveryState(state), count)
        self.window.advance()
        for record in self.records.values():
            assert record.pending or record.deadline > self.now

    def delete(self) -> None:
        if self.log_end > self.log_start:
            self.log_start = self.rng.randint(self.log_start, min(self.log_end, self.log_start + 30))
            self.log = [one for one in self.log if one[1] >= self.log_start]

    def move_log_start(self) -> None:
        before = self.window.start_offset
        self.window.move_log_start(self.log_start)
        for one, record in self.records.items():
            if before <= one < self.log_start and record.state is AVAILABLE:
                record.state = ARCHIVED

    def compact(self) -> None:
        self.log = [one for one in self.log if self.rng.random() < 0.9 or one[1] == self.log_end - 1]

    def change_limits(self) -> None:
        self.window.limits = self.any_limits()

    def any_limits(self) -> Limits:
        return Limits(
            self.rng.choice((5, 20, 100)),
            self.rng.choice((2, 3, 5)),
            has_dead_letter_queue=self.rng.random() < 0.5,
        )

    def archive_dead_letters(self) -> None:
        """The queue has some records."""
        self.letters += self.window.take_dead_letters()
        self.rng.shuffle(self.letters)
        count = self.rng.randrange(len(self.letters) + 1)
        done, self.letters = self.letters[:count], self.letters[count:]
        for first, last, _, count in self.window.archive_dead_letters(done):
            for one in range(first, last + 1):
                assert (self.records[one].state, self.records[one].count) == (ARCHIVING, count)
                self.records[one].state = ARCHIVED
                if self.rng.random() < 0.8:
                    self.stored[one] = (ARCHIVED, count)
        self.window.advance()

    def restart(self) -> None:
        start = self.window.start_offset
        stored = [StateBatch(one, one, *what) for one, what in sorted(self.stored.items()) if one >= start]
        self.under_way, self.letters = [], []
        self.window = Window(start, self.window.limits, stored)
        self.records = {}
        for records in self.window.states():
            for one in range(records.first, records.last + 1):
                self.records[one] = Record(records.state, records.delivery_count)

    def check(self) -> None:
        """The window equals the model, and its parts fit together."""
        window = self.window
        before = -1
        done = 0
        for batch, first in zip(window.batches, window.firsts, strict=True):
            assert first == batch.first > before
            assert batch.states[0].first == batch.first
            at = batch.first
            for records in batch.states:
                assert records.first == at <= records.last
                at = records.last + 1
                assert (records.state is ACQUIRED) == (records.deadline != NEVER) == bool(records.member_id)
                assert records.pending is None or records.state is ACQUIRED
                for one in range(records.first, records.last + 1):
                    known = self.records[one]
                    assert (records.state, records.delivery_count, records.member_id, records.deadline) == (
                        known.state,
                        known.count,
                        known.member,
                        known.deadline,
                    ), (one, records, known)
                    assert (records.pending is not None) == known.pending
                    done += one >= window.start_offset and records.outcome in FINAL
            assert at == batch.last + 1
            before = batch.last
        assert window.delivery_complete_count == done
        in_window = {one for batch in window.batches for one in range(batch.first, batch.last + 1)}
        for one in [one for one in self.records if one not in in_window]:
            # Forgotten records are done.
            record = self.records.pop(one)
            assert record.state in FINAL, (one, record)
        letters = sorted((*self.letters, *window.dead_letters))
        buried = [
            (one, letter.delivery_count) for letter in letters for one in range(letter[0], letter[1] + 1)
        ]
        dead = [
            (one, record.count) for one, record in sorted(self.records.items()) if record.state is ARCHIVING
        ]
        assert buried == dead
        free = [one for one, record in self.records.items() if record.state is AVAILABLE]
        offset = window.next_fetch_offset()
        assert not free or offset <= min(free)
        assert offset >= window.start_offset


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
