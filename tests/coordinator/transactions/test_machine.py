"""The transaction coordinator under random events: valid and invalid requests, time, failing appends, crashes between
any two steps. Invariants: a decision is completed exactly once, and as decided; epochs of a producer id never decrease;
a failed append changes no durable state; loading restores the same state. A failure prints its seed.
"""

from __future__ import annotations

import random

import pytest

from oncelog.coordinator.transactions import markers
from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.expiry import TransactionDeadline
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
from oncelog.coordinator.transactions.state import (
    ENDED,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    VALID_PREVIOUS_STATES,
    PendingEnd,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.transaction_shard import TransactionShardHarness

STEPS = 300
IDS = ("a", "b")
PARTITIONS = [("topic", partition) for partition in range(3)] + [("__consumer_offsets", 7)]
LOG_ERRORS = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)


class Machine:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.harness = TransactionShardHarness(self.rng.choice((0, 1, 2, 2)))
        self.near_the_end = self.rng.random() < 0.3
        self.epochs: dict[int, int] = {}
        """Producer id -> its highest epoch so far."""
        self.markers: dict[tuple[int, int], dict[tuple[str, int], set[bool]]] = {}
        """(producer id, epoch) of a decision -> partition -> outcomes of its markers."""
        self.told: dict[str, ProducerIdAndEpoch] = {}

    def run(self) -> None:
        for _ in range(STEPS):
            before, records = self.harness.durable(), len(self.harness.log.entries)
            self.harness.log.fails_with = self.rng.choice(LOG_ERRORS) if self.rng.random() < 0.1 else None
            failing = self.harness.log.fails_with is not None
            step = self.rng.choice(
                [self.init, self.add, self.add, self.verify, self.end, self.end]
                + [self.write_marker] * 3
                + [self.pass_time, self.crash, self.downgrade]
            )
            step()
            after = self.harness.durable()
            if failing:
                assert (after, len(self.harness.log.entries)) == (before, records), "changed by what failed"
            for name, metadata in after.items():
                self.check_move(before.get(name), metadata)
            self.check()
        self.harness.log.fails_with = None
        self.finish()

    # Steps.

    def name(self) -> str:
        return self.rng.choice(IDS)

    def producer(self, name: str) -> ProducerIdAndEpoch:
        """Mostly the present producer, sometimes another one."""
        producer_id, epoch = self.told.get(name, ProducerIdAndEpoch(5, 0))
        wrong = self.rng.random()
        if wrong < 0.05:
            producer_id += 1
        elif wrong < 0.2:
            epoch += self.rng.choice((-1, 1))
        return ProducerIdAndEpoch(producer_id, epoch)

    def init(self) -> None:
        name = self.name()
        expected = self.producer(name) if self.rng.random() < 0.5 else None
        try:
            self.told[name] = init_producer_id(self.harness.shard, name, 60_000, expected)
        except KafkaError:
            return
        if self.near_the_end and self.harness.metadata(name).producer_epoch < PRODUCER_EPOCH_MAX - 10:
            epoch = PRODUCER_EPOCH_MAX - self.rng.randint(2, 5)
            self.harness.shard.transition_to(name, self.harness.metadata(name)._replace(producer_epoch=epoch))
            self.told[name] = ProducerIdAndEpoch(self.told[name].producer_id, epoch)

    def add(self) -> None:
        name = self.name()
        chosen = self.rng.sample(PARTITIONS, self.rng.randint(1, 3))
        try:
            add_partitions(self.harness.shard, name, *self.producer(name), chosen, self.rng.choice((0, 2)))
        except KafkaError:
            return
        metadata = self.harness.metadata(name)
        assert metadata.state is TransactionState.ONGOING
        assert all(metadata.has(*partition) for partition in chosen)

    def verify(self) -> None:
        name = self.name()
        try:
            missing = verify_partitions(self.harness.shard, name, *self.producer(name), PARTITIONS)
        except KafkaError:
            return
        metadata = self.harness.metadata(name)
        assert {one for one in PARTITIONS if metadata.has(*one)} == set(PARTITIONS) - set(missing)

    def end(self) -> None:
        name, commit, version = self.name(), self.rng.random() < 0.6, self.rng.choice((0, 2))
        before = self.harness.shard.transactions.get(name)
        state = None if before is None else before.metadata.state
        producer_id, epoch = self.producer(name)
        try:
            ended = end_transaction(
                self.harness.shard, name, producer_id, epoch, commit=commit, client_version=version
            )
        except KafkaError:
            return
        if version == 2:
            self.told[name] = ProducerIdAndEpoch(*ended)
        metadata = self.harness.metadata(name)
        outcome = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        assert metadata.state in PREPARED or metadata.state is state is outcome

    def write_marker(self) -> None:
        if not self.harness.prepared:
            return
        pending = self.rng.choice(self.harness.prepared)
        if pending.partitions:
            partition = self.rng.choice(list(pending.partitions))
            code = self.rng.choice((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            if code is ErrorCode.NONE:
                self.note_marker(pending, partition)
            markers.on_marker_appended(pending, *partition, code, exists=True)
            return
        try:
            markers.complete(self.harness.shard, pending)
        except KafkaError:
            return
        self.harness.prepared.remove(pending)

    def note_marker(self, pending: PendingEnd, partition: tuple[str, int]) -> None:
        metadata = pending.metadata
        decision = self.markers.setdefault((metadata.producer_id, metadata.producer_epoch), {})
        written = decision.setdefault(partition, set())
        if metadata.client_version == 2:
            written.add(pending.committed)
            assert len(written) == 1, "two outcomes"

    def pass_time(self) -> None:
        self.harness.pass_time(self.rng.choice((1, 100, 10_000, 70_000)))

    def crash(self) -> None:
        before = self.harness.durable()
        loaded_version = self.harness.transaction_version
        self.harness.crash()
        assert self.harness.durable() == before, (
            f"loaded otherwise than it lived, at version {loaded_version}"
        )

    def downgrade(self) -> None:
        if self.rng.random() < 0.2:
            self.harness.transaction_version = self.rng.choice((0, 1, 2))

    # Invariants.

    def check_move(self, old: TransactionMetadata | None, new: TransactionMetadata) -> None:
        if old is None or old == new:
            return
        # A fence by timeout, or an epoch set by this test, is one transition; no step makes two.
        assert old.state in VALID_PREVIOUS_STATES[new.state] or new.state in ENDED, (old, new)
        if old.state in PREPARED and new.state not in PREPARED:
            committed = old.state is TransactionState.PREPARE_COMMIT
            assert new.state is (
                TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
            )
        elif old.state in PREPARED:
            assert old == new, "a decision changed"

    def check(self) -> None:
        for name, known in self.harness.shard.transactions.items():
            metadata = known.metadata
            assert metadata.producer_epoch >= self.epochs.get(metadata.producer_id, 0), "an epoch fell"
            self.epochs[metadata.producer_id] = metadata.producer_epoch
            assert (known.volatile.pending_end is not None) == (metadata.state in PREPARED), name
            if metadata.state is TransactionState.ONGOING:
                assert TransactionDeadline(0, name) in self.harness.deadlines
            if metadata.state in ENDED:
                assert not metadata.partitions

    def finish(self) -> None:
        """Every decided transaction can be completed, and its id used again."""
        for _ in range(3):
            self.harness.pass_time(200_000)
            while self.harness.prepared:
                self.harness.finish()
        for name in IDS:
            found = self.harness.shard.transactions.get(name)
            assert found is None or found.metadata.state in ENDED
            init_producer_id(self.harness.shard, name, 60_000, None)
        self.check()


@pytest.mark.parametrize("seed", range(20))
def test_machine(seed: int) -> None:
    Machine(seed).run()
