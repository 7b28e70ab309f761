"""Validates a batch before it is appended, and changes it where the topic's configuration asks for that.

The checks are those of Kafka 4.3.1 in ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator``, in the same order and with the same error codes. Every record of a batch is checked, after
decompression if needed. Known differences, all of them stricter:

- Records with wrong lengths in a compressed batch are refused with INVALID_RECORD, as in an uncompressed batch. Kafka
  skips them without checking their lengths, and consumers fail later.
- A batch that decompresses to more than ``decompressed_bytes_max`` is refused with MESSAGE_TOO_LARGE, and producers
  then split it. Kafka reads it to its end, however long that takes.
- So is a batch of more than ``RECORDS_MAX`` records, which would take too long to check.
- A record length whose varint has more than five bytes is INVALID_RECORD; in an uncompressed batch Kafka fails with
  UNKNOWN_SERVER_ERROR.
- A response lists at most ``RECORD_ERRORS_MAX`` record errors, and none for a batch of more than ``RECORDS_NAMED_MAX``
  records.

Kafka sends an error message only together with errors of single records; here it is always sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
    crc_matches,
    read_header,
    restamp_timestamps,
)
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.compression import NONE, ZSTD, TooLarge, compress
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.records import iterate_records, records_of, scan, wrap_int64
from oncelog.wire.validation_rules import INT64_MAX, ValidationRules
from oncelog.wire.walk import WalkResult, walk

if TYPE_CHECKING:
    from typing_extensions import Buffer

RECORDS_MAX = 1 << 20
"""Records of one batch. Clients send far fewer, and while a batch is checked all connections wait."""
RECORD_ERRORS_MAX = 10_000
"""Records of one batch that a response lists as invalid."""
RECORDS_NAMED_MAX = 50_000
"""A batch of more records than this is refused as a whole, without errors of single records."""

_LENGTH_MIN = 14  # bytes after the length of a batch of any magic (``LegacyRecord.RECORD_OVERHEAD_V0``)
_SIZE_UP_TO_MAGIC = 17
_MAGIC_AT = 16


class InvalidRecords(KafkaError):  # noqa: N818  # the name that the log and the handlers know
    """A batch with invalid content. ``record_errors``: (index in the batch, message) of each invalid record."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors or []


class ValidatedBatch:
    """A valid batch, to be stamped with its base offset and leader epoch (wire.batch.stamp) before it is appended."""

    __slots__ = ("batch", "header", "log_append_time", "max_timestamp")

    def __init__(self, batch: memoryview, header: BatchHeader, log_append_time: int) -> None:
        self.batch = batch
        """The bytes to append: the given ones, perhaps changed in place, or new ones."""
        self.header = header
        """The header of ``batch``."""
        self.max_timestamp = header.max_timestamp
        """For the time index, together with the batch's last offset (Kafka indexes no offset inside a batch)."""
        self.log_append_time = log_append_time
        """For the response to the producer (ms); -1 if the topic keeps the producer's timestamps."""


def read_produced_batch(records: Buffer, rules: ValidationRules) -> tuple[memoryview, BatchHeader]:
    """The one batch that a Produce request may have for a partition, and its header.

    An incomplete second batch is ignored, as in Kafka. Raises KafkaError: INVALID_RECORD for no batch, more than one,
    or another magic; CORRUPT_MESSAGE; UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    try:
        header = read_header(view)
        if header.batch_length + LOG_OVERHEAD == len(view) and (rules.zstd_allowed or header.codec != ZSTD):
            return view, header  # a valid batch; below, find the error of any other
    except DecodeError:
        pass
    size = _next_batch_size(view)
    if not size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch for the partition")
    if view[_MAGIC_AT] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"record batch of magic {view[_MAGIC_AT]}; only {MAGIC} is allowed"
        )
    if size < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of {size} bytes, less than its header")
    header = read_header(view)
    if not rules.zstd_allowed and header.codec == ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "this version of Produce knows no zstd compression"
        )
    if size < len(view):
        if _next_batch_size(view[size:]):
            raise KafkaError(ErrorCode.INVALID_RECORD, "more than one record batch for the partition")
        view = view[:size]
    return view, header


def _next_batch_size(view: memoryview) -> int:
    """The size in bytes of the batch, of any magic, at the start; 0 if it is incomplete. Raises KafkaError
    (CORRUPT_MESSAGE).
    """
    if len(view) < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True)
    if length < _LENGTH_MIN:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of length {length}")
    if len(view) < _SIZE_UP_TO_MAGIC:
        return 0
    if view[_MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of magic {view[_MAGIC_AT]}")
    return length + LOG_OVERHEAD if length + LOG_OVERHEAD <= len(view) else 0


def validate(batch: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int) -> ValidatedBatch:
    """Check ``batch``, which is one whole batch, and change it as the rules require.

    ``header``, its decoded header, is changed along with it. Raises KafkaError (MESSAGE_TOO_LARGE, CORRUPT_MESSAGE,
    RECORD_LIST_TOO_LARGE) and InvalidRecords (INVALID_RECORD, INVALID_TIMESTAMP, and as in Kafka UNKNOWN_SERVER_ERROR
    if the records cannot be decompressed).
    """
    if rules.from_client and header.base_offset != 0:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, not 0")
    size = header.batch_length + LOG_OVERHEAD
    if size > rules.max_message_bytes:
        raise _too_large(size, rules)
    if not crc_matches(batch, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "record batch whose CRC is not that of its bytes")
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > ZSTD:
        raise InvalidRecords(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id {codec}")
    if rules.from_client:
        _check_header(header)
    if header.record_count > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"{header.record_count} records in a batch, not {RECORDS_MAX}"
        )
    records: bytes | memoryview
    try:
        records = records_of(batch, header, rules.decompressed_bytes_max) if codec else batch[HEADER_SIZE:]
    except TooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except DecodeError as error:
        raise InvalidRecords(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    try:
        result = walk(records, header.record_count)
    except DecodeError as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    max_timestamp = _check_records(records, header, result, rules, now_ms)

    target = codec if rules.codec is None else _target_codec(codec, header, rules)
    if target != codec:
        batch = _rebuild(batch, header, records, result, target, rules, max_timestamp)
        size = header.size
        if size > rules.max_message_bytes:
            raise _too_large(size, rules)
    elif codec and not result.sequential:
        raise InvalidRecords(
            ErrorCode.UNKNOWN_SERVER_ERROR, "offset deltas in a compressed batch out of order"
        )
    elif (
        header.max_timestamp != max_timestamp
        or (attributes & LOG_APPEND_TIME_BIT != 0) is not rules.log_append_time
    ):
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        restamp_timestamps(batch, 0, max_timestamp=max_timestamp, log_append_time=rules.log_append_time)
        changed = read_header(batch)
        header.attributes = changed.attributes
        header.max_timestamp = changed.max_timestamp
        header.crc = changed.crc
    if size > rules.segment_bytes:
        raise _too_large_for_a_segment(size, rules)
    return ValidatedBatch(batch, header, now_ms if rules.log_append_time else NO_TIMESTAMP)


def validate_built(
    batch: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int
) -> ValidatedBatch:
    """`validate` for a batch that this process has just built: does not check its CRC and records.

    If the rules require another codec or timestamp type, the batch is fully validated. Raises as `validate`.
    """
    codec = header.attributes & CODEC_MASK
    target = _target_codec(codec, header, rules)
    if rules.log_append_time or target != codec:
        return validate(batch, header, rules, now_ms)
    size = header.batch_length + LOG_OVERHEAD
    if size > rules.max_message_bytes:
        raise _too_large(size, rules)
    if size > rules.segment_bytes:
        raise _too_large_for_a_segment(size, rules)
    return ValidatedBatch(batch, header, NO_TIMESTAMP)


def _too_large(size: int, rules: ValidationRules) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"record batch of {size} bytes; max.message.bytes is {rules.max_message_bytes}",
    )


def _target_codec(codec: int, header: BatchHeader, rules: ValidationRules) -> int:
    """The codec for a batch that has ``codec``; uncompressed control batches stay so."""
    if rules.codec is None or (header.attributes & CONTROL_BIT and not codec):
        return codec
    return rules.codec


def _too_large_for_a_segment(size: int, rules: ValidationRules) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"record batch of {size} bytes; segment.bytes is {rules.segment_bytes}",
    )


def _check_header(header: BatchHeader) -> None:
    """Refuse what a producer may not write (``LogValidator.validateBatch``)."""
    offsets = header.last_offset_delta + 1
    count = header.record_count
    if offsets <= 0 or count <= 0 or offsets != count:
        problem = f"{count} records for {offsets} offsets"
    elif header.attributes & CONTROL_BIT:
        problem = "control records are not for clients to write"
    elif header.base_sequence < 0 and header.has_producer_id:
        problem = f"sequence number {header.base_sequence} of producer id {header.producer_id}"
    else:
        return
    raise InvalidRecords(ErrorCode.INVALID_RECORD, problem)


def _check_records(
    records: bytes | memoryview, header: BatchHeader, result: WalkResult, rules: ValidationRules, now_ms: int
) -> int:
    """The max timestamp for the batch. Raises InvalidRecords if a record breaks a rule."""
    base = header.base_timestamp
    latest = NO_TIMESTAMP if result.max_delta is None else base + result.max_delta
    suspect = header.attributes & LOG_APPEND_TIME_BIT or (rules.compacted and result.has_null_key)
    if not rules.log_append_time and not suspect:
        suspect = (
            now_ms - base - result.min_delta > rules.timestamp_before_max_ms
            or latest - now_ms > rules.timestamp_after_max_ms
            or latest > INT64_MAX
        )
    if suspect and header.record_count > RECORDS_NAMED_MAX:
        latest = _check_extremes(header, result, rules, now_ms)
    elif suspect:
        latest = _check_each(records, header, rules, now_ms)
    return now_ms if rules.log_append_time else max(latest, NO_TIMESTAMP)


def _check_extremes(header: BatchHeader, result: WalkResult, rules: ValidationRules, now_ms: int) -> int:
    """As `_check_each`, but checks only the lowest and highest timestamp, and lists no single records."""
    stamps = [header.max_timestamp]
    if not header.is_log_append_time:
        stamps = [
            wrap_int64(header.base_timestamp + delta) for delta in (result.min_delta, result.max_delta or 0)
        ]
    for timestamp in stamps:
        if problem := _timestamp_problem(timestamp, header, rules, now_ms):
            raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, problem)
    if rules.compacted and result.has_null_key:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "a record of a compacted topic needs a key")
    return max(stamps)


def _check_each(records: bytes | memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int) -> int:
    """Check each record, with Java's arithmetic. Returns the greatest timestamp; raises InvalidRecords with all
    errors.
    """
    data = bytes(records)
    errors: list[tuple[int, str]] = []
    bad_timestamp = False
    latest = NO_TIMESTAMP
    position = 0
    for index in range(header.record_count):
        position, delta, _, _, key_end, *_ = scan(data, position, len(data))
        timestamp = (
            header.max_timestamp if header.is_log_append_time else wrap_int64(header.base_timestamp + delta)
        )
        latest = max(latest, timestamp)
        if rules.compacted and key_end < 0:
            message = "a record of a compacted topic needs a key"
        else:
            message = _timestamp_problem(timestamp, header, rules, now_ms)
            if not message:
                continue
            bad_timestamp = True
        if len(errors) < RECORD_ERRORS_MAX:
            errors.append((index, message))
    if bad_timestamp:
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, "records with an invalid timestamp", errors)
    if errors:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{len(errors)} records are invalid, the first because {errors[0][1]} (record {errors[0][0]})",
            errors,
        )
    return latest


def _timestamp_problem(timestamp: int, header: BatchHeader, rules: ValidationRules, now_ms: int) -> str:
    """The reason why ``LogValidator.validateTimestamp`` refuses the timestamp; empty if it does not."""
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        age = wrap_int64(now_ms - timestamp)
        before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        if age > before or wrap_int64(-age) > after:
            return f"timestamp {timestamp} is not within [{wrap_int64(now_ms - before)}, {wrap_int64(now_ms + after)}]"
    elif header.is_log_append_time:
        return "LogAppendTime is not a timestamp type for a producer to set"
    return ""


def _rebuild(
    batch: memoryview,
    header: BatchHeader,
    records: bytes | memoryview,
    result: WalkResult,
    codec: int,
    rules: ValidationRules,
    max_timestamp: int,
) -> memoryview:
    """The batch with another codec and the offset deltas 0, 1, 2, …; updates ``header``."""
    if header.is_log_append_time or not result.sequential:
        builder = BatchBuilder()
        for record in iterate_records(batch, header, max_size=rules.decompressed_bytes_max):
            builder.append(record.timestamp, record.key, record.value, record.headers)
        rebuilt = builder.build()
        records = memoryview(rebuilt)[HEADER_SIZE:]
        header.base_timestamp = read_header(rebuilt).base_timestamp
    header.attributes = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) | codec
    if rules.log_append_time:
        header.attributes |= LOG_APPEND_TIME_BIT
    header.max_timestamp = max_timestamp
    return memoryview(assemble(header, compress(codec, records, rules.level) if codec != NONE else records))
