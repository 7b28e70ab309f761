"""`MetadataStore`: start, commit, listeners and failures."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata import snapshots
from oncelog.broker.metadata.features import OUR_FEATURES
from oncelog.broker.metadata.frames import Batches
from oncelog.broker.metadata.image import BROKER, METADATA_VERSION, Topic
from oncelog.broker.metadata.log import DIRECTORY
from oncelog.broker.metadata.store import START_TAIL_BYTES_MAX, MetadataStore
from oncelog.coordinator.producer_ids import ProducerIds
from oncelog.wire.control import KRAFT_VERSION, KRAFT_VOTERS, control_batch
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.schema import Message, uuid_to_text
from oncelog.wire.stored.metadata import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.harness.clocks import FixedClock
from tests.harness.metadata_node import DIRECTORY_ID, open_store
from tests.metadata.kafka_bytes import BOOTSTRAP, LOG_START
from tests.sim.disk import Fault
from tests.sim.files import SimFileSystem

DIR = f"/data/{DIRECTORY}"
FIRST = f"{DIR}/00000000000000000000.log"
ID = bytes(range(16))


def disk() -> SimFileSystem:
    files = SimFileSystem(random.Random(0))
    files.makedirs("/data")
    files.sync_dir("/")
    return files


def store_on(files: SimFileSystem, clock: FixedClock | None = None, **keys: str) -> MetadataStore:
    return open_store(
        files, BrokerConfig({name.replace("_", "."): text for name, text in keys.items()}), clock
    )


def a_topic(name: str = "t", topic_id: bytes = ID) -> list[Message]:
    row = PartitionRecord(
        0, topic_id, [1], [1], leader=1, leader_epoch=0, partition_epoch=0, directories=[ID]
    )
    return [TopicRecord(name, topic_id), row]


def log_of(files: SimFileSystem) -> tuple[list[int], list[Message]]:
    """The records of each batch, counted (a control batch: 0), and all records."""
    batches = Batches(files.read_bytes(FIRST), 0)
    counts, found = [], []
    for position, header in batches:
        rows = [] if header.is_control else list(batches.records(position, header))
        counts.append(len(rows))
        found += rows
    return counts, found


def without_kafkas_others(records: list[Message]) -> list[Message]:
    """Kafka's records without the features that are not supported here, and without NoOps."""
    left_out = ("streams.version",)
    return [
        record
        for record in records
        if not isinstance(record, NoOpRecord)
        and not (isinstance(record, FeatureLevelRecord) and record.name in left_out)
    ]


def test_a_first_start_writes_the_records_that_kafka_writes() -> None:
    files = disk()
    store = store_on(files)
    counts, ours = log_of(files)
    kafka_disk = disk()
    kafka_disk.makedirs(DIR)
    kafka_disk.open(FIRST, create=True).append(LOG_START)
    kafkas = without_kafkas_others(log_of(kafka_disk)[1])
    assert [type(record) for record in ours] == [type(record) for record in kafkas]
    features_and_config = [record for record in ours if isinstance(record, FeatureLevelRecord | ConfigRecord)]
    of_kafka_4_4 = {METADATA_VERSION: 33, "share.version": 2}
    expected = [record for record in kafkas if isinstance(record, FeatureLevelRecord | ConfigRecord)]
    for record in expected:
        if isinstance(record, FeatureLevelRecord):
            record.feature_level = of_kafka_4_4.get(record.name, record.feature_level)
    assert features_and_config == expected
    assert counts == [0, 8, 4]
    assert store.image.offset == 12
    assert store.broker_epoch == 10
    [broker] = store.image.brokers.values()
    assert (broker.broker_epoch, broker.fenced, broker.log_dirs, broker.cordoned_log_dirs) == (
        10,
        False,
        [DIRECTORY_ID],
        [],
    )


def test_bootstrap_checkpoint_is_written_and_read() -> None:
    files = disk()
    store_on(files)
    assert snapshots.read(files, "/data/bootstrap.checkpoint")[0] == [
        FeatureLevelRecord("metadata.version", 33),
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
        FeatureLevelRecord("group.version", 1),
        FeatureLevelRecord("share.version", 2),
        FeatureLevelRecord("transaction.version", 2),
    ]
    files = disk()
    snapshots.write(
        files,
        "/data/bootstrap.checkpoint",
        [(FeatureLevelRecord("metadata.version", 30), 0)],
        epoch=0,
        timestamp=0,
        last_contained_log_timestamp=0,
    )
    store = store_on(files)
    assert store.image.features == {"metadata.version": 30}
    assert store.image.configs == {}


FIRST_SNAPSHOT = f"{DIR}/{snapshots.FIRST.file_name}"


def formatted(records: Sequence[Message], path: str, files: SimFileSystem | None = None) -> SimFileSystem:
    """A disk with a data directory that kafka-storage formatted: until 4.3 the records are in bootstrap.checkpoint."""
    files = files or disk()
    if not files.is_dir(DIR):
        files.makedirs(DIR)
    rows = [(record, 0) for record in records]
    snapshots.write(files, path, rows, epoch=0, timestamp=0, last_contained_log_timestamp=0)
    return files


@pytest.mark.parametrize("path", ["/data/bootstrap.checkpoint", FIRST_SNAPSHOT])
def test_a_new_log_begins_with_all_records_of_the_format(path: str) -> None:
    """Such as the ACLs and the users that a directory was formatted with. The log has them, as Kafka's has."""
    acl = AccessControlEntryRecord(bytes(range(16)), 2, "t", 3, "User:a", "*", 3, 3)
    level = FeatureLevelRecord("metadata.version", 30)
    files = formatted([level, acl], path)
    for _ in range(2):
        store = store_on(files)
        assert list(store.image.acls.records()) == [acl]
        assert store.image.features == {"metadata.version": 30}
    assert [record for record in log_of(files)[1] if record in (level, acl)] == [level, acl]
    store_on(files).snapshot()
    assert list(store_on(files).image.acls.records()) == [acl]


def test_the_records_in_the_first_snapshot_win() -> None:
    files = formatted([FeatureLevelRecord("metadata.version", 30)], "/data/bootstrap.checkpoint")
    formatted([FeatureLevelRecord("metadata.version", 31)], FIRST_SNAPSHOT, files)
    assert store_on(files).image.features == {"metadata.version": 31}


def test_a_first_snapshot_that_cannot_be_read() -> None:
    """The levels of a log that has not begun are nowhere else."""
    files = formatted([FeatureLevelRecord("metadata.version", 30)], FIRST_SNAPSHOT)
    files.open(FIRST_SNAPSHOT).truncate(100)
    with pytest.raises(DecodeError, match=r"0000000000\.checkpoint: "):
        store_on(files)


def test_a_directory_with_unsupported_features_is_refused() -> None:
    """A future level of a supported feature and of one that is only stored, an unknown feature, and one too old."""
    lower, raised = "or lower the level with it", "kafka-features upgrade --feature metadata.version=30"
    for name, level, known, advice in (
        ("group.version", 2, "0 to 1", lower),
        ("streams.version", 2, "0 to 1", lower),
        ("unheard.of.version", 1, "0 to 0", lower),
        ("metadata.version", 34, "30 to 33", "this level cannot be lowered; use that release"),
        ("metadata.version", 29, "30 to 33", raised),
    ):
        levels = {METADATA_VERSION: 30, name: level}
        records = [FeatureLevelRecord(*row) for row in levels.items()]
        for path in ("/data/bootstrap.checkpoint", FIRST_SNAPSHOT):
            with pytest.raises(KafkaError) as refused:
                store_on(formatted(records, path))
            text = f"needs {name} at level {level}; supported are {known}: "
            assert text in str(refused.value)
            assert advice in str(refused.value)


def test_a_directory_of_kafka_is_used_unchanged() -> None:
    """The directory is formatted or in use. Its features keep their levels; unsupported ones are not finalized here."""
    kafkas = {**OUR_FEATURES.at_format, METADATA_VERSION: 30, "share.version": 1, "streams.version": 1}
    formatted, used = disk(), disk()
    formatted.open("/data/bootstrap.checkpoint", create=True).append(BOOTSTRAP)
    used.makedirs(DIR)
    used.open(FIRST, create=True).append(LOG_START)
    for files in (formatted, used):
        for _ in range(2):
            store = store_on(files)
            assert store.image.features == kafkas
            assert store.features.finalized(store.image)[1] == {
                **OUR_FEATURES.at_format,
                METADATA_VERSION: 30,
                "share.version": 1,
            }
            store.snapshot()


def test_the_quorums_own_records_stay() -> None:
    """Who the voters are: from a snapshot, then changed in the log, into our snapshots."""

    def in_snapshot() -> dict[int, bytes]:
        (name,) = [name for name in files.listdir(DIR) if name.endswith(".checkpoint")]
        return snapshots.read(files, f"{DIR}/{name}")[1]

    files = disk()
    files.open("/data/bootstrap.checkpoint", create=True).append(BOOTSTRAP)
    files.makedirs(DIR)
    quorum = {KRAFT_VERSION: b"version", KRAFT_VOTERS: b"voters"}
    snapshots.write(
        files,
        f"{DIR}/{snapshots.SnapshotId(0, 0).file_name}",
        [],
        epoch=0,
        timestamp=0,
        last_contained_log_timestamp=0,
        quorum=quorum,
    )
    store = store_on(files)
    assert in_snapshot() == quorum
    store.snapshot()
    assert in_snapshot() == quorum
    store = store_on(files)
    end = store.image.offset + 1
    newer = control_batch(KRAFT_VOTERS, b"others", timestamp=0, base_offset=end, leader_epoch=9)
    (active,) = [name for name in files.listdir(DIR) if name.endswith(".log")]
    files.open(f"{DIR}/{active}").append(newer)
    store = store_on(files)
    store.snapshot()
    assert in_snapshot() == {**quorum, KRAFT_VOTERS: b"others"}


def test_a_second_start_formats_nothing() -> None:
    files = disk()
    store_on(files).commit(a_topic())
    store = store_on(files)
    assert log_of(files)[0] == [0, 8, 4, 2, 0, 4]
    assert (store.image.offset, store.broker_epoch) == (19, 17)
    assert list(store.image.topics) == ["t"]


def test_formatting_is_repeated_after_a_crash() -> None:
    files = disk()
    store_on(files)
    size = files.size(FIRST)
    for cut in range(91, size, 50):
        files = disk()
        store_on(files)
        files.open(FIRST).truncate(cut)
        store = store_on(files)
        assert store.image.features["metadata.version"] == 33
        assert store.image.configs == {(BROKER, ""): {"min.insync.replicas": "1"}}


def test_a_transaction_that_was_left_open_is_aborted() -> None:
    files = disk()
    store = store_on(files)
    store.commit([BeginTransactionRecord(name="never ended")])
    store.commit(a_topic())
    again = store_on(files)
    assert again.image.topics == {}
    again.commit(a_topic("later"))
    assert list(store_on(files).image.topics) == ["later"]


def test_leaders_that_another_kafka_took_away_come_back() -> None:
    files = disk()
    store = store_on(files)
    store.commit(a_topic())
    store.commit(
        [PartitionChangeRecord(0, ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1])]
    )
    [row] = store_on(files).image.topics["t"].partitions
    assert (row.leader, row.leader_epoch, row.isr, row.eligible_leader_replicas) == (1, 2, [1], [])
    [row] = store_on(files).image.topics["t"].partitions
    assert row.leader_epoch == 2


def test_listeners_are_told_in_order_when_the_image_has_all() -> None:
    store = store_on(disk())
    told: list[tuple[str, str, int]] = []

    def listen(who: str, record: Message, topic: Topic | None) -> None:
        assert topic is not None
        told.append((who, type(record).__name__, len(topic.partitions)))

    store.subscribe(lambda record, topic: listen("first", record, topic))
    store.subscribe(lambda record, topic: listen("second", record, topic))
    store.commit(a_topic())
    assert told == [
        ("first", "TopicRecord", 1),
        ("second", "TopicRecord", 1),
        ("first", "PartitionRecord", 1),
        ("second", "PartitionRecord", 1),
    ]
    told.clear()
    store.commit([RemoveTopicRecord(ID)])
    assert told == [("first", "RemoveTopicRecord", 1), ("second", "RemoveTopicRecord", 1)]


def test_a_commit_is_one_batch_and_moves_the_offset() -> None:
    files = disk()
    store = store_on(files)
    offset = store.image.offset
    assert store.commit(a_topic()) == offset + 2 == store.image.offset
    assert log_of(files)[0][-1] == 2
    assert store.commit([]) == offset + 2
    assert log_of(files)[0][-1] == 2


def test_a_failed_commit_has_not_happened() -> None:
    files = disk()
    store = store_on(files)
    told: list[Message] = []
    store.subscribe(lambda record, topic: told.append(record))
    offset, size = store.image.offset, files.size(FIRST)
    files.faults.append(Fault("write", errno.ENOSPC, after_bytes=40))
    with pytest.raises(KafkaError) as caught:
        store.commit(a_topic())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (store.image.topics, store.image.offset, files.size(FIRST), told) == ({}, offset, size, [])
    files.faults.clear()
    store.commit(a_topic())
    assert list(store_on(files).image.topics) == ["t"]


def test_syncs_are_as_configured() -> None:
    files = disk()
    store = store_on(files)
    syncs = files.counts["fsync", FIRST]
    store.commit(a_topic())
    assert files.counts["fsync", FIRST] == syncs
    store.commit([NoOpRecord()], durable=True)
    assert files.counts["fsync", FIRST] == syncs + 1
    files = disk()
    store = store_on(files, log_flush_interval_messages="1")
    syncs = files.counts["fsync", FIRST]
    store.commit(a_topic())
    assert files.counts["fsync", FIRST] == syncs + 1


def test_producer_ids_come_from_durable_blocks() -> None:
    files = disk()
    store = store_on(files)
    syncs = files.counts["fsync", FIRST]
    ids = ProducerIds(store.take_producer_ids)
    assert [ids.next() for _ in range(3)] == [0, 1, 2]
    assert files.counts["fsync", FIRST] == syncs + 1
    assert store.image.next_producer_id == 1000
    assert ProducerIds(store_on(files).take_producer_ids).next() == 1000


def snapshot_offsets(files: SimFileSystem) -> list[int]:
    found = [snapshots.parse_name(name) for name in files.listdir(DIR)]
    return [row.offset for row in found if row is not None]


def test_a_snapshot_after_so_many_bytes() -> None:
    files = disk()
    store = store_on(files, metadata_log_max_record_bytes_between_snapshots="2000")
    start = len(files.read_bytes(FIRST))
    commits = 0
    while not snapshot_offsets(files):
        store.commit([NoOpRecord()])
        commits += 1
    # 72 bytes for each NoOp batch.
    assert commits == (2000 - start) // 72 + 1
    assert snapshot_offsets(files) == [store.image.offset + 1]
    for _ in range(27):
        store.commit([NoOpRecord()])
    assert snapshot_offsets(files) == [store.image.offset - 26]
    store.commit([NoOpRecord()])
    assert snapshot_offsets(files) == [store.image.offset + 1]


def test_a_snapshot_after_so_long() -> None:
    files, clock = disk(), FixedClock()
    store = store_on(files, clock)
    clock.ms += 3_599_999
    store.commit([NoOpRecord()])
    assert snapshot_offsets(files) == []
    clock.ms += 1
    store.commit([NoOpRecord()])
    assert snapshot_offsets(files) == [store.image.offset + 1]
    files, clock = disk(), FixedClock()
    store = store_on(files, clock, metadata_log_max_snapshot_interval_ms="0")
    clock.ms += 10**12
    store.commit([NoOpRecord()])
    assert snapshot_offsets(files) == []


def test_a_start_with_much_to_read_writes_a_snapshot() -> None:
    files = disk()
    store = store_on(files)
    store.commit(
        [ConfigRecord(BROKER, "x", "k", "v" * 30_000) for _ in range(START_TAIL_BYTES_MAX // 30_000 + 1)]
    )
    assert snapshot_offsets(files) == []
    store_on(files)
    assert len(snapshot_offsets(files)) == 1
    assert store_on(files).image.configs[(BROKER, "x")] == {"k": "v" * 30_000}


def test_a_snapshot_that_fails_is_tried_again_an_interval_later() -> None:
    files = disk()
    store = store_on(files, metadata_log_max_record_bytes_between_snapshots="2000")
    files.faults.append(Fault("rename", errno.EIO))
    for _ in range(60):
        store.commit([NoOpRecord()])
    # 665 bytes of the start and 60 times 72: one attempt at 2000, one at 4000.
    renames = [path for operation, path in files.counts.elements() if operation == "rename"]
    assert sum(path.endswith(".checkpoint.part") for path in renames) == 1 + 2  # and bootstrap.checkpoint
    files.faults.clear()
    while not snapshot_offsets(files):
        store.commit([NoOpRecord()])
    assert store_on(files).image.offset > 60


def test_topic_ids_are_like_kafkas() -> None:
    store = store_on(disk())
    ids = [store.new_uuid() for _ in range(500)]
    assert len(set(ids)) == 500
    assert all(uuid[6] >> 4 == 4 and uuid[8] >> 6 == 2 for uuid in ids)
    assert not any(uuid_to_text(uuid).startswith("-") for uuid in ids)
    assert {uuid_to_text(uuid)[0] for uuid in ids} >= {"_", "A"}


def test_the_registration_has_the_endpoints_for_clients() -> None:
    files = disk()
    store_on(files, broker_rack="r1")
    _, records = log_of(files)
    [broker] = [record for record in records if isinstance(record, RegisterBrokerRecord)]
    assert broker.end_points == [BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)]
    assert broker.rack == "r1"
    assert {row.name: (row.min_supported_version, row.max_supported_version) for row in broker.features} == {
        "metadata.version": (30, 33),
        "eligible.leader.replicas.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "share.version": (0, 2),
    }


def test_a_stop_fences_the_broker_and_the_next_start_unfences_it() -> None:
    files = disk()
    store = store_on(files)
    store.fence()
    (broker,) = store.image.brokers.values()
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, True)
    store.close()
    [*_, shutdown, fenced] = log_of(files)[1]
    assert shutdown == BrokerRegistrationChangeRecord(1, store.broker_epoch, in_controlled_shutdown=1)
    assert fenced == BrokerRegistrationChangeRecord(1, store.broker_epoch, fenced=1)
    (broker,) = store_on(files).image.brokers.values()
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, False)


def test_a_start_fences_the_other_nodes_of_a_former_cluster() -> None:
    files = disk()
    store = store_on(files)
    others = [RegisterBrokerRecord(2, broker_epoch=7, fenced=False), RegisterBrokerRecord(3, broker_epoch=8)]
    store.commit(others)
    store.close()
    brokers = store_on(files).image.brokers
    assert {broker_id: broker.fenced for broker_id, broker in brokers.items()} == {1: False, 2: True, 3: True}
