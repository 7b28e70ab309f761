"""A trial does not wait in real time for the sessions of members that no process is any more."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

import oncelog
from oncelog.broker.prove.disturbances import KINDS

pytestmark = pytest.mark.slow

SESSION_S = 40
TIMEOUT_S = 12
"""Shorter than a session: a trial that waits for one is stuck."""

# Until Kafka 2.1 a client gets to know its member id when it has joined: JoinGroup below version 4.
OLD_CLIENT = f"""
import os
from kafka import KafkaConsumer, KafkaProducer

servers = {{"bootstrap_servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "api_version": (0, 11), "retry_backoff_ms": 20}}
producer = KafkaProducer(**servers)
consumer = KafkaConsumer(
    "orders", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100,
    session_timeout_ms={SESSION_S * 1000}, **servers
)
for order in consumer:
    producer.send("receipts", order.value).get(10)
    consumer.commit()
"""
# A static member does not leave its group when it ends.
STATIC_MEMBER = f"""
import os
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

servers = {{"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry.backoff.ms": 20}}
consumer = Consumer({{
    **servers, "group.id": "billing", "group.instance.id": os.environ["ONCELOG_PROVE_INSTANCE"],
    "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
    "session.timeout.ms": {SESSION_S * 1000},
}})
producer = Producer(servers)
consumer.subscribe(["orders"])
while True:
    order = consumer.poll(60)
    if order.error() and order.error().code() == KafkaError._PARTITION_EOF:
        break
    if order.error():
        continue
    producer.produce("receipts", order.value())
    producer.flush()
    try:
        consumer.commit(order, asynchronous=False)
    except KafkaException:
        pass
consumer.close()
"""
# A newer client gets its member id by a first JoinGroup, and joins with it by a second one. The second instance does so
# when the first one has begun to read, and says when it has joined.
TWO_MEMBERS = f"""
import os, pathlib, time
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer

has_begun = pathlib.Path(os.environ["ONCELOG_PROVE_DIR"], "begun")
is_first = os.environ["ONCELOG_PROVE_INSTANCE"] == "1"
while not is_first and not has_begun.exists():
    time.sleep(0.01)
servers = {{"bootstrap_servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry_backoff_ms": 20}}
producer = KafkaProducer(**servers)


class Joined(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        if not is_first:
            producer.send("receipts", b"joined").get(10)


consumer = KafkaConsumer(
    group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100,
    session_timeout_ms={SESSION_S * 1000}, heartbeat_interval_ms=100, **servers
)
consumer.subscribe(["orders"], listener=Joined())
for order in consumer:
    producer.send("receipts", order.value).get(10)
    consumer.commit()
    has_begun.touch()
"""
# A worker of a share group that ends when it has done two orders. What another one has fetched is locked for 30 s.
SHARE_JOB = """
import os
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "retry.backoff.ms": 20}
earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
group = ConfigResource(ResourceType.GROUP, "billing", incremental_configs=[earliest])
admin = AdminClient(servers)
admin.incremental_alter_configs([group])[group].result(10)
producer = Producer(servers)
consumer = ShareConsumer({**servers, "group.id": "billing", "share.acknowledgement.mode": "explicit"})
consumer.subscribe(["orders"])
done = 0
while done < 2:
    for order in consumer.poll(0.1):
        if order.error():
            continue
        producer.produce("receipts", order.value())
        producer.flush()
        consumer.acknowledge(order, AcknowledgeType.ACCEPT)
        done += 1
consumer.close()
"""


def prove_again(folder: pathlib.Path, source: str, kind: str, step: str, **options: Any) -> oncelog.Verdict:
    """Run a trial that disturbs the first request of an instance to an API: a step such as ``2 Produce``."""
    (folder / "app.py").write_text(source)
    word, value = KINDS[kind].action
    instance, api = step.split()
    rule = {"on": api, "listener": f"INSTANCE{instance}", "nth": 1, word: value}
    return oncelog.prove(
        [sys.executable, str(folder / "app.py")],
        topics=["orders", "receipts"],
        inputs={"orders": ["tea", "cake"]},
        outputs="receipts",
        promise="at-least-once",
        timeout=TIMEOUT_S,
        again=[{"kind": kind, "rule": rule}],
        **options,
    )


@pytest.mark.parametrize("kind", ["kill after", "kill early", "lose response"])
def test_of_a_member_whose_id_never_came(kind: str, tmp_path: pathlib.Path) -> None:
    verdict = prove_again(tmp_path, OLD_CLIENT, kind, "1 JoinGroup")
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict


def test_of_a_static_member_that_has_ended_well(tmp_path: pathlib.Path) -> None:
    """The one that stood still comes back, and another one has taken over and done all."""
    verdict = prove_again(tmp_path, STATIC_MEMBER, "zombie before", "1 OffsetCommit", until_exit=True)
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict


def test_of_a_member_that_has_not_joined_with_its_id(tmp_path: pathlib.Path) -> None:
    verdict = prove_again(tmp_path, TWO_MEMBERS, "kill after", "2 JoinGroup", instances=2)
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict


def test_of_a_worker_that_stands_still_with_what_another_one_waits_for(tmp_path: pathlib.Path) -> None:
    verdict = prove_again(tmp_path, SHARE_JOB, "zombie before", "1 Produce", until_exit=True)
    assert (verdict.promise, verdict.trials, verdict.not_met) == ("kept", 1, []), verdict
