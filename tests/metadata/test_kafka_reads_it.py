"""Kafka's dump tool reads our log and our snapshot; a real Kafka takes the directory over and gives it back."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import pytest

from conftest import KafkaTool
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata.image import BROKER, TOPIC
from oncelog.broker.metadata.log import DIRECTORY
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.schema import uuid_to_text
from oncelog.wire.stored.metadata import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.common import exchanges
from tests.common.real_kafka import RealKafka
from tests.harness.clocks import FixedClock
from tests.harness.metadata_node import DIRECTORY_ID, LISTENER

pytestmark = pytest.mark.slow

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
ID, GONE_ID = bytes(range(16)), bytes(range(1, 17))


def opened(data_dir: pathlib.Path) -> MetadataStore:
    store = MetadataStore(
        str(data_dir),
        OsFileSystem(),
        FixedClock(),
        random.Random(1),
        BrokerConfig(),
        cluster_id=CLUSTER_ID,
        directory_id=DIRECTORY_ID,
    )
    store.start()
    store.register([BrokerEndpoint(LISTENER, "localhost", 9092, 0)])
    return store


def partition(index: int, topic_id: bytes) -> PartitionRecord:
    return PartitionRecord(
        index, topic_id, [1], [1], leader=1, leader_epoch=0, partition_epoch=0, directories=[DIRECTORY_ID]
    )


def fill(store: MetadataStore) -> None:
    store.commit([TopicRecord("kept", ID), ConfigRecord(TOPIC, "kept", "retention.ms", "5000")])
    store.commit([partition(0, ID), partition(1, ID)])
    store.commit([TopicRecord("gone", GONE_ID), partition(0, GONE_ID)])
    store.commit([RemoveTopicRecord(GONE_ID), ConfigRecord(BROKER, "1", "log.retention.ms", "7000")])
    store.take_producer_ids()


def dumped(kafka_tool: KafkaTool, path: pathlib.Path) -> tuple[str, list[Any]]:
    """Return the dump tool's output for a file, and the records in it."""
    out = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path)
    ).stdout
    assert "isvalid: false" not in out
    assert "isvalid: true" in out
    return out, [
        json.loads(line.partition("payload: ")[2]) for line in out.splitlines() if "payload: " in line
    ]


@exchanges.METADATA
def test_dump_log_segments(kafka_tool: KafkaTool, tmp_path: pathlib.Path) -> None:
    store = opened(tmp_path)
    fill(store)
    store.close()
    directory = tmp_path / DIRECTORY
    text, records = dumped(kafka_tool, directory / "00000000000000000000.log")
    assert (
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}'
        in text
    )
    assert [record["type"] for record in records] == [
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "CONFIG_RECORD",
        "END_TRANSACTION_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    ]
    assert records[12]["data"] == {"name": "kept", "topicId": uuid_to_text(ID)}
    assert records[15]["data"]["directories"] == [uuid_to_text(DIRECTORY_ID)]
    store = opened(tmp_path)
    store.snapshot()
    store.close()
    [snapshot] = directory.glob("*.checkpoint")
    text, records = dumped(kafka_tool, snapshot)
    assert "SnapshotHeader" in text
    assert "SnapshotFooter" in text
    assert [record["type"] for record in records] == [
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "CONFIG_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    ]
    assert "bootstrap" in dumped(kafka_tool, tmp_path / "bootstrap.checkpoint")[0]


@exchanges.METADATA
def test_a_real_kafka_takes_it_over_and_gives_it_back(kafka_tool: KafkaTool, tmp_path: pathlib.Path) -> None:
    store = opened(tmp_path)
    fill(store)
    store.snapshot()
    store.commit([ConfigRecord(TOPIC, "kept", "segment.bytes", "2000000")])
    store.close()
    (tmp_path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id={uuid_to_text(DIRECTORY_ID)}\n"
    )
    # A broker that had no turn for so long would be fenced: there would be none for a new topic.
    with RealKafka({"broker.session.timeout.ms": "9000"}, data_dir=tmp_path) as kafka:
        topics = "org.apache.kafka.tools.TopicCommand"
        described = kafka_tool(topics, "--bootstrap-server", kafka.bootstrap, "--describe").stdout
        kafka_tool(
            topics,
            "--bootstrap-server",
            kafka.bootstrap,
            "--create",
            "--topic",
            "kafkas",
            "--partitions",
            "3",
        )
        kafka.stop()
    [line] = [line for line in described.splitlines() if "PartitionCount" in line]
    assert f"Topic: kept\tTopicId: {uuid_to_text(ID)}\tPartitionCount: 2" in line
    assert "retention.ms=5000" in line
    assert "segment.bytes=2000000" in line
    image = opened(tmp_path).image
    assert sorted(image.topics) == ["kafkas", "kept"]
    assert image.topics["kept"].topic_id == ID
    assert image.configs[(TOPIC, "kept")] == {"retention.ms": "5000", "segment.bytes": "2000000"}
    assert {row.leader for topic in image.topics.values() for row in topic.partitions} == {1}
    assert image.next_producer_id == 1000
