"""Validates a batch before it is appended, and changes it where the topic's configuration asks for that.

The checks are those of Kafka 4.4.0 in ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords`` and
``LogValidator``, in the same order and with the same error codes. Every record of a batch is checked, after
decompression if needed. Known differences, all of them stricter:

- Records with wrong lengths in a compressed batch are refused with INVALID_RECORD, as in an uncompressed batch. Kafka
  skips them without checking their lengths, and consumers fail later.
- A batch that decompresses to more than ``decompressed_bytes_max`` is refused with MESSAGE_TOO_LARGE, and producers
  then split it. Kafka reads it to its end, however long that takes.
- So is a batch of more than ``RECORDS_MAX`` records, which would take too long to check.
- A record length whose varint has more than five bytes is INVALID_RECORD; in an uncompressed batch Kafka fails with
  UNKNOWN_SERVER_ERROR.
- A response lists at most ``record_errors_max`` record errors, and none for a batch of more than ``records_named_max``
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
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
    crc_matches,
    read_header,
    restamp_timestamps,
)
from oncelog.wire.compression import NONE, ZSTD, TooLarge, compress_steps
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.records import check_record_size, records_of_in_steps, scan_front, wrap_int64
from oncelog.wire.steps import finish, take
from oncelog.wire.validation_rules import INT64_MAX, ValidationRules
from oncelog.wire.varint import append_varint
from oncelog.wire.walk import WalkResult, walk, walk_in_steps

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from oncelog.wire.compression import Data
    from oncelog.wire.steps import Steps


SHORT_BATCH_BYTES = 16 * 1024
"""The records of an uncompressed batch of so many bytes are always checked at once."""
RECORDS_MAX = 1 << 20
"""Records of one batch. Clients send far fewer, and while a batch is checked all connections wait."""

STEPS_AT_ONCE = 32
"""Steps of a validation that are taken at once: some milliseconds. A megabyte of ordinary records needs fewer."""

_STEP_RECORDS = 256
"""Records that one step checks one by one, or rewrites."""

_UNITS = (("seconds", 1e-3), ("microseconds", 1e3), ("nanoseconds", 1e6))
"""Units of a client's mistake, and how many of each are a millisecond."""
_YEARS_MS = 20 * 365 * 86_400_000

_LENGTH_MIN = 14  # bytes after the length of a batch of any magic (``LegacyRecord.RECORD_OVERHEAD_V0``)
_SIZE_UP_TO_MAGIC = 17


class InvalidRecords(KafkaError):  # noqa: N818  # the name that the log and the handlers know
    """A batch with invalid content. ``record_errors``: (index in the batch, message) of each invalid record."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors or []


class LongValidation(Exception):  # noqa: N818 - not an error
    """The records of a batch take long to check. ``steps`` go on with that, on a copy of the batch, and return the
    `ValidatedBatch`; they raise as `validate`.
    """

    def __init__(self, steps: Steps[ValidatedBatch]) -> None:
        super().__init__()
        self.steps = steps


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

    def appended_at(self, now_ms: int) -> ValidatedBatch:
        """The batch with a LogAppendTime of now, where the topic has one: it was validated some time ago."""
        if self.log_append_time == NO_TIMESTAMP or self.log_append_time == now_ms:
            return self
        restamp_timestamps(self.batch, 0, max_timestamp=now_ms, log_append_time=True)
        return ValidatedBatch(self.batch, read_header(self.batch), now_ms)


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
    if view[MAGIC_AT] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"record batch of magic {view[MAGIC_AT]}; only {MAGIC} is allowed"
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
    if view[MAGIC_AT] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of magic {view[MAGIC_AT]}")
    return length + LOG_OVERHEAD if length + LOG_OVERHEAD <= len(view) else 0


def validate(
    batch: memoryview,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
) -> ValidatedBatch:
    """Check ``batch``, which is one whole batch, and change it as the rules require.

    ``header``, its decoded header, is changed along with it. Raises KafkaError (MESSAGE_TOO_LARGE, CORRUPT_MESSAGE,
    RECORD_LIST_TOO_LARGE) and InvalidRecords (INVALID_RECORD, INVALID_TIMESTAMP, and as in Kafka UNKNOWN_SERVER_ERROR
    if the records cannot be decompressed). Raises LongValidation if it takes more than `STEPS_AT_ONCE` steps.
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
    if codec or rules.codec or size > SHORT_BATCH_BYTES:
        return _validate_long(batch, header, rules, now_ms)
    records = batch[HEADER_SIZE:]
    try:
        result = walk(records, header.record_count, fast_readers=rules.fast_readers)
    except DecodeError as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    max_timestamp = _max_timestamp(header, result, rules, now_ms)
    if max_timestamp is None:
        max_timestamp = finish(_check_each(records, header, rules, now_ms))
    return _stamp(batch, size, header, rules, now_ms, max_timestamp)


def validate_at_once(
    batch: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int
) -> ValidatedBatch:
    """`validate`, however long it takes."""
    try:
        return validate(batch, header, rules, now_ms)
    except LongValidation as long:
        return finish(long.steps)


def _validate_long(
    batch: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int
) -> ValidatedBatch:
    """Check a batch whose records may take long. Raises as `validate`."""
    valid = take(_validation(batch, header, rules, now_ms), STEPS_AT_ONCE)
    if valid is not None:
        return valid
    # It begins anew, so that a validation that waits for its turn holds a copy of the batch and nothing decompressed.
    copy = memoryview(bytearray(batch))
    raise LongValidation(_validation(copy, read_header(copy), rules, now_ms))


def _validation(
    batch: memoryview, header: BatchHeader, rules: ValidationRules, now_ms: int
) -> Steps[ValidatedBatch]:
    """Check the records of a batch whose header is valid, and change the batch as the rules require. Raises as
    `validate`.
    """
    codec = header.attributes & CODEC_MASK
    target = _target_codec(codec, header, rules)
    records: bytes | bytearray | memoryview = batch[HEADER_SIZE:]
    if codec:
        try:
            records = yield from records_of_in_steps(batch, header, rules.decompressed_bytes_max)
        except TooLarge as error:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
        except DecodeError as error:
            raise InvalidRecords(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    try:
        result = yield from walk_in_steps(records, header.record_count, fast_readers=rules.fast_readers)
    except DecodeError as error:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error)) from None
    if codec and len(records) > rules.max_decompressed_message_bytes:
        yield from _check_sizes(records, header.record_count, rules.max_decompressed_message_bytes)
    max_timestamp = _max_timestamp(header, result, rules, now_ms)
    if max_timestamp is None:
        max_timestamp = yield from _check_each(records, header, rules, now_ms)
    if target != codec:
        batch = yield from _rebuild(header, records, result, target, rules, max_timestamp)
        if header.size > rules.max_message_bytes:
            raise _too_large(header.size, rules)
    elif codec and not result.sequential:
        raise InvalidRecords(
            ErrorCode.UNKNOWN_SERVER_ERROR, "offset deltas in a compressed batch out of order"
        )
    return _stamp(batch, header.size, header, rules, now_ms, max_timestamp)


def _check_sizes(records: bytes | bytearray | memoryview, count: int, limit: int) -> Steps[None]:
    """Raise InvalidRecords for the first record of more than ``limit`` bytes."""
    position = 0
    for index in range(count):
        try:
            position = check_record_size(records, position, limit)
        except KafkaError as error:
            raise InvalidRecords(error.code, str(error.message)) from None
        if index % _STEP_RECORDS == _STEP_RECORDS - 1:
            yield


def _stamp(
    batch: memoryview,
    size: int,
    header: BatchHeader,
    rules: ValidationRules,
    now_ms: int,
    max_timestamp: int,
) -> ValidatedBatch:
    """The batch, with ``max_timestamp`` and the timestamp type of the topic. Raises KafkaError
    (RECORD_LIST_TOO_LARGE).
    """
    if (
        header.max_timestamp != max_timestamp
        or (header.attributes & LOG_APPEND_TIME_BIT != 0) is not rules.log_append_time
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
        return validate_at_once(batch, header, rules, now_ms)
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


def _max_timestamp(
    header: BatchHeader, result: WalkResult, rules: ValidationRules, now_ms: int
) -> int | None:
    """The max timestamp for the batch; None if a record may break a rule, and each must be checked (`_check_each`).

    Raises InvalidRecords if a record of a very large batch breaks a rule.
    """
    base = header.base_timestamp
    latest = NO_TIMESTAMP if result.max_delta is None else base + result.max_delta
    suspect = header.attributes & LOG_APPEND_TIME_BIT or (rules.compacted and result.has_null_key)
    if not rules.log_append_time and not suspect:
        suspect = (
            now_ms - base - result.min_delta > rules.timestamp_before_max_ms
            or latest - now_ms > rules.timestamp_after_max_ms
            or latest > INT64_MAX
        )
    if suspect:
        if header.record_count <= rules.records_named_max:
            return None
        latest = _check_extremes(header, result, rules, now_ms)
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


def _check_each(records: Data, header: BatchHeader, rules: ValidationRules, now_ms: int) -> Steps[int]:
    """Check each record, with Java's arithmetic. Returns the max timestamp for the batch; raises InvalidRecords with
    all errors.
    """
    data = bytes(records) if isinstance(records, memoryview) else records
    limit = len(data)
    errors: list[tuple[int, str]] = []
    bad_timestamp = False
    latest = NO_TIMESTAMP
    position = 0
    for index in range(header.record_count):
        if index % _STEP_RECORDS == _STEP_RECORDS - 1:
            yield
        position, delta, _, key_length_at = scan_front(data, position, limit)
        timestamp = (
            header.max_timestamp if header.is_log_append_time else wrap_int64(header.base_timestamp + delta)
        )
        latest = max(latest, timestamp)
        if rules.compacted and data[key_length_at] & 1:  # negative, in zig-zag form
            message = "a record of a compacted topic needs a key"
        else:
            message = _timestamp_problem(timestamp, header, rules, now_ms)
            if not message:
                continue
            bad_timestamp = True
        if len(errors) < rules.record_errors_max:
            errors.append((index, message))
    if bad_timestamp:
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, "records with an invalid timestamp", errors)
    if errors:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{len(errors)} records are invalid, the first because {errors[0][1]} (record {errors[0][0]})",
            errors,
        )
    return now_ms if rules.log_append_time else max(latest, NO_TIMESTAMP)


def _timestamp_problem(timestamp: int, header: BatchHeader, rules: ValidationRules, now_ms: int) -> str:
    """The reason why ``LogValidator.validateTimestamp`` refuses the timestamp; empty if it does not."""
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        age = wrap_int64(now_ms - timestamp)
        before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        if age > before:
            limit = f"before {wrap_int64(now_ms - before)} (message.timestamp.before.max.ms={before})"
        elif wrap_int64(-age) > after:
            limit = f"after {wrap_int64(now_ms + after)} (message.timestamp.after.max.ms={after})"
        else:
            return ""
        return f"timestamp {timestamp} is {limit}{_unit_hint(timestamp, now_ms)}"
    if header.is_log_append_time:
        return "LogAppendTime is not a timestamp type for a producer to set"
    return ""


def _unit_hint(timestamp: int, now_ms: int) -> str:
    """The end of an error about a timestamp that in another unit is one of these years; empty for others."""
    for unit, per_ms in _UNITS:
        if abs(timestamp / per_ms - now_ms) < _YEARS_MS:
            return f": it looks like {unit}, and timestamps are milliseconds"
    return ""


def _rebuild(
    header: BatchHeader,
    records: Data,
    result: WalkResult,
    codec: int,
    rules: ValidationRules,
    max_timestamp: int,
) -> Steps[memoryview]:
    """The batch with another codec and the offset deltas 0, 1, 2, …; updates ``header``."""
    if header.is_log_append_time or not result.sequential:
        records = yield from _renumbered(header, records)
    header.attributes = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) | codec
    if rules.log_append_time:
        header.attributes |= LOG_APPEND_TIME_BIT
    header.max_timestamp = max_timestamp
    if codec != NONE:
        records = yield from compress_steps(codec, records, rules.level)
    return memoryview(assemble(header, records))


def _renumbered(header: BatchHeader, records: Data) -> Steps[bytearray]:
    """The records with the offset deltas 0, 1, 2, …, and with the batch's max timestamp if that is a LogAppendTime.
    Sets the base timestamp in ``header`` to the first record's.
    """
    data = bytes(records) if isinstance(records, memoryview) else records
    limit = len(data)
    append_time = header.max_timestamp if header.is_log_append_time else None
    base = header.base_timestamp
    first: int | None = None
    out = bytearray()
    position = 0
    for index in range(header.record_count):
        if index % _STEP_RECORDS == _STEP_RECORDS - 1:
            yield
        position, delta, _, key_length_at = scan_front(data, position, limit)
        timestamp = wrap_int64(base + delta) if append_time is None else append_time
        if first is None:
            first = header.base_timestamp = timestamp
        front = bytearray(1)  # the attributes
        append_varint(front, timestamp - first)
        append_varint(front, index)
        append_varint(out, len(front) + position - key_length_at)
        out += front
        out += data[key_length_at:position]
    return out
