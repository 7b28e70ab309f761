"""A crash at any step: acknowledged batches survive, all others exist completely or not at all.

A random life of a store (topics made and deleted, settings, ACLs, users, producer ids, small snapshots) is broken off
at one of its file operations. After the death of the process everything acknowledged is there; after a loss of power
only where every commit is synced. Failures print the seed and the step.
"""

from __future__ import annotations

import random

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.metadata.store import MetadataStore
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import (
    AccessControlEntryRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from tests.harness.metadata_node import open_store
from tests.sim.files import SimFileSystem, SimulatedCrash

KEYS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "log.flush.interval.messages": "1",
}
COMMITS = 14
STARTS = 2


def config(*, synced: bool) -> BrokerConfig:
    keys = dict(KEYS)
    if not synced:
        del keys["log.flush.interval.messages"]
    return BrokerConfig(keys)


def next_commit(image: MetadataImage, chance: random.Random) -> list[Message]:
    """Something that may be done to this image."""
    if chance.random() < 0.4:
        return next_change_of_rights(image, chance)
    if chance.random() < 0.6 or not image.topics:
        topic_id, count = chance.randbytes(16), chance.randint(1, 4)
        rows: list[Message] = [TopicRecord(f"t{image.offset}", topic_id)]
        for index in range(count):
            rows.append(
                PartitionRecord(index, topic_id, [1], [1], leader=1, leader_epoch=0, partition_epoch=0)
            )
        return [*rows, ConfigRecord(2, f"t{image.offset}", "retention.ms", str(count))]
    if chance.random() < 0.5:
        return [RemoveTopicRecord(chance.choice(list(image.topics_by_id)))]
    return [ConfigRecord(4, "", "log.retention.ms", str(chance.randrange(1000)))]


def next_change_of_rights(image: MetadataImage, chance: random.Random) -> list[Message]:
    """What CreateAcls, DeleteAcls and AlterUserScramCredentials write: all rows of one request."""
    known = list(image.acls.by_id)
    if known and chance.random() < 0.3:
        gone = chance.sample(known, chance.randint(1, len(known)))
        return [RemoveAccessControlEntryRecord(one) for one in gone]
    if chance.random() < 0.5:
        return [
            UserScramCredentialRecord(f"u{image.offset}", mechanism, b"salt", b"stored", b"server", 4096)
            for mechanism in (1, 2)
        ]
    return [
        AccessControlEntryRecord(
            chance.randbytes(16), 2, f"t{image.offset}", 3, "User:app", "*", operation, 3
        )
        for operation in range(3, 3 + chance.randint(1, 3))
    ]


def durable_state(image: MetadataImage) -> list[str]:
    """Return the records of the image without registrations, which every start changes."""
    return sorted(repr(record) for record in image.records() if "Register" not in type(record).__name__)


class Life:
    """A store that lives until the disk ends it. ``acknowledged``: the state after each commit that returned."""

    def __init__(self, files: SimFileSystem, seed: int, *, synced: bool) -> None:
        self.files = files
        self.chance = random.Random(seed)
        self.config = config(synced=synced)
        self.acknowledged: list[str] = []
        self.attempted: list[str] | None = None
        self.producer_ids: list[int] = []

    def run(self) -> None:
        for _ in range(STARTS):
            store = open_store(self.files, self.config)
            self.acknowledged = durable_state(store.image)
            for _ in range(COMMITS):
                self.step(store)
            store.close()

    def step(self, store: MetadataStore) -> None:
        if self.chance.random() < 0.15:
            self.attempted = None  # a block that is taken and lost is no harm: only ids given out count
            self.producer_ids.append(store.take_producer_ids())
        else:
            records = next_commit(store.image, self.chance)
            self.attempted = self.after(store.image, records)
            store.commit(records)
        self.attempted = None
        self.acknowledged = durable_state(store.image)

    @staticmethod
    def after(image: MetadataImage, records: list[Message]) -> list[str]:
        copy = MetadataImage()
        for record in [*image.records(), *records]:
            copy.replay(record)
        return durable_state(copy)


def empty_disk(seed: int) -> SimFileSystem:
    files = SimFileSystem(random.Random(seed))
    files.makedirs("/data")
    files.sync_dir("/")
    return files


def steps_of(seed: int, *, synced: bool) -> int:
    files = empty_disk(seed)
    life = Life(files, seed, synced=synced)
    life.run()
    assert any(name.endswith(".checkpoint") for name in files.listdir("/data/__cluster_metadata-0"))
    return files.steps


def without_producer_ids(rows: list[str]) -> list[str]:
    return [row for row in rows if not row.startswith("ProducerIds")]


def crash_and_compare(seed: int, step: int, kind: str) -> None:
    files = empty_disk(seed)
    files.crash_at = step
    life = Life(files, seed, synced=kind == "power")
    with pytest.raises(SimulatedCrash):
        life.run()
    files.crash("power" if kind == "power" else "process")
    where = f"seed {seed}, step {step}, {kind}"
    store = open_store(files, life.config)
    found = durable_state(store.image)
    allowed = [without_producer_ids(life.acknowledged)]
    if life.attempted is not None:
        allowed.append(without_producer_ids(life.attempted))
    if life.acknowledged:
        assert without_producer_ids(found) in allowed, where
    assert store.image.features["metadata.version"] == 33, where
    assert store.take_producer_ids() >= max(life.producer_ids, default=-1000) + 1000, where
    # The next start loads the same image.
    store.commit([TopicRecord("after", bytes(range(16)))])
    assert "after" in open_store(files, life.config).image.topics, where


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_any_step(seed: int, kind: str) -> None:
    for step in range(empty_disk(seed).steps, steps_of(seed, synced=kind == "power")):
        crash_and_compare(seed, step, kind)


@pytest.mark.parametrize("seed", range(40))
def test_a_loss_of_power_without_syncs_loses_the_end_only(seed: int) -> None:
    files = empty_disk(seed)
    chance = random.Random(seed)
    store = open_store(files, config(synced=False))
    states = [durable_state(store.image)]
    for _ in range(chance.randint(1, 40)):
        store.commit(next_commit(store.image, chance))
        states.append(durable_state(store.image))
    files.crash("power")
    again = open_store(files, config(synced=False))
    assert durable_state(again.image) in states, f"seed {seed}"
