"""Requests that most tests send: create a topic, append a batch, read it."""

from __future__ import annotations

from typing import Any

from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.primitives import Buffer, SizedRange
from tests.common.batches import Batch, batch, read_batches
from tests.harness.sim_client import SimClient

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LATEST, EARLIEST = -1, -2


async def create_topic(
    client: SimClient, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> bytes:
    """Create a topic. Returns its id."""
    rows = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], rows)], 1000)
    response = await client.call(request, 7, CreateTopicsResponse)
    [topic] = response.topics
    assert topic.error_code == 0, topic
    return bytes(topic.topic_id)


def produce_request(topic: str, records: bytes, partition: int = 0, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        None,
        acks,
        30_000,
        [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, records)])],
    )


async def produce(
    client: SimClient, topic: str, records: bytes | None = None, partition: int = 0, *, acks: int = 1
) -> PartitionProduceResponse:
    """Append one batch (by default, of one plain record). Returns the response's row."""
    request = produce_request(topic, batch() if records is None else records, partition, acks)
    response = await client.call(request, PRODUCE_VERSION, ProduceResponse)
    row: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return row


def fetch_request(
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
) -> FetchRequest:
    asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic, partitions=[asked])],
    )


async def fetch(
    client: SimClient, topic: str, offset: int = 0, partition: int = 0, **limits: Any
) -> PartitionData:
    """Read from ``offset`` on. Returns the response's row."""
    response = await client.call(
        fetch_request(topic, offset, partition, **limits), FETCH_VERSION, FetchResponse
    )
    row: PartitionData = response.responses[0].partitions[0]
    return row


def bytes_of(records: Buffer | SizedRange | None) -> bytes:
    """The content of a received records field; empty for null."""
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return bytes(records or b"")


async def read_all(client: SimClient, topic: str, partition: int = 0, offset: int = 0) -> list[Batch]:
    """All batches from ``offset`` to the high watermark."""
    found: list[Batch] = []
    while True:
        row = await fetch(client, topic, offset, partition)
        assert row.error_code == 0, row
        if offset >= row.high_watermark:
            return found
        for one in read_batches(bytes_of(row.records)):
            found.append(one)
            offset = one.base_offset + one.last_offset_delta + 1


async def list_offset(client: SimClient, topic: str, timestamp: int, partition: int = 0) -> Any:
    """Send ListOffsets for one partition. Returns the response's row."""
    request = ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, timestamp)])]
    )
    response = await client.call(request, 7, ListOffsetsResponse)
    return response.topics[0].partitions[0]
