"""A data directory that a real Kafka formatted and filled: oncelog serves it as it is, and then Kafka serves it again.

The directory is formatted with a configured voter, or with voters in the metadata log (`kafka-storage format
--standalone`, as in Kafka's quick start).
"""

import contextlib
import pathlib

import pytest

from compat_tests.batches import TRANSACTIONAL, batch, read_batches
from compat_tests.brokers import Broker
from compat_tests.definitions import Fields
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from compat_tests.real_kafka import RealKafka, RealPartMissing, require

RECORDS = 5
GROUP = "readers"
METADATA_VERSION_4_3 = 30
KAFKAS_FEATURES = {"streams.version": 1}
SMALL = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.fixture(params=["voters", "standalone"])
def kafka(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> RealKafka:
    """A Kafka on a directory that kafka-storage formats; its ports are the same at every start."""
    # With a session that long Kafka starts only if the stop before has fenced the broker.
    sessions = {"broker.session.timeout.ms": "600000"}
    return RealKafka({**SMALL, **sessions}, tmp_path, standalone=request.param == "standalone")


def features(session: Session) -> dict[str, int]:
    """The finalized feature levels."""
    software = {"client_software_name": "test", "client_software_version": "1"}
    response = session.call_unobserved("ApiVersions", 4, software)
    assert response["error_code"] == 0
    return {row["name"]: row["max_version_level"] for row in response["finalized_features"]}


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


def test_kafka_and_oncelog_serve_it_in_turn(kafka: RealKafka) -> None:
    often = {
        "metadata.log.max.record.bytes.between.snapshots": "100"
    }  # records that are in no snapshot of oncelog's would be lost
    ours = Oncelog({**SMALL, **often}, kafka.data_dir)
    brokers: list[tuple[Broker, str]] = [(kafka, "kafkas"), (ours, "ours"), (kafka, "again"), (ours, "last")]
    before: dict[str, Fields] = {}
    for broker, name in brokers:
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
                levels = features(session)
                assert levels["metadata.version"] == METADATA_VERSION_4_3
                kept = {key: level for key, level in levels.items() if key in KAFKAS_FEATURES}
                assert kept == (KAFKAS_FEATURES if broker is kafka else {})
        finally:
            broker.stop()
    assert ours.tracebacks == 0
