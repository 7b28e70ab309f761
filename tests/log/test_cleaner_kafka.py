"""The same log compacted by Kafka's own Cleaner (CleanerOracle.java) and by ours: the same files."""

from __future__ import annotations

import pathlib
import random
import shutil

import pytest

from conftest import KafkaTool
from oncelog.broker.log.cleaner.cleaner import Cleaner
from oncelog.broker.log.cleaner.log_to_clean import LogToClean
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.batch import read_header
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.control import end_transaction_marker
from oncelog.wire.records import iterate_records
from tests.common import exchanges
from tests.harness.kafka_oracle import ask_oracle
from tests.harness.log_manager import START_MS, LogManagerHarness, run

ORACLE = pathlib.Path(__file__).with_name("CleanerOracle.java")
KEY_MEMORY = 1 << 20

pytestmark = [pytest.mark.slow, exchanges.LOG]

SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "600000",
    "index.interval.bytes": "300",
    "segment.bytes": str(1 << 20),
}


def clean_with_kafka(directory: pathlib.Path, first_dirty_offset: int, end: int, now_ms: int) -> int:
    numbers = [str(first_dirty_offset), str(end), str(now_ms), str(KEY_MEMORY)]
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    return int(ask_oracle(ORACLE, str(directory), *numbers, *settings).split()[-1])


class Writer:
    """Fills a log with all that a cleaner may meet."""

    def __init__(
        self, log: PartitionLog, chance: random.Random, codecs: list[int], sequences: dict[int, int]
    ) -> None:
        self.codecs = codecs
        self.log = log
        self.chance = chance
        self.sequences = sequences
        self.open: set[int] = set()

    def write(self) -> None:
        chance = self.chance
        kind = chance.random()
        if kind < 0.2 and self.open:
            self.end(self.open.pop())
            return
        builder = BatchBuilder(
            codec=chance.choice(self.codecs),
            **self.producer() if kind < 0.7 else {},  # type: ignore[arg-type]
        )
        for _ in range(chance.randint(1, 6)):
            key = b"key-%d" % chance.randint(0, 40) + b"-" * chance.choice([0, 30])
            value = None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, 90))
            headers = [("name", b"value"), ("none", None)][: chance.randint(0, 2)]
            builder.append(START_MS - chance.randint(0, 90_000), key, value, headers)
        self.log.append(memoryview(builder.build()), leader_epoch=0, origin=AppendOrigin.CLIENT)
        if builder.producer_id >= 0:
            self.sequences[builder.producer_id] += builder.record_count

    def producer(self) -> dict[str, int | bool]:
        producer_id = self.chance.randint(1, 12)
        transactional = producer_id > 6
        if transactional:
            self.open.add(producer_id)
        sequence = self.sequences.setdefault(producer_id, 0)
        return {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "transactional": transactional,
        }

    def end(self, producer_id: int) -> None:
        marker = end_transaction_marker(
            commit=self.chance.random() < 0.5,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=START_MS,
        )
        self.log.append(memoryview(marker), leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    def finish(self) -> None:
        while self.open:
            self.end(self.open.pop())
        self.log.roll()


def contents(directory: pathlib.Path) -> dict[str, object]:
    """What a partition's files say; of compressed batches the records, for no two compressors agree."""
    found: dict[str, object] = {}
    for path in sorted(directory.glob("*.log")):
        data, at, batches = path.read_bytes(), 0, []
        while at < len(data):
            header = read_header(data, at)
            size = header.size
            raw = b"" if header.codec else data[at : at + size]
            records = list(iterate_records(data, header, offset=at))
            if header.codec:
                header.batch_length = header.crc = 0
            batches.append((header, records, raw))
            at += size
        found[path.name] = batches
    for path in sorted(directory.glob("*.txnindex")):
        if path.stat().st_size:
            found[path.name] = path.read_bytes()
    return found


def indexes(directory: pathlib.Path) -> dict[str, bytes]:
    """What the indexes say. Kafka gives those of the active segment their full size, with zeros in place of entries."""
    paths = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    data = {path.name: path.read_bytes() for path in sorted(paths)}
    return {name: entries if any(entries) else b"" for name, entries in data.items()}


@pytest.mark.parametrize("seed", range(4))
def test_kafkas_cleaner_makes_the_same_of_it(
    seed: int, tmp_path: pathlib.Path, kafka_tool: KafkaTool
) -> None:
    chance = random.Random(seed)
    codecs = [0, 0, 0, 1, 2, 3, 4] if seed % 2 else [0]
    harness = LogManagerHarness(seed, OsFileSystem(), str(tmp_path / "ours"), {"log.cleaner.enable": "false"})
    timestamp_type = "LogAppendTime" if seed > 1 else "CreateTime"
    harness.add_topic("t", overrides={**SETTINGS, "message.timestamp.type": timestamp_type})
    ours, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0"
    cleaned_to = None
    sequences: dict[int, int] = {}

    async def write() -> tuple[int, int]:
        async with harness.running() as manager:
            writer = Writer(manager.get("t", 0), chance, codecs, sequences)
            for _ in range(chance.randint(2, 5)):
                for _ in range(chance.randint(10, 60)):
                    writer.write()
                writer.log.roll()
            writer.finish()
            to_clean = LogToClean(writer.log, cleaned_to, harness.clock.now_ms())
            return to_clean.first_dirty_offset, to_clean.first_uncleanable_offset

    async def clean() -> int:
        async with harness.running() as manager:
            manager.get("t", 0)
            assert await Cleaner(manager).clean_filthiest()
            return manager.offsets.cleaned.known["t", 0]

    for wait_ms in (0, 300_000, 700_000):
        harness.clock.advance(wait_ms / 1000)
        first_dirty_offset, end = run(write)
        shutil.rmtree(theirs.parent, ignore_errors=True)
        shutil.copytree(ours, theirs)
        kafkas_end = clean_with_kafka(theirs, first_dirty_offset, end, harness.clock.now_ms())
        cleaned_to = run(clean)
        assert cleaned_to == kafkas_end
        assert contents(ours) == contents(theirs), f"seed {seed}"
        if codecs == [0]:
            assert indexes(ours) == indexes(theirs), f"seed {seed}"
        dump(kafka_tool, ours)


def dump(kafka_tool: KafkaTool, directory: pathlib.Path) -> None:
    """DumpLogSegments finds nothing wrong."""
    files = [*directory.glob("*.log"), *directory.glob("*.index"), *directory.glob("*.timeindex")]
    files = [path for path in files if path.stat().st_size]
    for option in ("--deep-iteration", "--index-sanity-check"):
        chosen = [path for path in files if (path.suffix == ".log") == (option == "--deep-iteration")]
        names = ",".join(str(path) for path in sorted(chosen))
        ran = kafka_tool("org.apache.kafka.tools.DumpLogSegments", option, "--files", names)
        for word in (
            "Mismatch",
            "mismatch",
            "isvalid: false",
            "corrupt",
            "Non-consecutive",
            "Found timestamp",
        ):
            assert word not in ran.stdout, ran.stdout
        assert not ran.stderr or "rror" not in ran.stderr, ran.stderr
