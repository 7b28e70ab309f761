"""Produce requests that are the same as one before but for their records: answered without decoding them.

A producer most often sends one batch to one partition at a time, and from one request to the next nothing changes but
the correlation id and the batch: client id, acks, time-out, topic and partition stay, byte for byte. So does the
answer but for three offsets. What came before the records is kept, for all connections together; where a request
begins with the same bytes, its batch goes to the log at once. Whatever is not plain (a partition that is not there or
not yet part of the transaction, an answer that waits for the disk) is left to ``broker.handlers.produce``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from oncelog.broker.coordinators.enrolment import Producer, enrol
from oncelog.broker.handlers.produce import (
    ATTRIBUTES_AT,
    MAGIC,
    MAGIC_AT,
    PRODUCER_AT,
    TRANSACTIONAL,
    error_row,
    finish,
    handle,
    producer_of,
    support_of,
)
from oncelog.broker.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from oncelog.wire.batch import HEADER_SIZE
from oncelog.wire.compiler import long_uvarint
from oncelog.wire.errors import KafkaError
from oncelog.wire.header import REQUEST_PREFIX_SIZE
from oncelog.wire.messages.produce import (
    PRODUCE_TOPIC_ID_VERSION,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.cluster import LeaderPartition
    from oncelog.broker.handlers.table import Api
    from oncelog.broker.services import Services
    from oncelog.wire.messages.produce import ProduceRequest

KNOWN_MAX = 16 * 1024
"""Beginnings of requests that are kept, at some 600 bytes each; one more, and all are forgotten."""

LENGTHS_MAX = 4
"""Different lengths of what comes before the records, of which a connection's requests are looked up."""

FRONT_BYTES_MAX = 512
"""Bytes before the records up to which a request is kept; most have about 60."""

TAGS_BYTES = 3
"""What follows the records of the only partition: no tagged fields of the partition, the topic and the request."""

FLUSH_NEVER = (1 << 63) - 1
"""``flush.messages`` where no answer waits for the disk."""

_MARKS = (0x0123456789ABCDE, 0x0FEDCBA987654321, 0x0ECA86420FDB9753)
"""Stand in an answer for base offset, log append time and log start offset, to see where they are."""

_NO_TAGS = bytes(TAGS_BYTES)
_correlation_id_at = 4
_offsets = Struct(">qqq")
_pack_correlation_id = Struct(">i").pack_into
_pack_offsets = _offsets.pack_into


class _Known:
    """The requests of one partition: what is the same in all of them."""

    __slots__ = (
        "acks",
        "answer",
        "hosted",
        "index",
        "name",
        "offsets_at",
        "support",
        "topic",
        "topic_id",
        "transactional_id",
        "version",
    )

    def __init__(self, served: Api, version: int, request: ProduceRequest, name: str) -> None:
        topic = request.topic_data[0]
        self.hosted: LeaderPartition | None = None
        """As `Cluster.leader_partition` gave it last."""
        self.version = version
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.support = support_of(version)
        self.topic = name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.name = topic.name
        self.answer = self.encode(served, 0, PartitionProduceResponse(self.index, 0, *_MARKS))
        self.offsets_at = self.answer.find(_offsets.pack(*_MARKS))

    def encode(self, served: Api, correlation_id: int, row: PartitionProduceResponse) -> bytes:
        """The whole answer with that row; none for acks=0 (which raises CloseConnection for an error)."""
        response = finish(ProduceResponse([TopicProduceResponse(self.name, self.topic_id, [row])]), self.acks)
        if response is None:
            return b""
        out = bytearray()
        served.encode_answer(self.version, correlation_id, response, out, [])
        return bytes(out)


class RepeatedProduces:
    """The Produce requests that came lately, of all connections."""

    __slots__ = ("_cluster", "_known", "_served", "_services")

    def __init__(self, services: Services, served: Api) -> None:
        self._services = services
        self._cluster = services.cluster
        self._served = served
        self._known: dict[bytes, _Known] = {}
        """By what stands between a request's correlation id and the size of its records."""

    def answer(
        self, frame: memoryview, lengths: list[int], version: int, correlation_id: int, out: bytearray
    ) -> bool:
        """Append the records of ``frame`` to their log, and the answer to ``out``; False, and nothing is done, where it
        is no such request. Raises CloseConnection, and what a bug of ours raises.

        ``lengths``: where the size of the records stood in the connection's requests so far (`remember`).
        """
        known = None
        for position in lengths:
            known = self._known.get(bytes(frame[REQUEST_PREFIX_SIZE:position]))
            if known is not None:
                break
        if known is None or known.version != version:
            return False
        records = _records_at(frame, position)
        if records is None:
            return False
        hosted = known.hosted
        if hosted is None or not hosted.holds:
            hosted = self._host(known)
            if hosted is None:
                return False
        if records[ATTRIBUTES_AT] & TRANSACTIONAL and not self._is_enrolled(known, records):
            return False
        log = hosted.log
        config = log.config
        if config.flush_messages != FLUSH_NEVER or (known.acks < 0 and config.min_insync_replicas > 1):
            return False
        try:
            result = log.append(records, leader_epoch=hosted.leader_epoch, produce_version=version)
        except KafkaError as error:
            out += known.encode(self._served, correlation_id, error_row(known.index, error, log))
            return True
        if result.must_flush:  # the repeat of a batch that is not on the disk yet: it is found once more
            return False
        if known.acks:
            start = len(out)
            out += known.answer
            _pack_correlation_id(out, start + _correlation_id_at, correlation_id)
            _pack_offsets(
                out,
                start + known.offsets_at,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
        return True

    def _host(self, known: _Known) -> LeaderPartition | None:
        """Ask for the partition; None where it cannot be had, about which the handler of Produce knows more."""
        try:
            if (
                known.version >= PRODUCE_TOPIC_ID_VERSION
                and self._cluster.topic_by_id(known.topic_id) is None
            ):
                return None
            known.hosted = self._cluster.leader_partition(known.topic, known.index)
        except KafkaError:
            return None
        return known.hosted

    def _is_enrolled(self, known: _Known, records: memoryview) -> bool:
        """Whether the partition is part of the transaction of this batch, or is made so here and now."""
        if known.transactional_id is None or records[MAGIC_AT] != MAGIC:
            return False
        producer_id, epoch, sequence = producer_of(records, PRODUCER_AT)
        if producer_id < 0:
            return False
        producer = Producer(known.transactional_id, producer_id, epoch)
        return enrol(self._services, producer, {(known.topic, known.index): sequence}, known.support) == {}

    def remember(self, frame: memoryview, lengths: list[int], version: int, request: ProduceRequest) -> None:
        """``frame`` is decoded as ``request``: what follows may be like it."""
        served = self._served
        if served.handle is not handle:  # who stands before the handler wants to see every request
            return
        if not served.flexible[version] or len(request.topic_data) != 1 or not -1 <= request.acks <= 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1:
            return
        size = len(topic.partition_data[0].records or b"")
        position = len(frame) - TAGS_BYTES - size - ((size + 1).bit_length() + 6) // 7
        records = _records_at(frame, position)
        if records is None or len(records) != size or position > FRONT_BYTES_MAX:
            return
        if position not in lengths:
            if len(lengths) >= LENGTHS_MAX:
                del lengths[0]
            lengths.append(position)
        front = bytes(frame[REQUEST_PREFIX_SIZE:position])
        known = self._known.get(front)
        if known is not None and known.version == version:
            return
        name = topic.name
        if version >= PRODUCE_TOPIC_ID_VERSION:
            by_id = self._cluster.topic_by_id(topic.topic_id)
            name = by_id.name if by_id is not None else ""
        if name and name not in INTERNAL_TOPICS and name != CLUSTER_METADATA_TOPIC:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[front] = _Known(served, version, request, name)


def _records_at(frame: memoryview, position: int) -> memoryview | None:
    """The records whose size stands at ``position``, if nothing but empty tags follows them to the frame's end."""
    end = len(frame) - TAGS_BYTES
    if end - position < HEADER_SIZE or frame[end:] != _NO_TAGS:
        return None
    size = frame[position]
    position += 1
    if size > 127:
        second = frame[position]
        if second < 128:  # as of most small batches
            size += (second << 7) - 128
            position += 1
        else:
            size, position = long_uvarint(frame, position, size)
    if position + size - 1 != end or size <= HEADER_SIZE:
        return None
    return frame[position:end]
