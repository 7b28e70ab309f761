"""Kafka's own tool reads our files and finds nothing wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.log.following import append_as_follower
from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.producers.state import AppendOrigin
from oncelog.broker.log.truncation import truncate_fully_and_start_at, truncate_to
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.control import end_transaction_marker
from tests.common import exchanges
from tests.common.jars import TOOL_TIMEOUT_S, RealPartMissing, java, kafka_libs, require
from tests.harness.partition_log import PartitionLogHarness, batch, bytes_of, flush

pytestmark = [pytest.mark.slow, exchanges.LOG]

COMPLAINTS = (
    "Mismatch",
    "mismatch",
    "Non-consecutive",
    "corrupt",
    "Corrupt",
    "trailing",
    "Exception",
    "not found",
)


def dump(directory: Path, suffixes: tuple[str, ...], *options: str) -> str:
    """What kafka-dump-log says of all files with one of these suffixes."""
    try:
        libs, binary = kafka_libs(), java()
    except RealPartMissing as missing:
        require(str(missing))
    files = ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)
    done = subprocess.run(
        [
            binary,
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{libs}/*",
            "org.apache.kafka.tools.DumpLogSegments",
            "--files",
            files,
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=True,
    )
    assert complaints(done.stderr, directory) == []
    assert not any(word in done.stdout for word in COMPLAINTS), done.stdout
    return done.stdout


def complaints(stderr: str, directory: Path) -> list[str]:
    """What it says, but for what it says of every segment that does not begin at 0: that -1 precedes it."""
    bases = {f"-1 is followed by {int(path.stem)}" for path in directory.glob("*.log")}
    lines = [line.strip() for line in stderr.splitlines()]
    headings = tuple(f"Non-consecutive offsets in {path}" for path in directory.glob("*.log"))
    return [
        line for line in lines if line and "SLF4J" not in line and line not in bases and line not in headings
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def fill(log: PartitionLog, harness: PartitionLogHarness) -> None:
    """Batches of all codecs, sizes and kinds, over several segments."""
    for at in range(300):
        harness.clock.ms += (at * 37) % 11 - 3
        values = [bytes(at % 7 * 40) for _ in range(at % 4 + 1)]
        producer = (
            (9, 0, sum(n % 4 + 1 for n in range(1, at, 3)) & 0x7FFFFFFF) if at % 3 == 1 else (-1, -1, -1)
        )
        sent = batch(values, timestamp=harness.clock.ms, producer=producer, codec=at % 5)
        log.append(sent, leader_epoch=at // 100)
    for transaction in range(3):
        producer = (20 + transaction, 0, 0)
        log.append(batch((b"in a transaction",), producer=producer, transactional=True), leader_epoch=3)
    for transaction, commit in enumerate((True, False)):
        marker = end_transaction_marker(
            commit=commit,
            coordinator_epoch=4,
            producer_id=20 + transaction,
            producer_epoch=0,
            timestamp=harness.clock.ms,
        )
        log.append(marker, leader_epoch=3, origin=AppendOrigin.COORDINATOR)


def check(directory: Path, log: PartitionLog) -> None:
    end = log.log_end_offset
    said = dump(directory, (".log", ".index", ".timeindex"), "--deep-iteration")
    assert f"lastOffset: {end - 1} " in said
    assert "isvalid: false" not in said
    sane = dump(directory, (".index", ".timeindex"), "--index-sanity-check")
    assert "passed sanity check" in sane
    producers = dump(directory, (".snapshot",))
    assert "producerId: 9 producerEpoch: 0" in producers


def test_after_a_clean_stop(directory: Path) -> None:
    harness = PartitionLogHarness(OsFileSystem(), internal_segment_bytes=10_000, index_interval_bytes=500)
    harness.directory = str(directory)
    log = harness.create()
    fill(log, harness)
    log.close()
    assert len(log.segments) > 3
    check(directory, log)
    aborted = dump(directory, (".txnindex",))
    assert (
        f"producerId: 21 firstOffset: {log.log_end_offset - 4} lastOffset: {log.log_end_offset - 1}"
        in aborted
    )
    producers = dump(directory, (".snapshot",))
    assert f"currentTxnFirstOffset: OptionalLong[{log.log_end_offset - 3}]" in producers
    reopened = harness.open()
    reopened.append(batch((b"after",), timestamp=harness.clock.ms), leader_epoch=4)
    reopened.close()
    check(directory, reopened)


def test_after_a_crash_and_recovery(directory: Path) -> None:
    harness = PartitionLogHarness(OsFileSystem(), internal_segment_bytes=10_000, index_interval_bytes=500)
    harness.directory = str(directory)
    log = harness.create()
    fill(log, harness)
    flush(log)
    point = log.recovery_point
    sent = batch((b"not flushed",) * 3, timestamp=harness.clock.ms)
    log.append(sent, leader_epoch=4)
    with open(log.active.log_path, "ab") as torn:
        torn.write(bytes(sent)[:50])
    recovered = harness.recover(point)
    assert [cut.bytes for cut in harness.recovery.cuts] == [50]
    assert recovered.log_end_offset == log.log_end_offset
    recovered.close()
    check(directory, recovered)


@pytest.mark.parametrize("is_clean", [True, False])
def test_of_a_follower_that_was_truncated(directory: Path, is_clean: bool) -> None:
    config: dict[str, Any] = {"internal_segment_bytes": 10_000, "index_interval_bytes": 500}
    leader_side = PartitionLogHarness(is_replicated=True, **config)
    leader = leader_side.create()
    fill(leader, leader_side)
    harness = PartitionLogHarness(OsFileSystem(), is_replicated=True, **config)
    harness.directory = str(directory)
    log = harness.create()
    follow(log, leader)
    for offset in (leader.log_end_offset - 3, 600, 333):
        truncate_to(log, offset)
        if is_clean:
            flush(log)
            follow(log, leader)
    truncate_fully_and_start_at(log, 0)
    follow(log, leader)
    truncate_to(log, leader.log_end_offset - 5)  # where the transactions began
    follow(log, leader)
    assert len(log.segments) > 3
    if not is_clean:
        harness.checkpoint(log)
        log = harness.recover(harness.recovery_point)
        assert harness.recovery.cuts == []
    log.close()
    check(directory, log)
    aborted = dump(directory, (".txnindex",))
    assert f"producerId: 21 firstOffset: {log.log_end_offset - 4} " in aborted
    for mine, leaders in zip(log.segments, leader.segments, strict=True):
        assert Path(mine.log_path).read_bytes() == leaders.file.pread(leaders.size, 0)


def follow(log: PartitionLog, leader: PartitionLog) -> None:
    while log.log_end_offset < leader.log_end_offset:
        read = leader.read(log.log_end_offset, 3_000, minimum_one=True, up_to=leader.log_end_offset)
        append_as_follower(log, bytes_of(read), leader.latest_epoch)
