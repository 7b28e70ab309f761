"""A data directory on which a real Kafka has share groups in use: oncelog serves it, goes on, and Kafka takes it back.

No record that was accepted or rejected is delivered again, by whichever broker; every other is, until it is accepted.
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from compat_tests.brokers import Broker
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from conftest import KafkaTool
from tests.common import exchanges
from tests.common.definitions import Fields
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka

PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.prune.interval.ms": "500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "50",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0",
}
GROUP = "jobs"
TOPIC = "work"
PARTITIONS = 2
RECORDS = 24
"""Records that are written while each broker runs."""
PATIENCE_S = 30
NOT_AVAILABLE = (14, 15, 16)
KINDS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT)


class Jobs:
    """The records that were written, and the outcome of each."""

    def __init__(self) -> None:
        self.written = 0
        self.done: dict[bytes, str] = {}
        """The value of each record that is done, and the broker that was told."""

    def open(self) -> set[bytes]:
        """The records that must still come."""
        return {b"%d" % number for number in range(self.written)} - self.done.keys()

    def produce(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(RECORDS):
            producer.produce(TOPIC, b"%d" % self.written, partition=self.written % PARTITIONS)
            self.written += 1
        assert producer.flush(PATIENCE_S) == 0

    def work(self, broker: str, bootstrap: str, *, all_of_it: bool) -> None:
        """Take records, each broker some of those that are open: accept, release and reject by turns."""
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
        consumer = ShareConsumer(settings)
        consumer.subscribe([TOPIC])
        taken = 0
        deadline = time.monotonic() + PATIENCE_S
        while self.open() if all_of_it else taken < RECORDS:
            assert time.monotonic() < deadline, (broker, self.open(), taken)
            messages = [one for one in consumer.poll(0.2) if one.error() is None]
            kinds: list[tuple[Any, Any]] = []
            for message in messages:
                value = message.value()
                assert value not in self.done, f"{broker}: {value!r} was done by {self.done[value]}"
                kind = AcknowledgeType.ACCEPT if all_of_it else KINDS[taken % len(KINDS)]
                taken += 1
                consumer.acknowledge(message, kind)
                kinds.append((value, kind))
            if kinds:
                for error in consumer.commit_sync(float(PATIENCE_S)).values():
                    assert error is None, error
            self.done.update({value: broker for value, kind in kinds if kind != AcknowledgeType.RELEASE})
        consumer.close()


def ask(session: Session, api: str, version: int, values: Fields) -> Fields:
    """The response, as soon as the coordinators are available."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response: Fields = session.call_unobserved(api, version, values)
        codes = [row["error_code"] for row in response["groups"]]
        codes += [
            one["error_code"]
            for row in response["groups"]
            for topic in row.get("topics", ())
            for one in topic["partitions"]
        ]
        if not set(codes) & set(NOT_AVAILABLE):
            assert not any(codes), response
            return response
        assert time.monotonic() < deadline, response


def summary(session: Session) -> Fields:
    """The group as clients see it while it has no members."""
    while True:
        [group] = ask(session, "ShareGroupDescribe", 1, {"group_ids": [GROUP]})["groups"]
        if group["group_state"] == "Empty":
            break
    topics = [{"topic_name": TOPIC, "partitions": list(range(PARTITIONS))}]
    asked = {"groups": [{"group_id": GROUP, "topics": topics}]}
    [offsets] = ask(session, "DescribeShareGroupOffsets", 1, asked)["groups"]
    [topic] = offsets["topics"]
    names = ("partition_index", "start_offset", "lag")
    resource = {
        "resource_type": 32,
        "resource_name": GROUP,
        "configuration_keys": ["share.auto.offset.reset"],
    }
    [described] = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource]})["results"]
    return {
        "partitions": sorted([row[name] for name in names] for row in topic["partitions"]),
        "config": [(row["name"], row["value"]) for row in described["configs"]],
        "epoch": group["group_epoch"],
    }


def configure(session: Session) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": GROUP, "configs": [config]}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response


@exchanges.SHARE
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_kafka_and_oncelog_serve_it_in_turn(how: str, tmp_path: pathlib.Path, kafka_tool: KafkaTool) -> None:
    kafka = RealKafka(PROPERTIES, tmp_path)
    ours = Oncelog({**PROPERTIES, "metadata.log.max.record.bytes.between.snapshots": "100"}, tmp_path)
    brokers: list[tuple[Broker, str]] = [
        (kafka, "kafka"),
        (ours, "oncelog"),
        (kafka, "again"),
        (ours, "last"),
    ]
    jobs = Jobs()
    before: Fields = {}
    for broker, name in brokers:
        try:
            broker.start()
        except RealPartMissing as missing:
            require(str(missing))
        try:
            with contextlib.closing(Session(broker.bootstrap)) as session:
                if before:
                    assert summary(session) == before, name
                else:
                    session.topic(TOPIC, PARTITIONS)
                    configure(session)
                jobs.produce(broker.bootstrap)
                jobs.work(name, broker.bootstrap, all_of_it=name == "last")
                if name != "last":
                    assert jobs.open(), "the next broker has something to do"
                before = summary(session)
        finally:
            getattr(broker, how)()
        files = ",".join(str(path) for path in sorted(tmp_path.glob("__share_group_state-*/*.log")))
        tool = "org.apache.kafka.tools.DumpLogSegments"
        out = kafka_tool(tool, "--share-group-state-decoder", "--files", files).stdout
        assert f'"groupId":"{GROUP}"' in out
        assert "isvalid: false" not in out
    assert jobs.open() == set()
    assert set(jobs.done.values()) == {name for _, name in brokers}
    assert ours.tracebacks == 0
