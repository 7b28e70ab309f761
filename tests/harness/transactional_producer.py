"""Transactional producers over simulated connections, for tests of single requests and for workloads.

Written as the stock clients behave: a request that was not answered is repeated as it was; errors that pass are waited
for; anything else ends the transaction (`TransactionEndedError`), and who goes on begins with InitProducerId.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.wire.schema import ZERO_UUID, Message
from tests.common.batches import TRANSACTIONAL, Batch, batch, read_batches, record
from tests.harness.requests import bytes_of
from tests.harness.sim_client import SimClient

TRANSACTION, GROUP = 1, 0
TRIES_MAX = 2_000
BACKOFF_S = 0.02


class TransactionEndedError(Exception):
    """The producer cannot continue its transaction."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class Versions(NamedTuple):
    """The versions of requests that a client sends."""

    add: int
    produce: int
    add_offsets: int
    offsets: int
    end: int

    @property
    def is_v2(self) -> bool:
        return self.produce >= 12


OLDEST = Versions(0, 3, 0, 0, 0)
CLASSIC = Versions(3, 9, 3, 3, 3)
ABORTABLE = Versions(3, 11, 4, 4, 4)
V2 = Versions(3, 12, 4, 5, 5)


class Link:
    """Where requests go; a workload puts one in its place that loses them."""

    def __init__(self, client: SimClient) -> None:
        self.client = client

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        return await self.client.call(request, version, response)


class TransactionalProducer:
    """One incarnation of a transactional id."""

    def __init__(
        self, link: Link, transactional_id: str, versions: Versions = V2, *, timeout_ms: int = 60_000
    ) -> None:
        self.link = link
        self.transactional_id = transactional_id
        self.versions = versions
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.added: set[tuple[str, int] | str] = set()

    async def _until_done(self, call: Any) -> Any:
        """Repeat ``call``, which returns a response and its error code, while the error is retriable."""
        for _ in range(TRIES_MAX):
            response, code = await call()
            if code == 0:
                return response
            if not ErrorCode(code).retriable:
                raise TransactionEndedError(code)
            await trio.sleep(BACKOFF_S)
        raise AssertionError(f"{ErrorCode(code).name} for ever")

    async def init(self) -> None:
        """Take the id over."""
        await self.find(self.transactional_id, TRANSACTION)

        async def call() -> tuple[Any, int]:
            request = InitProducerIdRequest(self.transactional_id, self.timeout_ms)
            response = await self.link.call(request, 4, InitProducerIdResponse)
            return response, response.error_code

        response = await self._until_done(call)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()
        self.added.clear()

    async def find(self, key: str, key_type: int) -> None:
        async def call() -> tuple[Any, int]:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response = await self.link.call(request, 4, FindCoordinatorResponse)
            return response, response.coordinators[0].error_code

        await self._until_done(call)

    async def add(self, topic: str, *partitions: int) -> None:
        async def call() -> tuple[Any, int]:
            request = AddPartitionsToTxnRequest(
                [],
                self.transactional_id,
                self.producer_id,
                self.epoch,
                [AddPartitionsToTxnTopic(topic, list(partitions))],
            )
            response = await self.link.call(request, self.versions.add, AddPartitionsToTxnResponse)
            [row] = response.results_by_topic_v3_and_below
            return response, row.results_by_partition[0].partition_error_code

        await self._until_done(call)

    def produce_request(
        self, topic: str, partition: int, values: Sequence[bytes], now_ms: int, keys: Sequence[bytes] = ()
    ) -> ProduceRequest:
        first = self.sequences.get((topic, partition), 0)
        records = [
            record(keys[index] if keys else None, value, offset_delta=index)
            for index, value in enumerate(values)
        ]
        data = batch(
            records,
            producer=(self.producer_id, self.epoch, first),
            attributes=TRANSACTIONAL,
            base_timestamp=now_ms,
        )
        rows = [PartitionProduceData(partition, data)]
        return ProduceRequest(
            self.transactional_id, -1, 30_000, [TopicProduceData(topic, partition_data=rows)]
        )

    async def send(
        self, topic: str, partition: int, values: Sequence[bytes], now_ms: int, keys: Sequence[bytes] = ()
    ) -> int:
        """Write to the transaction; the base offset."""
        place = (topic, partition)
        if not self.versions.is_v2 and place not in self.added:
            await self.add(topic, partition)
            self.added.add(place)
        request = self.produce_request(topic, partition, values, now_ms, keys)

        async def call() -> tuple[Any, int]:
            response = await self.link.call(request, self.versions.produce, ProduceResponse)
            row = response.responses[0].partition_responses[0]
            return row, row.error_code

        row = await self._until_done(call)
        self.sequences[place] = self.sequences.get(place, 0) + len(values)
        return int(row.base_offset)

    async def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        if not self.versions.is_v2 and group not in self.added:

            async def add() -> tuple[Any, int]:
                request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
                response = await self.link.call(request, self.versions.add_offsets, AddOffsetsToTxnResponse)
                return response, response.error_code

            await self._until_done(add)
            self.added.add(group)
        rows = [TxnOffsetCommitRequestPartition(partition, offset)]

        async def commit() -> tuple[Any, int]:
            request = TxnOffsetCommitRequest(
                self.transactional_id,
                group,
                self.producer_id,
                self.epoch,
                topics=[TxnOffsetCommitRequestTopic(topic, ZERO_UUID, rows)],
            )
            response = await self.link.call(request, self.versions.offsets, TxnOffsetCommitResponse)
            return response, response.topics[0].partitions[0].error_code

        await self._until_done(commit)

    async def end(self, *, commit: bool) -> None:
        async def call() -> tuple[Any, int]:
            request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
            response = await self.link.call(request, self.versions.end, EndTxnResponse)
            return response, response.error_code

        response = await self._until_done(call)
        if self.versions.is_v2:
            assert response.producer_id >= 0
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        self.added.clear()


async def committed_offset(link: Link, group: str, topic: str, partition: int) -> int:
    """The group's offset (-1: none), once no transaction holds it pending."""
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=[partition])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
    for _ in range(TRIES_MAX):
        response = await link.call(request, 8, OffsetFetchResponse)
        [found] = response.groups
        code = found.error_code or found.topics[0].partitions[0].error_code
        if code == 0:
            return int(found.topics[0].partitions[0].committed_offset)
        assert ErrorCode(code).retriable, ErrorCode(code).name
        await trio.sleep(BACKOFF_S)
    raise AssertionError(f"{ErrorCode(code).name} for ever")


class CommittedReader:
    """Reads a partition as a read_committed consumer does: it leaves out what an abort marker ends.

    ``values`` are those of committed records by offset.
    """

    def __init__(self, topic: str, partition: int, position: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.values: dict[int, bytes] = {}
        self.last_stable_offset = 0
        self.high_watermark = 0

    async def poll(self, client: SimClient, max_bytes: int = 1 << 20) -> bool:
        """Read once. Returns whether there was anything new."""
        asked = FetchPartition(self.partition, fetch_offset=self.position, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=1,
            topics=[FetchTopic(self.topic, partitions=[asked])],
        )
        response = await client.call(request, 12, FetchResponse)
        row: PartitionData = response.responses[0].partitions[0]
        while row.error_code:
            assert ErrorCode(row.error_code).retriable, row
            await trio.sleep(BACKOFF_S)
            response = await client.call(request, 12, FetchResponse)
            row = response.responses[0].partitions[0]
        before = self.position
        self.last_stable_offset, self.high_watermark = row.last_stable_offset, row.high_watermark
        self._take(row)
        return self.position > before

    def _take(self, row: PartitionData) -> None:
        due = sorted((one.first_offset, one.producer_id) for one in row.aborted_transactions or ())
        aborted: set[int] = set()
        for one in read_batches(bytes_of(row.records)):
            last = one.base_offset + one.last_offset_delta
            while due and due[0][0] <= last:
                aborted.add(due.pop(0)[1])
            if one.attributes & 32:
                if is_abort(one):
                    aborted.discard(one.producer_id)
            elif not (one.attributes & TRANSACTIONAL and one.producer_id in aborted):
                for delta, _, value in rows_of(one):
                    if one.base_offset + delta >= self.position:
                        self.values[one.base_offset + delta] = value
            self.position = max(self.position, last + 1)


def is_abort(one: Batch) -> bool:
    """Of a control batch's only record: the key is an int16 version and an int16 type, 0 for abort."""
    return rows_of(one)[0][1][2:4] == b"\0\0"


def rows_of(one: Batch) -> list[tuple[int, bytes, bytes]]:
    """Return offset delta, key and value of each record. After compaction the deltas have gaps."""
    found = []
    at = 0
    for _ in range(one.record_count):
        size, start = _varint(one.payload, at)
        found.append(_fields(one.payload, start))
        at = start + size
    return found


def _fields(payload: bytes, at: int) -> tuple[int, bytes, bytes]:
    """Offset delta, key and value of the record whose attributes are there."""
    _, at = _varint(payload, at + 1)
    delta, at = _varint(payload, at)
    size, at = _varint(payload, at)
    key = payload[at : at + max(size, 0)]
    at += max(size, 0)
    size, at = _varint(payload, at)
    return delta, key, payload[at : at + max(size, 0)]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
