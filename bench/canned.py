"""The responses of a broker that does nothing; most are encoded once and kept.

It keeps the number of records per partition, and the largest of each partition's first batches: every Fetch gets that
batch, again and again, with the offsets that it asks for. Nothing is validated and nothing is stored.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any

from oncelog.wire.framing import encode_frame_size
from oncelog.wire.header import encode_response_header, has_tagged_response_header, read_request_header
from oncelog.wire.messages import (
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from oncelog.wire.schema import Message

NODE_ID = 1
HOST = "127.0.0.1"
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
EARLIEST = -2
RECORD_COUNT_POSITION = 57
BASE_OFFSET_BYTES = 8
CACHED_MAX = 10_000
RUNS_BYTES_MAX = 64 << 20  # of the runs of batches that one partition keeps for further readers

Buffer = bytes | bytearray | memoryview
REQUESTS: dict[int, type[Any]] = {
    one.API_KEY: one
    for one in (
        add_partitions_to_txn.AddPartitionsToTxnRequest,
        api_versions.ApiVersionsRequest,
        create_topics.CreateTopicsRequest,
        delete_topics.DeleteTopicsRequest,
        end_txn.EndTxnRequest,
        fetch.FetchRequest,
        find_coordinator.FindCoordinatorRequest,
        init_producer_id.InitProducerIdRequest,
        list_offsets.ListOffsetsRequest,
        metadata.MetadataRequest,
        produce.ProduceRequest,
    )
}
CACHEABLE = (
    api_versions.ApiVersionsRequest,
    find_coordinator.FindCoordinatorRequest,
    add_partitions_to_txn.AddPartitionsToTxnRequest,
    end_txn.EndTxnRequest,
)
"""Requests that have the same response each time."""
PRODUCE, FETCH = produce.ProduceRequest.API_KEY, fetch.FetchRequest.API_KEY


class Partition:
    """A partition's end offset, and the batch that its readers get."""

    def __init__(self, topic: "Topic", index: int) -> None:
        self.topic = topic
        self.index = index
        self.end_offset = 0
        self.batch = b""
        self.batch_records = 1
        self._runs: dict[tuple[int, int], bytes] = {}

    def keep(self, batch: Buffer) -> None:
        """Let readers get this batch, if it is larger than the kept one."""
        if len(batch) > len(self.batch):
            (self.batch_records,) = struct.unpack_from(">i", batch, RECORD_COUNT_POSITION)
            self.batch = bytes(batch)
            self._runs.clear()

    def records(self, offset: int, bytes_max: int) -> list[Buffer]:
        """Batches from `offset` on, at most up to the batch that contains the end offset."""
        if offset >= self.end_offset:
            return []
        batches_left = -(-(self.end_offset - offset) // self.batch_records)
        count = max(1, min(bytes_max // len(self.batch), batches_left))
        if count == 1:
            return [struct.pack(">q", offset), memoryview(self.batch)[BASE_OFFSET_BYTES:]]
        if (offset, count) not in self._runs:
            if len(self._runs) * len(self.batch) * count > RUNS_BYTES_MAX:
                self._runs.clear()
            self._runs[offset, count] = self._encode_run(offset, count)
        return [self._runs[offset, count]]

    def _encode_run(self, offset: int, count: int) -> bytes:
        """`count` batches with consecutive base offsets from `offset` on."""
        size, run = len(self.batch), bytearray(self.batch * count)
        offsets = range(offset, offset + count * self.batch_records, self.batch_records)
        packed = struct.pack(f">{count}q", *offsets)
        for byte in range(
            BASE_OFFSET_BYTES
        ):  # the first bytes of all offsets, the second, …: no loop over batches
            run[byte::size] = packed[byte::BASE_OFFSET_BYTES]
        return bytes(run)


class Topic:
    def __init__(self, name: str, number: int, partitions: int) -> None:
        self.name = name
        self.id = number.to_bytes(16, "big")
        self.partitions = [Partition(self, index) for index in range(partitions)]


class ProduceTemplate:
    """The response to one connection's Produce requests to one partition: only offset and correlation id change."""

    def __init__(self, partition: Partition, frame: bytearray, offset_at: int) -> None:
        self.partition = partition
        self._frame = frame  # empty with acks=0
        self._offset_at = offset_at

    def respond(self, correlation_id: int, records: int) -> bytes:
        partition, frame = self.partition, self._frame
        if frame:
            struct.pack_into(">i", frame, 4, correlation_id)
            struct.pack_into(">q", frame, self._offset_at, partition.end_offset)
        partition.end_offset += records
        return bytes(frame)


class ProduceHead:
    """The fields of a Produce request up to its first partition's index; clients send one partition per request."""

    def __init__(self, frame: Buffer) -> None:
        self._frame = frame
        self.version = int.from_bytes(frame[2:4], "big")
        self._flexible = self.version >= 9
        self._at = 8
        self._skip_string(wide=True)  # the client id
        self._at += self._flexible
        self._skip_string()  # the transactional id
        self.acks = int.from_bytes(frame[self._at : self._at + 2], "big", signed=True)
        self._at += 6 + (1 if self._flexible else 4)  # the timeout and the number of topics
        if self.version >= 13:
            self._at += 16
            self.topic: str | bytes = bytes(frame[self._at - 16 : self._at])
        else:
            self.topic = str(self._skip_string(), "utf-8")
        self._at += 1 if self._flexible else 4
        self.index = int.from_bytes(frame[self._at : self._at + 4], "big")
        self.end = self._at + 4

    def _skip_string(self, *, wide: bool = False) -> Buffer:
        if self._flexible and not wide:
            length, start = self._frame[self._at] - 1, self._at + 1
            assert length < 127, "a name whose length takes two bytes"
        else:
            length = int.from_bytes(self._frame[self._at : self._at + 2], "big", signed=True)
            start = self._at + 2
        self._at = start + max(0, length)
        return self._frame[start : self._at]


def batch_position(frame: Buffer, head_end: int, version: int) -> int:
    """The position of a Produce request's batch, after its length."""
    if version < 9:
        return head_end + 4
    while frame[head_end] & 0x80:
        head_end += 1
    return head_end + 1


def framed(api_key: int, flexible: bool, correlation_id: int, body: Iterable[Buffer]) -> list[Buffer]:
    head = encode_response_header(correlation_id, has_tagged_response_header(api_key, flexible))
    parts = [head, *body]
    return [encode_frame_size(sum(map(len, parts))), *parts]


class Broker:
    """Topics, and a response to each request.

    `port` is the port on which clients connect. `same`: one with the same topics, for another port, through which
    topics are created.
    """

    def __init__(self, port: int, same: "Broker | None" = None) -> None:
        self._port = port
        self._topics: dict[str | bytes, Topic] = {} if same is None else same._topics  # by name and by id
        self._last_id = 0
        self._cached: dict[tuple[bytes, bytes], bytearray] = {}
        self._handlers: dict[type[Message], Callable[[Any, int], Message]] = {
            api_versions.ApiVersionsRequest: self._api_versions,
            metadata.MetadataRequest: self._metadata,
            find_coordinator.FindCoordinatorRequest: self._find_coordinator,
            create_topics.CreateTopicsRequest: self._create_topics,
            delete_topics.DeleteTopicsRequest: self._delete_topics,
            list_offsets.ListOffsetsRequest: self._list_offsets,
            init_producer_id.InitProducerIdRequest: self._init_producer_id,
            add_partitions_to_txn.AddPartitionsToTxnRequest: self._add_partitions,
            end_txn.EndTxnRequest: self._end_txn,
        }

    def read(self, frame: Buffer) -> tuple[Any, int, int]:
        """The decoded request, its version and its correlation id. Raises KeyError for an unknown API."""
        key, version = struct.unpack_from(">hh", frame)
        kind = REQUESTS[key]
        header = read_request_header(frame, kind.is_flexible(version))
        return kind.decode(frame, version, header.header_size), version, header.correlation_id

    def respond(self, frame: Buffer) -> bytes:
        """The framed response to a request other than Produce and Fetch. Raises KeyError for an unknown API."""
        key = bytes(frame[:4]), bytes(frame[8:])  # without the correlation id
        cached = self._cached.get(key)
        if cached is not None:
            cached[4:8] = frame[4:8]
            return bytes(cached)
        request, version, correlation_id = self.read(frame)
        body = self._handlers[type(request)](request, version).encode(version)
        response = b"".join(framed(request.API_KEY, request.is_flexible(version), correlation_id, [body]))
        if isinstance(request, CACHEABLE) and len(self._cached) < CACHED_MAX:
            self._cached[key] = bytearray(response)
        return response

    def _partition(self, topic: str | bytes, index: int) -> Partition | None:
        found = self._topics.get(topic)
        return found.partitions[index] if found is not None and index < len(found.partitions) else None

    def produce_template(self, head: ProduceHead) -> ProduceTemplate:
        """The template for requests that begin with `head`. Raises KeyError for an unknown partition."""
        partition = self._partition(head.topic, head.index)
        if partition is None:
            raise KeyError(head.topic)

        def encode(base_offset: int) -> bytes:
            row = produce.PartitionProduceResponse(head.index, 0, base_offset, -1, 0)
            topic = produce.TopicProduceResponse(partition.topic.name, partition.topic.id, [row])
            body = produce.ProduceResponse([topic]).encode(head.version)
            return b"".join(framed(PRODUCE, head.version >= 9, 0, [body]))

        first, second = encode(0), encode(-1)
        position = next(at for at, (one, other) in enumerate(zip(first, second, strict=True)) if one != other)
        return ProduceTemplate(partition, bytearray(first if head.acks else b""), position)

    def fetch(self, request: Any, version: int, correlation_id: int, *, waited: bool) -> list[Buffer]:
        """The parts of a framed Fetch response; none if there are no records and the request has not `waited`."""
        bytes_left, records, rows = request.max_bytes, list[Buffer](), list[fetch.FetchableTopicResponse]()
        for topic in request.topics:
            row = fetch.FetchableTopicResponse(topic.topic, topic.topic_id, [])
            for requested in topic.partitions:
                partition = self._partition(topic.topic or topic.topic_id, requested.partition)
                data = fetch.PartitionData(requested.partition, aborted_transactions=[], records=b"")
                if partition is None:
                    data.error_code = UNKNOWN_TOPIC_OR_PARTITION
                else:
                    data.high_watermark = data.last_stable_offset = partition.end_offset
                    if bytes_left > 0 and not records:  # a response has records of one partition only
                        bytes_max = min(bytes_left, requested.partition_max_bytes)
                        records = partition.records(requested.fetch_offset, bytes_max)
                        data.records = Size(sum(map(len, records)))
                row.partitions.append(data)
            rows.append(row)
        if not records and not waited:
            return []
        out, ranges = bytearray(), list[tuple[int, Any]]()
        fetch.FetchResponse(0, 0, 0, rows).encode_into(version, out, ranges)
        position = next((at for at, records_range in ranges if records_range.size), len(out))
        body = [memoryview(out)[:position], *records, memoryview(out)[position:]]
        return framed(FETCH, version >= 12, correlation_id, body)

    def _api_versions(self, request: Any, version: int) -> Message:
        rows = [
            api_versions.ApiVersion(key, one.MIN_VERSION, one.MAX_VERSION) for key, one in REQUESTS.items()
        ]
        return api_versions.ApiVersionsResponse(0, rows)

    def _metadata(self, request: Any, version: int) -> Message:
        requested = request.topics if version > 0 or request.topics else None
        names: list[str | bytes] = [name for name in self._topics if isinstance(name, str)]
        if requested is not None:
            names = [topic.name or topic.topic_id for topic in requested]
        broker = metadata.MetadataResponseBroker(NODE_ID, HOST, self._port)
        rows = [self._topic_metadata(name) for name in names]
        return metadata.MetadataResponse(0, [broker], "nothing-is-kept-here--", NODE_ID, rows)

    def _topic_metadata(self, name_or_id: str | bytes) -> metadata.MetadataResponseTopic:
        topic = self._topics.get(name_or_id)
        if topic is None:
            if isinstance(name_or_id, bytes):
                return metadata.MetadataResponseTopic(UNKNOWN_TOPIC_ID, None, name_or_id)
            return metadata.MetadataResponseTopic(UNKNOWN_TOPIC_OR_PARTITION, name_or_id)
        rows = [
            metadata.MetadataResponsePartition(0, one.index, NODE_ID, 0, [NODE_ID], [NODE_ID], [])
            for one in topic.partitions
        ]
        return metadata.MetadataResponseTopic(0, topic.name, topic.id, partitions=rows)

    def _find_coordinator(self, request: Any, version: int) -> Message:
        keys = request.coordinator_keys
        rows = [find_coordinator.Coordinator(key, NODE_ID, HOST, self._port, 0, None) for key in keys]
        if version >= 4:
            return find_coordinator.FindCoordinatorResponse(coordinators=rows)
        return find_coordinator.FindCoordinatorResponse(node_id=NODE_ID, host=HOST, port=self._port)

    def _create_topics(self, request: Any, version: int) -> Message:
        rows = []
        for one in request.topics:
            self._last_id += 1
            topic = Topic(one.name, self._last_id, max(1, one.num_partitions))
            self._topics[topic.name] = self._topics[topic.id] = topic
            count = len(topic.partitions)
            rows.append(
                create_topics.CreatableTopicResult(one.name, topic.id, 0, None, 0, count, 1, configs=[])
            )
        return create_topics.CreateTopicsResponse(0, rows)

    def _delete_topics(self, request: Any, version: int) -> Message:
        names = request.topic_names or [one.name for one in request.topics]
        for name in names:
            topic = self._topics.pop(name, None)
            if topic is not None:
                del self._topics[topic.id]
        rows = [delete_topics.DeletableTopicResult(name, error_code=0) for name in names]
        return delete_topics.DeleteTopicsResponse(0, rows)

    def _list_offsets(self, request: Any, version: int) -> Message:
        topics = []
        for topic in request.topics:
            rows = []
            for requested in topic.partitions:
                row = list_offsets.ListOffsetsPartitionResponse(requested.partition_index)
                partition = self._partition(topic.name, requested.partition_index)
                if partition is None:
                    row.error_code = UNKNOWN_TOPIC_OR_PARTITION
                else:
                    row.offset = 0 if requested.timestamp == EARLIEST else partition.end_offset
                rows.append(row)
            topics.append(list_offsets.ListOffsetsTopicResponse(topic.name, rows))
        return list_offsets.ListOffsetsResponse(0, topics)

    def _init_producer_id(self, request: Any, version: int) -> Message:
        self._last_id += 1
        return init_producer_id.InitProducerIdResponse(0, 0, self._last_id, 0)

    def _add_partitions(self, request: Any, version: int) -> Message:
        rows = [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                topic.name,
                [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(one, 0) for one in topic.partitions],
            )
            for topic in request.v3_and_below_topics
        ]
        return add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)

    def _end_txn(self, request: Any, version: int) -> Message:
        return end_txn.EndTxnResponse(0, 0)


class Size:
    """The place of records in an encoded response, into which the sender puts them."""

    def __init__(self, size: int) -> None:
        self.size = size
