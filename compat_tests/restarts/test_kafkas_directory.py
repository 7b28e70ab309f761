"""A data directory that a real Kafka formatted and filled: oncelog serves it as it is, and then Kafka serves it again.

The directory is formatted with a configured voter, or with voters in the metadata log (`kafka-storage format
--standalone`, as in Kafka's quick start). It goes from release to release, too, as far as its levels allow.
"""

import contextlib
import pathlib
from collections.abc import Mapping

import pytest

from compat_tests.brokers import Broker
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from oncelog.broker.metadata import snapshots
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.stored.metadata import FeatureLevelRecord
from tests.common import exchanges, facts
from tests.common.batches import TRANSACTIONAL, batch, read_batches
from tests.common.definitions import Fields
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.real_kafka import CHECKPOINTS, RealKafka, new_uuid

RECORDS = 5
GROUP = "readers"
KAFKAS_FEATURES = {"streams.version": 1}
LEVELS_OF_OLDER = {**facts.LEVELS, "metadata.version": 30, "share.version": 1}
FEATURES = "org.apache.kafka.tools.FeatureCommand"
USERS = {"alice": (1, 4096), "bob": (2, 8192)}
"""The mechanism and the iterations of their credentials."""
ADD_USERS = (
    *("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
    *("--add-scram", "SCRAM-SHA-512=[name=bob,password=bob-secret,iterations=8192]"),
)
SMALL = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.fixture(params=["voters", "standalone"])
def kafka(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> RealKafka:
    """A Kafka on a directory that kafka-storage formats; its ports are the same at every start."""
    # With a session that long Kafka starts only if the stop before has fenced the broker.
    sessions = {"broker.session.timeout.ms": "600000"}
    standalone = request.param == "standalone"
    return RealKafka({**SMALL, **sessions}, tmp_path, standalone=standalone, format_arguments=ADD_USERS)


def features(session: Session) -> dict[str, int]:
    """The finalized feature levels, but for that of the quorum, which is the controllers'."""
    software = {"client_software_name": "test", "client_software_version": "1"}
    response = session.call_unobserved("ApiVersions", 4, software)
    assert response["error_code"] == 0
    levels = {row["name"]: row["max_version_level"] for row in response["finalized_features"]}
    levels.pop("kraft.version", None)
    return levels


def users(session: Session) -> dict[str, tuple[int, int]]:
    """The mechanism and the iterations of each user's credentials."""
    rows = session.call_unobserved("DescribeUserScramCredentials", 0, {"users": None})["results"]
    found = {}
    for row in rows:
        (info,) = row["credential_infos"]
        found[row["user"]] = (info["mechanism"], info["iterations"])
    return found


def call_coordinator(session: Session, api: str, version: int, values: Fields) -> Fields:
    """The response; the request is repeated while the group's or transaction's coordinator is not available."""
    while True:
        response = session.call_unobserved(api, version, values)
        rows = [response, *response.get("groups", ())]
        rows += [row for topic in response.get("topics", ()) for row in topic.get("partitions", ())]
        if not any(row.get("error_code", 0) in (14, 15, 16, 51) for row in rows):
            return dict(response)


def fill(session: Session, name: str) -> None:
    """Create a topic with records, a committed and an aborted transaction; commit a group's offset."""
    session.topic(name, 2, {"retention.ms": "-1"})
    for codec in range(2):
        assert session.produce(name, batch(RECORDS), partition=codec)["error_code"] == 0
    for key_type, key in ((1, f"id-{name}"), (0, GROUP)):
        call_coordinator(session, "FindCoordinator", 3, {"key_type": key_type, "key": key})
    transactional_id = f"id-{name}"
    initialised = call_coordinator(
        session, "InitProducerId", 3, {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    )
    assert initialised["error_code"] == 0, initialised
    who = {"transactional_id": transactional_id, "producer_id": initialised["producer_id"]}
    who["producer_epoch"] = initialised["producer_epoch"]
    for number, committed in enumerate((True, False)):
        old = {f"v3_and_below_{key}": value for key, value in who.items()}
        topics = [{"name": name, "partitions": [0]}]
        while True:
            added = session.call_unobserved("AddPartitionsToTxn", 3, {**old, "v3_and_below_topics": topics})
            (row,) = added["results_by_topic_v3_and_below"][0]["results_by_partition"]
            if row["partition_error_code"] != 51:  # CONCURRENT_TRANSACTIONS
                assert row["partition_error_code"] == 0, added
                break
        records = batch(
            RECORDS,
            attributes=TRANSACTIONAL,
            producer=(initialised["producer_id"], initialised["producer_epoch"], number * RECORDS),
        )
        data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
        request = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 9000, "topic_data": data}
        (topic,) = session.call_unobserved("Produce", 9, request)["responses"]
        assert topic["partition_responses"][0]["error_code"] == 0, topic
        ended = call_coordinator(session, "EndTxn", 3, {**who, "committed": committed})
        assert ended["error_code"] == 0, ended
    row = {"partition_index": 1, "committed_offset": 3, "committed_metadata": name}
    values = {"group_id": GROUP, "topics": [{"name": name, "partitions": [row]}]}
    response = call_coordinator(session, "OffsetCommit", 8, {**values, "generation_id_or_member_epoch": -1})
    assert response["topics"][0]["partitions"][0]["error_code"] == 0, response


def contents(session: Session, name: str) -> Fields:
    """Everything that `fill` wrote, as clients read it."""
    session.wait_for_leaders(name, 2)
    found: Fields = {}
    for isolation in (0, 1):
        for partition in (0, 1):
            rows = [{"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
            request: Fields = {
                "max_wait_ms": 0,
                "max_bytes": 1 << 20,
                "isolation_level": isolation,
                "session_epoch": -1,
            }
            request["topics"] = [{"topic": name, "partitions": rows}]
            row = session.call_unobserved("Fetch", 11, request)["responses"][0]["partitions"][0]
            assert row["error_code"] == 0, row
            found[f"records {partition} {isolation}"] = [
                (one.base_offset, one.last_offset_delta, one.attributes, one.producer_id)
                for one in read_batches(row["records"])
            ]
            found[f"end {partition} {isolation}"] = row["last_stable_offset"], row["high_watermark"]
            found[f"aborted {partition} {isolation}"] = row["aborted_transactions"]
    group = {"group_id": GROUP, "topics": [{"name": name, "partition_indexes": [0, 1]}]}
    found["offsets"] = call_coordinator(session, "OffsetFetch", 8, {"groups": [group]})["groups"]
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
    (described,) = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource]})["results"]
    found["config"] = described["configs"]
    (topic,) = session.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})["topics"]
    found["id"] = topic["topic_id"]
    return found


def visit(broker: Broker, name: str, before: dict[str, Fields], *, kill: bool = False) -> dict[str, int]:
    """Start the broker on the directory: what was written before is there, and ``name`` is written. Returns the levels
    of its features.
    """
    try:
        broker.start()
    except RealPartMissing as missing:
        require(str(missing))
    try:
        with contextlib.closing(Session(broker.bootstrap)) as session:
            for topic, expected in before.items():
                assert contents(session, topic) == expected, topic
            fill(session, name)
            before[name] = contents(session, name)
            assert users(session) == USERS
            return features(session)
    finally:
        if kill:
            broker.kill()
        else:
            broker.stop()


@exchanges.EVERYTHING
def test_kafka_and_oncelog_serve_it_in_turn(kafka: RealKafka) -> None:
    often = {
        "metadata.log.max.record.bytes.between.snapshots": "100"
    }  # records that are in no snapshot of oncelog's would be lost
    ours = Oncelog({**SMALL, **often}, kafka.data_dir)
    brokers: list[tuple[Broker, str]] = [(kafka, "kafkas"), (ours, "ours"), (kafka, "again"), (ours, "last")]
    before: dict[str, Fields] = {}
    for broker, name in brokers:
        served = facts.LEVELS if broker is kafka else without_kafkas(facts.LEVELS)
        assert visit(broker, name, before) == served
    assert ours.tracebacks == 0


def without_kafkas(levels: Mapping[str, int]) -> dict[str, int]:
    return {name: level for name, level in levels.items() if name not in KAFKAS_FEATURES}


@exchanges.EVERYTHING
@pytest.mark.parametrize("standalone", [False, True])
def test_oncelog_is_the_first_on_a_formatted_directory(tmp_path: pathlib.Path, standalone: bool) -> None:
    """Its levels and users are those of the format, also after snapshots, and for the Kafka that follows."""
    formatting = RealKafka(SMALL, tmp_path, standalone=standalone, format_arguments=ADD_USERS)
    try:
        formatting.format()
    except RealPartMissing as missing:
        require(str(missing))
    has_bootstrap = (tmp_path / "bootstrap.checkpoint").exists()
    assert has_bootstrap != facts.FORMATS_WITHOUT_BOOTSTRAP_CHECKPOINT
    before: dict[str, Fields] = {}
    with_snapshots = {"metadata.log.max.record.bytes.between.snapshots": "100"}
    for number, keys in enumerate(({}, with_snapshots, {})):
        ours = Oncelog({**SMALL, **keys}, tmp_path)
        assert visit(ours, f"ours-{number}", before) == without_kafkas(facts.LEVELS)
        assert ours.tracebacks == 0
    assert visit(formatting, "kafkas", before) == facts.LEVELS


@exchanges.EVERYTHING
@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
@facts.needs(facts.IS_4_4, "older release that its directories come from here")
def test_from_release_to_release(tmp_path: pathlib.Path, kill: bool) -> None:
    """4.3.1, 4.4.0, oncelog, 4.4.0, and back to 4.3.1: the levels are those of 4.3. Once raised, they keep it out."""
    # A killed Kafka's session must end before another one registers; it is short by default here.
    older = RealKafka(SMALL, tmp_path, version=facts.OLDER, format_arguments=ADD_USERS)
    newer = RealKafka(SMALL, tmp_path)
    ours = Oncelog(SMALL, tmp_path)
    before: dict[str, Fields] = {}
    trip: list[tuple[Broker, str]] = [
        *((older, "older"), (newer, "newer"), (ours, "ours"), (newer, "newer-again"), (older, "older-again"))
    ]
    for broker, name in trip:
        levels = LEVELS_OF_OLDER if broker is not ours else without_kafkas(LEVELS_OF_OLDER)
        assert visit(broker, name, before, kill=kill) == levels, name
    with ours:
        upgrade(ours, "--metadata", facts.METADATA_VERSION_NAME)
        upgrade(ours, "--feature", f"share.version={facts.SHARE_VERSION}")
    for broker in (newer, ours):
        served = facts.LEVELS if broker is newer else without_kafkas(facts.LEVELS)
        assert visit(broker, f"raised-{broker is ours}", before, kill=kill) == served
    with pytest.raises(AssertionError, match="No MetadataVersion with feature level 33"):
        older.start()
    assert ours.tracebacks == 0


def upgrade(broker: Broker, *level: str) -> None:
    run_tool(FEATURES, "--bootstrap-server", broker.bootstrap, "upgrade", *level)


@exchanges.EVERYTHING
def test_a_directory_that_oncelog_wrote(tmp_path: pathlib.Path) -> None:
    """Kafka starts on it; that of an emulated release serves the release itself."""
    for arguments, kafka in (
        ((), RealKafka(SMALL, tmp_path / "newest")),
        (("--as-version", "4.3"), RealKafka(SMALL, tmp_path / "emulated", version=facts.OLDER)),
    ):
        ours = Oncelog(SMALL, kafka.data_dir, arguments)
        try:
            ours.start()
            with contextlib.closing(Session(ours.bootstrap)) as session:
                fill(session, "ours")
                found, levels = contents(session, "ours"), features(session)
            ours.stop()
            with kafka, contextlib.closing(Session(kafka.bootstrap)) as session:
                assert contents(session, "ours") == found
                assert without_kafkas(features(session)) == levels
        except RealPartMissing as missing:
            require(str(missing))
        finally:
            ours.stop()


@pytest.mark.parametrize("place", CHECKPOINTS, ids=["bootstrap.checkpoint", "first-snapshot"])
@pytest.mark.parametrize("level", [29, 34])
def test_a_level_that_oncelog_cannot_read_is_one_line(
    tmp_path: pathlib.Path, place: pathlib.Path, level: int
) -> None:
    """Such as the 34 of a 4.5. Nothing is written."""
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id={new_uuid()}\nnode.id=1\n")
    record = FeatureLevelRecord("metadata.version", level)
    path, rows = str(tmp_path / place), [(record, 0)]
    snapshots.write(OsFileSystem(), path, rows, epoch=0, timestamp=0, last_contained_log_timestamp=0)
    with pytest.raises(AssertionError) as refused:
        Oncelog(data_dir=tmp_path).start()
    lines = [line for line in str(refused.value).splitlines()[1:] if line]
    assert len(lines) == 1, lines
    assert f"cannot use the data directory {tmp_path}: " in lines[0]
    assert f"needs metadata.version at level {level}; supported are 30 to " in lines[0]
