"""UnregisterBroker: other brokers of a directory's former cluster go, this one stays."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from oncelog.wire.stored.metadata import PartitionChangeRecord, RegisterBrokerRecord
from tests.harness.metadata_node import StandInNode


def test_another_broker_goes_with_its_places_in_partitions() -> None:
    node = StandInNode()
    node.call(CreateTopicsRequest([CreatableTopic("t", 4, 1)]), 7)
    image = node.metadata.image
    topic = image.topics["t"]
    changes = [
        PartitionChangeRecord(0, topic.topic_id, replicas=[1, 2], isr=[1, 2]),
        PartitionChangeRecord(1, topic.topic_id, replicas=[2, 1], isr=[2, 1], leader=2),
        PartitionChangeRecord(2, topic.topic_id, replicas=[2], isr=[2], leader=2),
    ]
    node.metadata.commit([RegisterBrokerRecord(2, broker_epoch=9, fenced=True), *changes])
    assert node.call(UnregisterBrokerRequest(2), 0).error_code == 0
    assert list(image.brokers) == [1]
    assert [(row.isr, row.leader) for row in topic.partitions] == [([1], 1), ([1], 1), ([], -1), ([1], 1)]
    assert node.call(UnregisterBrokerRequest(2), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_this_broker_stays() -> None:
    node = StandInNode()
    before = node.metadata.image.offset
    response = node.call(UnregisterBrokerRequest(1), 0)
    assert (response.error_code, response.error_message) == (
        ErrorCode.POLICY_VIOLATION,
        "Broker ID 1 is this broker: it cannot unregister itself",
    )
    assert node.metadata.image.offset == before
