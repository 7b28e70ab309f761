"""Batches and records, written and read by independent implementations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from typing_extensions import Buffer

with warnings.catch_warnings():  # kafka-python uses a deprecated way to read its own files
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka.codec
    import aiokafka.record.default_records
    import kafka.codec
    import kafka.record.default_records
    from kafka.record._crc32c import crc as kafka_python_crc

from oncelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from oncelog.wire.records import Record

__all__ = ["aiokafka", "kafka", "kafka_python_crc"]  # re-exported

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
CODEC_NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]

# timestamp, key, value, headers
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

BIG = 10_000_000  # the builders' limit of a batch's size


def encode_kafka_python(rows: Sequence[Row], codec: int = NONE, **producer: Any) -> bytearray:
    return _encode(kafka.record.default_records.DefaultRecordBatchBuilder, rows, codec, producer)


def encode_aiokafka(rows: Sequence[Row], codec: int = NONE, **producer: Any) -> bytearray:
    return _encode(aiokafka.record.default_records.DefaultRecordBatchBuilder, rows, codec, producer)


ENCODERS = [encode_kafka_python, encode_aiokafka]


def _encode(builder_class: Any, rows: Sequence[Row], codec: int, producer: dict[str, Any]) -> bytearray:
    fields = {
        "is_transactional": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        **producer,
    }
    builder = builder_class(magic=2, compression_type=codec, batch_size=BIG, **fields)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    # gzip writes the time down: this way the bytes are the same in each run.
    with mock.patch("time.time", return_value=0.0):
        return bytearray(builder.build())


Seen = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def decode_kafka_python(batch: Buffer) -> list[Seen]:
    return _decode(kafka.record.default_records.DefaultRecordBatch(bytes(batch)))


def decode_aiokafka(batch: Buffer) -> list[Seen]:
    return _decode(aiokafka.record.default_records.DefaultRecordBatch(bytes(batch)))


DECODERS: list[Callable[[Buffer], list[Seen]]] = [decode_kafka_python, decode_aiokafka]


def _decode(batch: Any) -> list[Seen]:
    assert batch.validate_crc()
    return [
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            [(name.encode(), value) for name, value in record.headers],
        )
        for record in batch
    ]


def seen(records: Sequence[Record]) -> list[Seen]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def expected(rows: Sequence[Row], base_offset: int = 0) -> list[Seen]:
    return [
        (base_offset + index, timestamp, key, value, [(name.encode(), v) for name, v in headers])
        for index, (timestamp, key, value, headers) in enumerate(rows)
    ]


_bytes = st.binary(max_size=90) | st.binary(min_size=50, max_size=80)
rows = st.lists(
    st.tuples(
        st.integers(1_700_000_000_000 - 9_000, 1_700_000_000_000 + 9_000),
        st.none() | _bytes,
        st.none() | _bytes,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2),
    ),
    min_size=1,
    max_size=8,
)
"""Rows for a batch: sizes around the limits of one- and two-byte varints, nulls, headers."""


def varint(value: int) -> bytes:
    """A zig-zag varint, implemented from the protocol's description, independent of the code under test."""
    raw = 2 * value if value >= 0 else -2 * value - 1
    out: list[int] = []
    while True:
        low, raw = raw % 128, raw // 128
        if not raw:
            return bytes([*out, low])
        out.append(low + 128)
