"""Records, batches and snapshots against the bytes that a real Kafka wrote."""

from __future__ import annotations

import random

import pytest

from oncelog.broker.metadata import snapshots
from oncelog.broker.metadata.frames import Batches, batch, frame, unframe
from oncelog.broker.metadata.image import MetadataImage
from oncelog.wire.batch import read_header
from oncelog.wire.control import LEADER_CHANGE, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, control_batch
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Message
from oncelog.wire.stored.control import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, Voter
from oncelog.wire.stored.metadata import FeatureLevelRecord, TopicRecord
from tests.metadata.kafka_bytes import BOOTSTRAP, LOG_ADMIN, LOG_START
from tests.sim.files import SimFileSystem

LEVELS = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def rebuilt(data: bytes, base_offset: int, control: dict[int, tuple[int, Message]]) -> bytes:
    """Decode batches and encode them again. ``control``: type and message of control records by offset."""
    image = MetadataImage()
    batches = Batches(data, base_offset)
    out = b""
    for position, header in batches:
        timestamp, epoch = header.max_timestamp, header.partition_leader_epoch
        if header.is_control:
            kind, message = control[header.base_offset]
            out += control_batch(
                kind,
                message.encode(0),
                timestamp=timestamp,
                base_offset=header.base_offset,
                leader_epoch=epoch,
            )
            continue
        records = list(batches.records(position, header))
        for record in records:
            if isinstance(record, FeatureLevelRecord):
                image.replay(record)
        if header.base_offset >= 245:
            image.features = dict(LEVELS)
        rows = [(record, image.version_of(record)) for record in records]
        out += batch(rows, header.base_offset, epoch, timestamp)
    assert batches.reason == ""
    assert batches.valid_bytes == len(data)
    return out


def test_our_log_is_byte_for_byte_kafkas() -> None:
    leader_change = LeaderChangeMessage(0, 1, [Voter(1)], [Voter(1)])
    assert rebuilt(LOG_START, 0, {0: (LEADER_CHANGE, leader_change)}) == LOG_START
    assert rebuilt(LOG_ADMIN, 245, {}) == LOG_ADMIN


def test_our_snapshot_is_byte_for_byte_kafkas() -> None:
    control: dict[int, tuple[int, Message]] = {
        0: (SNAPSHOT_HEADER, SnapshotHeaderRecord(0, 0)),
        7: (SNAPSHOT_FOOTER, SnapshotFooterRecord(0)),
    }
    assert rebuilt(BOOTSTRAP, 0, control) == BOOTSTRAP


def test_a_snapshot_of_kafkas_is_read() -> None:
    files = SimFileSystem(random.Random(0))
    files.open("/b", create=True).append(BOOTSTRAP)
    assert snapshots.read(files, "/b")[0] == [
        FeatureLevelRecord(name, level) for name, level in LEVELS.items()
    ]


def test_no_part_of_a_snapshot_is_taken_for_one() -> None:
    for size in range(len(BOOTSTRAP)):
        files = SimFileSystem(random.Random(0))
        files.open("/b", create=True).append(BOOTSTRAP[:size])
        with pytest.raises(DecodeError):
            snapshots.read(files, "/b")


def test_a_snapshot_with_anything_behind_it_is_refused() -> None:
    files = SimFileSystem(random.Random(0))
    files.open("/b", create=True).append(BOOTSTRAP + b"\0")
    with pytest.raises(DecodeError):
        snapshots.read(files, "/b")


def test_a_snapshot_is_cut_into_batches() -> None:
    files = SimFileSystem(random.Random(0))
    files.makedirs("/d")
    topics: list[Message] = [
        TopicRecord(f"topic-{index}", index.to_bytes(16, "big"))
        for index in range(snapshots.RECORDS_PER_BATCH + 7)
    ]
    size = snapshots.write(
        files,
        "/d/s",
        ((topic, 0) for topic in topics),
        epoch=3,
        timestamp=5,
        last_contained_log_timestamp=4,
    )
    data = files.read_bytes("/d/s")
    assert len(data) == size
    counts, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        counts.append(
            (header.base_offset, header.record_count, header.partition_leader_epoch, header.is_control)
        )
        position += header.size
    assert counts == [(0, 1, 3, True), (1, 1000, 3, False), (1001, 7, 3, False), (1008, 1, 3, True)]
    first = next(iterate_records(data)).value
    assert first is not None
    assert SnapshotHeaderRecord.decode(first, 0).last_contained_log_timestamp == 4
    assert snapshots.read(files, "/d/s") == (topics, {})


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01\x02", b"\x00\x02\x00", b"\x02\x02\x00", b"\x01\x7e\x00", b"\x01\x02\x01", b"\x81\x02\x00"],
)
def test_a_malformed_frame_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        unframe(value + bytes(40))


def test_a_frame_is_version_type_version_and_message() -> None:
    record = TopicRecord("t", bytes(range(16)))
    assert frame(record, 0) == b"\x01\x02\x00" + b"\x02t" + bytes(range(16)) + b"\x00"


def test_file_names() -> None:
    assert snapshots.SnapshotId(590, 4).file_name == "00000000000000000590-0000000004.checkpoint"
    assert snapshots.parse_name("00000000000000000590-0000000004.checkpoint") == (590, 4)
    for name in (
        "00000000000000000590-0000000004.checkpoint.part",
        "00000000000000000590-0000000004.checkpoint.deleted",
        "bootstrap.checkpoint",
        "00000000000000000590.log",
        "0000000000000000059x-0000000004.checkpoint",
        "590-4.checkpoint",
    ):
        assert snapshots.parse_name(name) is None
