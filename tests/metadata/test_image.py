"""`MetadataImage`: replaying records, and the records of a snapshot."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.metadata.frames import Batches
from oncelog.broker.metadata.image import BROKER, TOPIC, MetadataImage
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import Message, uuid_from_text
from oncelog.wire.stored.metadata import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from tests.metadata.kafka_bytes import LOG_ADMIN, LOG_START

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
ACL = (2, "t", 3, "User:a", "*", 3, 3)


def image_of(*records: Message) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def partition(index: int = 0, topic_id: bytes = ID, **more: Any) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[bytes(16)],
        **more,
    )


def state(image: MetadataImage) -> list[str]:
    return [repr(record) for record in image.records()]


def read(data: bytes, base_offset: int, image: MetadataImage) -> None:
    batches = Batches(data, base_offset)
    for position, header in batches:
        if not header.is_control:
            for record in batches.records(position, header):
                image.replay(record)


def test_replay_of_kafkas_records() -> None:
    image = MetadataImage()
    read(LOG_START, 0, image)
    read(LOG_ADMIN, 245, image)
    assert list(image.topics) == ["t2"]
    assert image.topics["t2"].topic_id == uuid_from_text("IEAf66y-S5yqgKN0IiLDGw")
    assert image.topics_by_id == {image.topics["t2"].topic_id: image.topics["t2"]}
    assert [
        (row.leader, row.leader_epoch, row.replicas, row.isr) for row in image.topics["t2"].partitions
    ] == [(1, 0, [1], [1])] * 4
    assert image.configs == {
        (BROKER, ""): {"min.insync.replicas": "1"},
        (BROKER, "1"): {"log.retention.ms": "5000000"},
    }
    assert image.features["metadata.version"] == 30
    assert image.next_producer_id == 1000
    [broker] = image.brokers.values()
    assert not broker.fenced
    assert broker.cordoned_log_dirs == []
    assert [(row.host, row.port) for row in broker.end_points] == [("127.0.0.1", 39192)]
    assert list(image.controllers) == [1]


def test_records_make_the_image_again() -> None:
    image = MetadataImage()
    read(LOG_START, 0, image)
    read(LOG_ADMIN, 245, image)
    again = image_of(*image.records())
    assert state(again) == state(image)
    assert next(image.records()) == FeatureLevelRecord("metadata.version", 30)


@pytest.mark.parametrize("seed", range(20))
def test_records_make_any_image_again(seed: int) -> None:
    chance = random.Random(seed)
    image = MetadataImage()
    ids: list[bytes] = []
    for step in range(60):
        what = chance.randrange(6)
        if what == 0 or not ids:
            ids.append(chance.randbytes(16))
            image.replay(TopicRecord(f"t{step}", ids[-1]))
        elif what == 1:
            image.replay(partition(len(image.topics_by_id[ids[-1]].partitions), ids[-1]))
        elif what == 2 and image.topics_by_id[ids[-1]].partitions:
            image.replay(
                PartitionChangeRecord(
                    0,
                    ids[-1],
                    isr=chance.choice([None, [1]]),
                    leader=chance.choice([-2, -1, 1]),
                    last_known_elr=[1],
                )
            )
        elif what == 3:
            image.replay(RemoveTopicRecord(ids.pop()))
        elif what == 4:
            value = chance.choice([None, "1", "2"])
            name = image.topics_by_id[ids[-1]].name
            image.replay(ConfigRecord(TOPIC, name, chance.choice("ab"), value))
        else:
            image.replay(FeatureLevelRecord(chance.choice("xy"), chance.randrange(3)))
    assert state(image_of(*image.records())) == state(image), f"seed {seed}"


def test_a_leader_even_the_same_begins_a_leader_epoch() -> None:
    image = image_of(TopicRecord("t", ID), partition(), partition(1))
    changed = image.replay(PartitionChangeRecord(partition_id=1, topic_id=ID, leader=1))
    assert changed is image.topics["t"]
    assert [(row.leader_epoch, row.partition_epoch) for row in changed.partitions] == [(0, 0), (1, 1)]
    image.replay(PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[], last_known_elr=[1]))
    row = changed.partitions[1]
    assert (row.leader, row.leader_epoch, row.partition_epoch, row.isr, row.last_known_elr) == (
        1,
        1,
        2,
        [],
        [1],
    )


def test_removing_a_topic_removes_its_configs_and_its_name() -> None:
    image = image_of(
        TopicRecord("a.b", ID),
        partition(),
        ConfigRecord(TOPIC, "a.b", "x", "1"),
        TopicRecord("other", OTHER_ID),
        ConfigRecord(TOPIC, "other", "x", "2"),
    )
    assert image.colliding_topic("a_b") == "a.b"
    removed = image.replay(RemoveTopicRecord(ID))
    assert removed is not None
    assert (removed.name, len(removed.partitions)) == ("a.b", 1)
    assert image.configs == {(TOPIC, "other"): {"x": "2"}}
    assert list(image.topics) == ["other"]
    assert image.colliding_topic("a_b") is None


def test_a_config_that_goes_takes_an_empty_resource_with_it() -> None:
    image = image_of(ConfigRecord(BROKER, "", "x", "1"), ConfigRecord(BROKER, "", "y", "1"))
    image.replay(ConfigRecord(BROKER, "", "x", None))
    assert image.configs == {(BROKER, ""): {"y": "1"}}
    image.replay(ConfigRecord(BROKER, "", "y", None))
    image.replay(ConfigRecord(BROKER, "", "never", None))
    assert image.configs == {}


def test_eligible_leaders_are_cleared_for_one_topic_or_all() -> None:
    elr: dict[str, Any] = {"eligible_leader_replicas": [1], "last_known_elr": [1]}
    image = image_of(
        TopicRecord("a", ID),
        partition(**elr),
        TopicRecord("b", OTHER_ID),
        partition(topic_id=OTHER_ID, **elr),
    )
    image.replay(ClearElrRecord("a"))
    image.replay(ClearElrRecord("unknown"))
    assert [topic.partitions[0].eligible_leader_replicas for topic in image.topics.values()] == [[], [1]]
    image.replay(ClearElrRecord(""))
    assert [topic.partitions[0].last_known_elr for topic in image.topics.values()] == [[], []]


def test_fencing_in_both_ways_it_was_ever_written() -> None:
    image = image_of(RegisterBrokerRecord(broker_id=1, broker_epoch=5, fenced=True))
    image.replay(BrokerRegistrationChangeRecord(1, 5, fenced=-1))
    assert not image.brokers[1].fenced
    image.replay(FenceBrokerRecord(1, 5))
    assert image.brokers[1].fenced
    image.replay(UnfenceBrokerRecord(1, 5))
    assert not image.brokers[1].fenced
    image.replay(BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=1, log_dirs=[ID]))
    assert (image.brokers[1].in_controlled_shutdown, image.brokers[1].log_dirs) == (True, [ID])
    image.replay(UnregisterBrokerRecord(1, 5))
    assert image.brokers == {}


def test_records_are_written_in_the_version_that_kafka_writes() -> None:
    image = MetadataImage()
    assert image.version_of(partition()) == image.version_of(PartitionChangeRecord(0, ID, leader=1)) == 2
    changes: list[dict[str, Any]] = [
        {"fenced": 1},
        {"in_controlled_shutdown": 1},
        {"log_dirs": [ID]},
        {"cordoned_log_dirs": []},
    ]
    versions = [image.version_of(BrokerRegistrationChangeRecord(1, 1, **more)) for more in changes]
    assert versions == [0, 1, 2, 3]
    assert image.version_of(ProducerIdsRecord()) == 0


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("t", OTHER_ID),
        TopicRecord("u", ID),
        TopicRecord("u", bytes(16)),
        partition(2),
        partition(0, OTHER_ID),
        PartitionChangeRecord(7, ID, leader=1),
        PartitionChangeRecord(0, OTHER_ID, leader=1),
        RemoveTopicRecord(OTHER_ID),
        BrokerRegistrationChangeRecord(1, 5, fenced=1),
        AccessControlEntryRecord(ID, *ACL[:-1], 2),
        AccessControlEntryRecord(OTHER_ID, *ACL),
        RemoveAccessControlEntryRecord(OTHER_ID),
        ZkMigrationStateRecord(),
    ],
)
def test_a_record_that_contradicts_the_image_is_refused(record: Message) -> None:
    image = image_of(TopicRecord("t", ID), partition(), AccessControlEntryRecord(ID, *ACL))
    before = state(image)
    with pytest.raises(DecodeError):
        image.replay(record)
    assert state(image) == before


def test_client_quotas_come_and_go() -> None:
    both = [EntityData("user", "a"), EntityData("client-id", None)]
    image = image_of(
        ClientQuotaRecord(both, "producer_byte_rate", 1.0),
        ClientQuotaRecord(both[::-1], "producer_byte_rate", 2.0),
        ClientQuotaRecord(both, "consumer_byte_rate", 3.0),
        ClientQuotaRecord([EntityData("ip", None)], "connection_creation_rate", 4.0),
        ClientQuotaRecord([EntityData("ip", None)], "connection_creation_rate", remove=True),
        ClientQuotaRecord([EntityData("user", None)], "consumer_byte_rate", remove=True),
    )
    entity = (("client-id", None), ("user", "a"))
    assert image.client_quotas.entities == {entity: {"producer_byte_rate": 2.0, "consumer_byte_rate": 3.0}}
    assert image_of(*image.records()).client_quotas.entities == image.client_quotas.entities


def test_acls_come_and_go() -> None:
    first, second = (
        AccessControlEntryRecord(ID, *ACL),
        AccessControlEntryRecord(OTHER_ID, 3, "g", 4, "User:*", "10.0.0.1", 2, 2),
    )
    image = image_of(first, second)
    assert list(image.acls.by_id.values()) == [ACL, second_acl := AclBinding.of(second)]
    assert [repr(record) for record in (first, second)] == state(image)
    image.replay(RemoveAccessControlEntryRecord(ID))
    assert image.acls.by_id == {OTHER_ID: second_acl}
    assert image.acls.ids == {second_acl: OTHER_ID}
    image.replay(first)  # the same ACL again
    assert image_of(*image.records()).acls.by_id == image.acls.by_id
