"""Random walks over one topic, the same on both targets: every response of every step is compared.

A failing walk prints its seed; ONCELOG_SEED (one, or several with commas) runs that alone.
"""

import random
from typing import Any

import pytest

from compat_tests.differential import Pair, Session, produce_request
from tests.common.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, record
from tests.common.definitions import Fields
from tests.common.seeds import seeds

pytestmark = pytest.mark.also_on("proxy")

STEPS = 120
PARTITIONS = 2
BASE_MS = 1_790_000_000_000
CONFIGS: list[dict[str, str]] = [
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"max.message.bytes": "900"},
    {"segment.index.bytes": "128", "index.interval.bytes": "64"},
    {"index.interval.bytes": "0"},
    {"compression.type": "uncompressed"},
    {"cleanup.policy": "compact,delete"},
]


class Walk:
    """Chooses its steps at random, and depends only on responses that are the same on both targets."""

    def __init__(self, session: Session, seed: int, name: str) -> None:
        self.session = session
        self.rng = random.Random(seed)
        self.name = name
        self.topic_id = session.topic(name, PARTITIONS, CONFIGS[seed % len(CONFIGS)])
        self.ends = [0] * PARTITIONS
        self.sequences: dict[tuple[int, int], tuple[int, int]] = {}
        self.clock = 0

    def run(self) -> None:
        steps = [self.produce, self.produce_as, self.produce_many, self.fetch, self.fetch, self.list_offsets]
        for _ in range(STEPS):
            rare = self.rng.random() < 0.05
            (self.delete if rare else self.rng.choice(steps))()
        for partition in range(PARTITIONS):
            self.call("Fetch", 16, self.fetch_request(self.topic_id, partition, 0, 1 << 24))

    def call(self, api: str, version: int, values: Fields) -> Any:
        return self.session.call(api, version, values, str(len(self.session.observations)))

    def random_batch(self, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
        count = self.rng.choice((1, 1, 2, 5, 30))
        rows, latest = [], 0
        for index in range(count):
            self.clock += 1
            delta = self.rng.choice((0, 0, 1, 5, -3, 50)) if index else 0
            latest = max(latest, delta)
            key = self.rng.choice((b"a", b"b", b"", b"key" * 9)) if self.rng.random() < 0.97 else None
            value = None if self.rng.random() < 0.1 else self.rng.randbytes(self.rng.choice((0, 3, 40)))
            headers = [("h", b"x")] if self.rng.random() < 0.2 else []
            rows.append(record(key, value, headers, offset_delta=index, timestamp_delta=delta))
        base = BASE_MS + self.clock * self.rng.choice((1, 1, -1))
        codec = self.rng.choice((NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD))
        return batch(rows, codec=codec, base_timestamp=base, max_timestamp=base + latest, producer=producer)

    def append(self, records: bytes, partition: int) -> Any:
        version = self.rng.choice((3, 7, 8, 9, 12, 13))
        key = self.topic_id if version >= 13 else self.name
        response = self.call(
            "Produce", version, produce_request(key, records, partition, self.rng.choice((-1, 1)))
        )
        return response["responses"][0]["partition_responses"][0]

    def produce(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        row = self.append(self.random_batch(), partition)
        if row["error_code"] == 0:
            self.ends[partition] = row["base_offset"] + 1

    def produce_as(self) -> None:
        """Produce as an idempotent producer, mostly in order."""
        producer, partition = self.rng.randrange(3), self.rng.randrange(PARTITIONS)
        epoch, sequence = self.sequences.get((producer, partition), (0, 0))
        next_epoch, next_sequence = self.rng.choice(
            [(epoch, sequence)] * 6
            + [(epoch, max(0, sequence - 1)), (epoch, sequence + 1), (epoch + 1, 0), (max(0, epoch - 1), 0)]
        )
        records = self.random_batch((7000 + producer, next_epoch, next_sequence))
        if self.append(records, partition)["error_code"] == 0:
            following = next_sequence + int.from_bytes(records[57:61], "big")
            self.sequences[producer, partition] = (next_epoch, following)
            if self.rng.random() < 0.3:
                self.append(records, partition)  # a duplicate

    def produce_many(self) -> None:
        for _ in range(self.rng.randrange(6)):
            self.produce()

    def fetch_request(self, key: str | bytes, partition: int, offset: int, size: int) -> Fields:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
        word = "topic_id" if isinstance(key, bytes) else "topic"
        return {"max_wait_ms": 0, "max_bytes": 1 << 24, "topics": [{word: key, "partitions": [row]}]}

    def fetch(self) -> None:
        version = self.rng.choice((4, 7, 11, 12, 13, 16, 18))
        partition = self.rng.randrange(PARTITIONS)
        offset = self.rng.randrange(self.ends[partition] + 40)
        values = self.fetch_request(
            self.topic_id if version >= 13 else self.name,
            partition,
            offset,
            self.rng.choice((1, 100, 400, 2000, 1 << 20)),
        )
        self.call("Fetch", version, {**values, "isolation_level": self.rng.randrange(2)})

    def list_offsets(self) -> None:
        stamp = self.rng.choice((-1, -2, -3, BASE_MS + self.rng.randrange(-self.clock - 5, self.clock + 60)))
        row = {"partition_index": self.rng.randrange(PARTITIONS), "timestamp": stamp}
        self.call(
            "ListOffsets",
            self.rng.choice((7, 9, 11)),
            {"topics": [{"name": self.name, "partitions": [row]}]},
        )

    def delete(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        row = {"partition_index": partition, "offset": self.rng.randrange(-1, self.ends[partition] + 3)}
        values = {"topics": [{"name": self.name, "partitions": [row]}], "timeout_ms": 15000}
        self.call("DeleteRecords", self.rng.randrange(3), values)


@pytest.mark.parametrize("seed", seeds(len(CONFIGS)))
def test_random_walk(pair: Pair, name: str, seed: int) -> None:
    print(f"seed {seed}")
    config = CONFIGS[seed % len(CONFIGS)]
    known: tuple[str, ...] = ()
    if "message.timestamp.type" in config:  # several batches may be appended in one millisecond
        known = (r"ListOffsets.*(offset|timestamp|leader_epoch): ",)
    if "segment.index.bytes" in config:  # see test_by_time_after_a_segments_latest_record_was_deleted
        known = (r"ListOffsets.*(offset|timestamp|leader_epoch): -1 != ",)
    pair.compare(lambda session: Walk(session, seed, name).run(), known=known)
