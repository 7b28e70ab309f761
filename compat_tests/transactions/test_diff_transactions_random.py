"""Random walks of two transactional ids over one topic, the same on both targets: every response is compared.

A failing walk prints its seed; ONCELOG_SEED (one, or several with commas) runs that alone.
"""

import random

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.transactions.wire import (
    GROUP,
    V2_END,
    V2_OFFSETS,
    V2_PRODUCE,
    Producer,
    find_coordinator,
    observe_committed,
    observe_partition,
    observe_producers,
)
from tests.common.seeds import seeds

STEPS = 70
WALKS = 6
PARTITIONS = 2
CONFIGS: list[dict[str, str]] = [
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"compression.type": "lz4"},
]


class Walk:
    """Chooses its steps at random, and depends only on responses that are the same on both targets."""

    def __init__(self, session: Session, seed: int, name: str) -> None:
        self.session = session
        self.rng = random.Random(seed)
        self.name = name
        self.group = f"{name}-group"
        session.topic(name, PARTITIONS, CONFIGS[seed % len(CONFIGS)])
        find_coordinator(session, self.group, GROUP)
        observe_committed(session, self.group, name, PARTITIONS)
        self.producers = [Producer(session, f"{name}-{number}") for number in range(2)]
        for producer in self.producers:
            producer.init()
        self.offset = 0

    def run(self) -> None:
        steps = [self.send] * 5 + [self.add] * 2 + [self.end] * 4
        steps += [self.init, self.offsets, self.offsets, self.read, self.describe]
        for _ in range(STEPS):
            self.rng.choice(steps)()
        for partition in range(PARTITIONS):
            observe_partition(self.session, self.name, partition)
            observe_producers(self.session, self.name, partition)
        observe_committed(self.session, self.group, self.name, PARTITIONS)

    def epoch(self, producer: Producer) -> int | None:
        """Mostly None, for the producer's epoch; sometimes a wrong one."""
        if self.rng.random() < 0.85:
            return None
        return max(0, producer.epoch + self.rng.choice((-1, -1, 1, -2)))

    def send(self) -> None:
        producer = self.rng.choice(self.producers)
        partition = self.rng.randrange(PARTITIONS)
        sequence = None
        if self.rng.random() < 0.15:
            sequence = max(
                0, producer.sequences.get((self.name, partition), 0) + self.rng.choice((-2, -1, 1))
            )
        producer.send(
            self.name,
            partition,
            self.rng.choice((1, 1, 2)),
            self.rng.choice((7, 9, 11, V2_PRODUCE, V2_PRODUCE, V2_PRODUCE)),
            epoch=self.epoch(producer),
            sequence=sequence,
            transactional=self.rng.random() < 0.93,
        )

    def add(self) -> None:
        producer = self.rng.choice(self.producers)
        some = self.rng.sample(range(PARTITIONS), self.rng.randint(1, PARTITIONS))
        verify = self.rng.random() < 0.2
        version = 4 if verify else self.rng.choice((0, 1, 2, 3, 5))
        producer.add(
            [(self.name, one) for one in some], version, epoch=self.epoch(producer), verify_only=verify
        )

    def end(self) -> None:
        producer = self.rng.choice(self.producers)
        version = self.rng.choice((1, 3, V2_END, V2_END))
        epoch = self.epoch(producer)
        # Without transactions v2 the epoch stays, and the sequences continue.
        producer.end(self.rng.random() < 0.6, version, epoch=epoch, adopt_epoch=epoch is None)

    def init(self) -> None:
        producer = self.rng.choice(self.producers)
        expected = (-1, -1)
        if self.rng.random() < 0.5:
            expected = (producer.producer_id, max(0, producer.epoch + self.rng.choice((0, 0, -1))))
        producer.init(self.rng.choice((3, 4, 5)), expected=expected)

    def offsets(self) -> None:
        producer = self.rng.choice(self.producers)
        if self.rng.random() < 0.3:
            producer.add_offsets(self.group, self.rng.choice((1, 3)))
            return
        self.offset += 1
        version = self.rng.choice((0, 3, 4, V2_OFFSETS, V2_OFFSETS))
        partition = self.rng.randrange(PARTITIONS)
        producer.commit_offset(
            self.group, self.name, self.offset, version, partition, epoch=self.epoch(producer)
        )

    def read(self) -> None:
        observe_partition(self.session, self.name, self.rng.randrange(PARTITIONS), 0)
        observe_committed(self.session, self.group, self.name, PARTITIONS, stable=self.rng.random() < 0.5)

    def describe(self) -> None:
        self.rng.choice(self.producers).describe()
        observe_producers(self.session, self.name, self.rng.randrange(PARTITIONS))


@pytest.mark.parametrize("seed", seeds(WALKS))
def test_walk(pair: Pair, name: str, seed: int) -> None:
    pair.compare(lambda session: Walk(session, seed, f"{name}-{seed}").run())
