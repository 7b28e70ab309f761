"""The fast path of Produce: a request that begins like an earlier one is handled without decoding it.

A producer most often sends one batch to one partition at a time, and from one request to the next nothing changes but
the correlation id and the batch: client id, acks, time-out, topic and partition stay, byte for byte. So does the
response, except for three offsets. The bytes before the records are a request's prefix. Prefixes are remembered for all
connections of a principal together (with an authorizer, for those from one host); the batch of a request with a known
prefix goes to the log at once. Special cases (a partition that does not exist or is not yet part of the
transaction, a response that waits for the disk) are left to ``oncelog.broker.handlers.produce``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from oncelog.broker.coordinators.add_partitions_to_txn_manager import TransactionalProducer
from oncelog.broker.handlers.appends import ACKS_ALL, acknowledged, error_row, response_for_acks
from oncelog.broker.handlers.produce import support_of
from oncelog.broker.requests.authorization import TRANSACTIONAL_ID_RESOURCE, WRITE
from oncelog.broker.requests.request import DelayedProduce, RequestContext
from oncelog.broker.seams.clock import real_time
from oncelog.wire.batch import (
    HEADER_SIZE,
    LOW_ATTRIBUTES_AT,
    MAGIC,
    MAGIC_AT,
    PRODUCER_AT,
    TRANSACTIONAL_BIT,
    producer_of,
)
from oncelog.wire.compiler import long_uvarint
from oncelog.wire.errors import KafkaError
from oncelog.wire.header import FIXED_HEADER_SIZE
from oncelog.wire.messages.produce import (
    PRODUCE_TOPIC_ID_VERSION,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from oncelog.wire.validate import LongValidation

if TYPE_CHECKING:
    from oncelog.broker.cluster.cluster import LeaderPartition
    from oncelog.broker.dispatch.api import Api
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.net.connection import Connection
    from oncelog.wire.messages.produce import ProduceRequest

KNOWN_MAX = 16 * 1024
"""How many prefixes are remembered, at some 600 bytes each. One more, and all are forgotten."""

POSITIONS_MAX = 4
"""A connection remembers this many positions of the records' size, and tries each for a request; a new position
replaces the oldest.
"""

PREFIX_BYTES_MAX = 512
"""Where the longest prefix that is remembered ends in its frame; most have about 60 bytes."""

TAGS_BYTES = 3
"""Bytes after the records of the only partition: no tagged fields of the partition, the topic and the request."""

FLUSH_NEVER = (1 << 63) - 1
"""`PartitionLog.waits_at` where no response waits: neither for the disk nor for followers."""

_MARKS = (0x0123456789ABCDE, 0x0FEDCBA987654321, 0x0ECA86420FDB9753)
"""Placeholders for base offset, log append time and log start offset, to find the fields in an encoded response."""

_NO_TAGS = bytes(TAGS_BYTES)
_correlation_id_at = 4
_offsets = Struct(">qqq")
_pack_correlation_id = Struct(">i").pack_into
_pack_offsets = _offsets.pack_into


class _KnownPrefix:
    """The facts that all requests with one prefix share."""

    __slots__ = (
        "acks",
        "index",
        "leader",
        "offsets_at",
        "request",
        "response",
        "response_name",
        "support",
        "topic",
        "topic_id",
        "transactional_id",
        "version",
    )

    def __init__(self, api: Api, version: int, request: ProduceRequest, name: str) -> None:
        topic = request.topic_data[0]
        self.leader: LeaderPartition | None = None
        """As `Cluster.leader_partition` gave it last."""
        self.request: ProduceRequest | None = None
        """Where responses may wait for followers, the first request with this prefix, without its records."""
        self.version = version
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.support = support_of(version)
        self.topic = name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.response_name = topic.name
        """The name as the request has it: empty where it names the topic by id."""
        self.response = self.encode(api, 0, PartitionProduceResponse(self.index, 0, *_MARKS))
        self.offsets_at = self.response.find(_offsets.pack(*_MARKS))

    def encode(self, api: Api, correlation_id: int, row: PartitionProduceResponse) -> bytes:
        """Return the encoded response with that row. For acks=0 it is empty, and an error raises CloseConnection."""
        response = response_for_acks(
            ProduceResponse([TopicProduceResponse(self.response_name, self.topic_id, [row])]), self.acks
        )
        if response is None:
            return b""
        out = bytearray()
        api.encode_response(self.version, correlation_id, response, out, [])
        return bytes(out)


class ProducePrefixes:
    """The prefixes that one connection may use."""

    __slots__ = ("known", "positions")

    def __init__(self) -> None:
        self.known: dict[bytes, _KnownPrefix] = {}
        """Those of its principal: `FastProduce.remember` sets them, `FastProduce.forget` empties them."""
        self.positions: list[int] = []
        """Where the size of the records stood in the connection's requests so far."""


class FastProduce:
    """The prefixes of lately seen Produce requests, of all connections."""

    __slots__ = ("_api", "_cluster", "_count", "_known", "_services", "has_followers", "known_max")

    def __init__(self, services: Services, api: Api) -> None:
        self._services = services
        self.has_followers = services.replication is not None
        """Whether responses may wait for followers (`append_delayed`)."""
        self._cluster = services.cluster
        self._api = api
        self.known_max = KNOWN_MAX
        self._known: dict[object, dict[bytes, _KnownPrefix]] = {}
        """By `Authorization.identity` (the principal; with an authorizer, also the host), and by the bytes between a
        request's correlation id and the size of its records.
        """
        self._count = 0

    def forget(self) -> None:
        """Remember nothing."""
        for known in self._known.values():
            known.clear()
        self._known.clear()
        self._count = 0

    def append(
        self, frame: memoryview, prefixes: ProducePrefixes, version: int, correlation_id: int, out: bytearray
    ) -> bool:
        """Append the records of ``frame`` to their log, and the response to ``out``. Returns False if the prefix is not
        known or the case is special: then neither was done. Raises CloseConnection, and any internal error.
        """
        known = None
        prefixes_known = prefixes.known
        for position in prefixes.positions:
            known = prefixes_known.get(bytes(frame[FIXED_HEADER_SIZE:position]))
            if known is not None:
                break
        if known is None or known.version != version:
            return False
        records = _records_at(frame, position)
        if records is None:
            return False
        leader = known.leader
        if leader is None or not leader.is_current:
            leader = self._find_leader(known)
            if leader is None:
                return False
        if records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT and not self._verify_or_add(known, records):
            return False
        log = leader.log
        # Of several replicas a response may wait for followers here (`waits_at` is 0 then), but not for the disk.
        if log.waits_at != FLUSH_NEVER and not (
            leader.is_replicated and log.config.flush_messages == FLUSH_NEVER
        ):
            return False
        try:
            result = log.append(records, leader_epoch=leader.leader_epoch, produce_version=version)
        except KafkaError as error:
            out += known.encode(self._api, correlation_id, error_row(known.index, error, log))
            return True
        except LongValidation:
            return False
        # With one replica, `must_wait` means here a duplicate of a batch that is not flushed yet: nothing was appended.
        # The handler flushes it.
        if result.must_wait and not leader.is_replicated:
            return False
        if known.acks:
            start = len(out)
            out += known.response
            _pack_correlation_id(out, start + _correlation_id_at, correlation_id)
            _pack_offsets(
                out,
                start + known.offsets_at,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
        return True

    def append_delayed(
        self,
        frame: memoryview,
        prefixes: ProducePrefixes,
        version: int,
        correlation_id: int,
        connection: Connection,
    ) -> DelayedProduce[ProduceResponse | None] | None:
        """As `append`, on a connection whose earlier responses wait for followers: return the response, which leaves
        after them. Returns None if the prefix is not known or the case is special.
        """
        known = None
        for position in prefixes.positions:
            known = prefixes.known.get(bytes(frame[FIXED_HEADER_SIZE:position]))
            if known is not None:
                break
        if known is None or known.version != version or known.request is None:
            return None
        records = _records_at(frame, position)
        if records is None or records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
            return None
        try:
            leader = self._cluster.leader_partition(known.topic, known.index)
            log = leader.log
            if log.config.flush_messages != FLUSH_NEVER or log.topic_id != known.topic_id != ZERO_UUID:
                return None
            if known.acks == ACKS_ALL:
                leader.check_isr()
            result = log.append(records, leader_epoch=leader.leader_epoch, produce_version=version)
        except (KafkaError, LongValidation):  # nothing was appended: the handler meets it again
            return None
        row = PartitionProduceResponse(
            known.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
        response = ProduceResponse([TopicProduceResponse(known.response_name, known.topic_id, [row])])
        context = RequestContext(
            self._api, version, correlation_id, connection.client_id, connection, known.request
        )
        deadline = real_time.monotonic() + known.request.timeout_ms / 1000
        waiting = [(leader, result.last_offset + 1, row)] if result.must_wait else []
        delayed = DelayedProduce(
            acknowledged(self._cluster, context, response, known.acks, deadline, waiting, [])
        )
        delayed.context = context
        return delayed

    def _find_leader(self, known: _KnownPrefix) -> LeaderPartition | None:
        """Return the partition; None if that fails, and the handler of Produce responds with the error."""
        try:
            if (
                known.version >= PRODUCE_TOPIC_ID_VERSION
                and self._cluster.topic_by_id(known.topic_id) is None
            ):
                return None
            leader = self._cluster.leader_partition(known.topic, known.index)
        except KafkaError:
            return None
        if leader.is_replicated and known.acks == ACKS_ALL:  # the response waits for the followers
            return None
        known.leader = leader
        return leader

    def _verify_or_add(self, known: _KnownPrefix, records: memoryview) -> bool:
        """Verify that the partition is part of the batch's transaction, or add it. Returns False if that must wait or
        fails.
        """
        if known.transactional_id is None or records[MAGIC_AT] != MAGIC:
            return False
        producer_id, epoch, sequence = producer_of(records, PRODUCER_AT)
        if producer_id < 0:
            return False
        producer = TransactionalProducer(known.transactional_id, producer_id, epoch)
        sequences = {(known.topic, known.index): sequence}
        return self._services.txn_partitions.verify_or_add_now(producer, sequences, known.support) == {}

    def remember(
        self,
        connection: Connection,
        context: RequestContext,
        frame: memoryview,
        response: ProduceResponse | None,
    ) -> None:
        """Remember the prefix of ``frame``: later requests may have the same.

        A request with a known prefix is not authorized again, so a prefix is remembered only if the handler has refused
        nothing. The handler checks the right to the transactional id only if the records are transactional. Later ones
        with this prefix may be, so it is checked here.
        """
        request: ProduceRequest = context.request
        version = context.api_version
        if not self._api.flexible[version] or len(request.topic_data) != 1 or not -1 <= request.acks <= 1:
            return
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1:
            return
        if response is not None and response.responses[0].partition_responses[0].error_code:
            return
        transactional_id = request.transactional_id
        if transactional_id is not None and not self._services.authorization.allows(
            context, WRITE, TRANSACTIONAL_ID_RESOURCE, transactional_id
        ):
            return
        size = len(topic.partition_data[0].records or b"")
        # back over the tags, the records, and the varint of size + 1
        position = len(frame) - TAGS_BYTES - size - ((size + 1).bit_length() + 6) // 7
        records = _records_at(frame, position)
        if records is None or len(records) != size or position > PREFIX_BYTES_MAX:
            return
        prefixes = connection.produce_prefixes
        if prefixes is None:
            prefixes = connection.produce_prefixes = ProducePrefixes()
        positions = prefixes.positions
        if position not in positions:
            if len(positions) >= POSITIONS_MAX:
                del positions[0]
            positions.append(position)
        prefix = bytes(frame[FIXED_HEADER_SIZE:position])
        who = self._services.authorization.identity(context)
        # `forget` drops the dictionaries, so that a prefix goes into a new one. A connection whose identity has changed
        # keeps the dictionary that was emptied.
        prefixes.known = self._known.get(who) or {}
        known = prefixes.known.get(prefix)
        if known is not None and known.version == version:
            return
        name = topic.name
        if version >= PRODUCE_TOPIC_ID_VERSION:
            by_id = self._cluster.topic_by_id(topic.topic_id)
            name = by_id.name if by_id is not None else ""
        if name and name not in INTERNAL_TOPICS and name != CLUSTER_METADATA_TOPIC:
            if self._count >= self.known_max:
                self.forget()
            if known is None:
                self._count += 1
            self._known[who] = prefixes.known
            known = prefixes.known[prefix] = _KnownPrefix(self._api, version, request, name)
            if self.has_followers:
                topic.partition_data[0].records = None  # they are in a buffer that others use from now on
                known.request = request


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
