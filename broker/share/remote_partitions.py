"""Requests of the node of a share group to the leaders of partitions on other nodes: where they end, and to take dead
letters. Source: ``NetworkPartitionMetadataClient``, ``ShareGroupDLQStateManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.network.network import LinkDownError
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.network.network import Link
    from oncelog.wire.schema import Request

PRODUCE_VERSION = 13
"""The version that names topics by id."""
LIST_OFFSETS_VERSION = 10
ACKS_ALL = -1
CONSUMER = -1
LATEST = -1


async def produce(link: Link, topic: Topic, partition: int, batch: bytearray, timeout_ms: int) -> None:
    """Append a batch with acks=all. Raises KafkaError as the leader does; NETWORK_EXCEPTION if nobody knows whether it
    was appended.
    """
    row = PartitionProduceData(partition, memoryview(batch))
    topics = [TopicProduceData(topic_id=topic.topic_id, partition_data=[row])]
    response = await _call(link, ProduceRequest(None, ACKS_ALL, timeout_ms, topics), PRODUCE_VERSION)
    [result] = response.responses[0].partition_responses
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code), result.error_message)


async def end_offset(link: Link, topic: Topic, partition: int) -> int:
    """Return where a partition ends for consumers. Raises KafkaError as `produce`."""
    topics = [ListOffsetsTopic(topic.name, [ListOffsetsPartition(partition, timestamp=LATEST)])]
    response = await _call(link, ListOffsetsRequest(CONSUMER, 0, topics), LIST_OFFSETS_VERSION)
    [result] = response.topics[0].partitions
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code))
    offset: int = result.offset
    return offset


async def _call(link: Link, request: Request[Any], version: int) -> Any:
    try:
        return await link.call(request, version)
    except LinkDownError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
