"""Response templates: the response to a Fetch that waits for one partition, encoded while it waits.

All but five fields of such a response are known before the records are there: only the correlation id, three offsets
and the records follow from the append that ends the wait, and a consumer's next Fetch most often waits for the same.
The usual encoder makes the template, once; each response is a copy with the five fields filled in.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.wire.compiler import put_uvarint
from oncelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from oncelog.broker.dispatch.api import Api

KEPT_MAX = 16 * 1024
"""How many templates are kept, at some 300 bytes each. One more, and all are forgotten."""

_OFFSETS = (0x0123456789ABCDE, 0x0FEDCBA987654321, 0x0ECA86420FDB9753)
"""Placeholders for high watermark, last stable offset and log start offset, to find the fields in the response."""
_RECORDS = bytes(range(0xF0, 0x100))
"""A placeholder for the records; its length takes one byte."""
_SIZE_BYTES = 4

_offsets = Struct(">qqq")
_pack_offsets = _offsets.pack_into
_pack_size_and_correlation_id = Struct(">ii").pack_into


class Shape(NamedTuple):
    """What the responses to consecutive Fetches of a waiting consumer have in common."""

    version: int
    """A flexible one: the records' length is a varint."""
    session_id: int
    topic: str
    topic_id: bytes
    partition: int
    committed: bool
    """Whether the consumer reads committed records only: its responses list aborted transactions, here none."""


class ResponseTemplate:
    """An encoded response with the records of one partition, without the fields that are known only with them."""

    __slots__ = ("_head", "_offsets_at", "_tail")

    def __init__(self, api: Api, shape: Shape) -> None:
        aborted: list[AbortedTransaction] | None = [] if shape.committed else None
        row = PartitionData(shape.partition, 0, *_OFFSETS, aborted_transactions=aborted, records=_RECORDS)
        topic = FetchableTopicResponse(shape.topic, shape.topic_id, [row])
        whole = bytearray()
        api.encode_response(shape.version, 0, FetchResponse(0, 0, shape.session_id, [topic]), whole, [])
        records_at = whole.find(_RECORDS)
        self._head = bytes(whole[: records_at - 1])
        self._tail = bytes(whole[records_at + len(_RECORDS) :])
        self._offsets_at = whole.find(_offsets.pack(*_OFFSETS))

    def put(self, correlation_id: int, row: PartitionData, out: bytearray) -> None:
        """Append the whole response to ``out``; ``row`` has its offsets and, as bytes, its records."""
        start = len(out)
        records: Any = row.records
        out += self._head
        put_uvarint(out, len(records) + 1)
        out += records
        out += self._tail
        _pack_size_and_correlation_id(out, start, len(out) - start - _SIZE_BYTES, correlation_id)
        _pack_offsets(
            out, start + self._offsets_at, row.high_watermark, row.last_stable_offset, row.log_start_offset
        )


class ResponseTemplates:
    """The templates of all connections of a node."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Shape, ResponseTemplate] = {}

    def get(self, api: Api, shape: Shape) -> ResponseTemplate:
        found = self._kept.get(shape)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[shape] = ResponseTemplate(api, shape)
        return found
