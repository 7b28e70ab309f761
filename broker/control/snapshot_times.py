"""The times in a snapshot's coordinator logs that deadlines follow from, moved by the time that the data lay there.

These are the start and the last change of each transaction (``transaction.timeout.ms``,
``transactional.id.expiration.ms``), the commit and expiry of each offset, and since when a classic group is in its
state (``offsets.retention.minutes``). They are fields of a fixed size in the values of records, so batches keep their
sizes, unless they are compressed.
"""

from __future__ import annotations

import struct

from oncelog.broker.log.data_directory import partition_of
from oncelog.broker.log.file_names import LOG_SUFFIX
from oncelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from oncelog.wire.compression import NONE, compress
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import records_of, scan
from oncelog.wire.schema import Message
from oncelog.wire.stored import groups, transactions
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_value
from oncelog.wire.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

POSITIONS = (".index", ".timeindex")
"""Files that say at which position of a log an offset is; derived from the log."""

_TIMES: dict[str, tuple[dict[int, type[Message]], dict[int, type[Message]]]] = {
    OFFSETS_TOPIC: (
        {
            one.API_KEY: one
            for one in (groups.LegacyOffsetCommitKey, groups.OffsetCommitKey, groups.GroupMetadataKey)
        },
        {
            one.API_KEY: one
            for one in (groups.LegacyOffsetCommitValue, groups.OffsetCommitValue, groups.GroupMetadataValue)
        },
    ),
    TRANSACTIONS_TOPIC: (transactions.KEY_TYPES, transactions.VALUE_TYPES),
}
"""Topic -> key types and value types of the records that hold such times."""

_FIELDS = (
    "commit_timestamp",
    "expire_timestamp",
    "current_state_timestamp",
    "transaction_start_timestamp_ms",
    "transaction_last_update_timestamp_ms",
)

_batch_length = struct.Struct(">i")
_batch_length_at = 8
_crc = struct.Struct(">I")
_crc_at = 17
_crc_from = 21


def move_times(files: dict[str, bytes], by_ms: int) -> bool:
    """Add ``by_ms`` to the times in the coordinators' logs among ``files``, a data directory by paths.

    Returns whether the positions of batches have changed; then the indexes of these logs are gone from ``files``, and
    the start must recover.
    """
    moved = False
    for path in list(files):
        directory, _, name = path.partition("/")
        partition = partition_of(directory)
        if partition is None or partition[0] not in _TIMES or not name.endswith(LOG_SUFFIX):
            continue
        before = files[path]
        files[path] = after = _move_in_log(before, *_TIMES[partition[0]], by_ms)
        if len(after) != len(before):
            moved = True
            for suffix in POSITIONS:
                files.pop(path.removesuffix(LOG_SUFFIX) + suffix, None)
    return moved


def _move_in_log(
    log: bytes, key_types: dict[int, type[Message]], value_types: dict[int, type[Message]], by_ms: int
) -> bytes:
    """A damaged end stays as it is: the start recovers the log."""
    moved = bytearray()
    position = 0
    try:
        while position < len(log):
            header = read_header(log, position)
            batch = log[position : position + header.size]
            moved += (
                batch if header.is_control else _move_in_batch(batch, header, key_types, value_types, by_ms)
            )
            position += header.size
    except DecodeError:
        moved += log[position:]
    return bytes(moved)


def _move_in_batch(
    batch: bytes,
    header: BatchHeader,
    key_types: dict[int, type[Message]],
    value_types: dict[int, type[Message]],
    by_ms: int,
) -> bytes:
    before = records_of(batch, header)
    records = bytearray(before)
    position = 0
    for _ in range(header.record_count):
        end, _, _, key_at, key_end, value_at, value_end, _, _ = scan(before, position, len(before))
        if key_end >= 0 and value_end >= 0:
            key = decode_key(before[key_at:key_end], key_types)
            if key is not None:
                value_type = value_types[key.API_KEY]
                records[value_at:value_end] = _move_in_value(before[value_at:value_end], value_type, by_ms)
        position = end
    stored = bytes(records) if header.codec == NONE else compress(header.codec, records)
    moved = bytearray(batch[:HEADER_SIZE]) + stored
    _batch_length.pack_into(moved, _batch_length_at, len(moved) - LOG_OVERHEAD)
    _crc.pack_into(moved, _crc_at, crc32c(memoryview(moved)[_crc_from:]))
    return bytes(moved)


def _move_in_value(value: bytes, value_type: type[Message], by_ms: int) -> bytes:
    """Return the value with its times moved; one that this oncelog would write in another size, or of an unknown
    version, as it is.
    """
    try:
        decoded = decode_value(value, value_type)
    except DecodeError:
        return value
    for name in _FIELDS:
        if getattr(decoded, name, -1) >= 0:
            setattr(decoded, name, getattr(decoded, name) + by_ms)
    moved = encode_value(decoded, int.from_bytes(value[:2], "big"))
    return moved if len(moved) == len(value) else value
