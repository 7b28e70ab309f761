"""`ValidationRules`: the requirements that `oncelog.wire.validate` checks a batch against."""

from __future__ import annotations

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
DECOMPRESSED_RATIO_MAX = 16
"""Limit of a batch's decompressed bytes: the first value, or the second times max.message.bytes if that is more."""

RECORD_ERRORS_MAX = 10_000
"""Records of one batch that a response lists as invalid."""
RECORDS_NAMED_MAX = 50_000
"""A batch of more records than this is refused as a whole, without errors of single records."""

INT64_MAX = (1 << 63) - 1
_AN_HOUR_MS = 3_600_000


class ValidationRules:
    """The requirements of a topic's configuration and of the origin of a batch. Defaults and units are Kafka's."""

    __slots__ = (
        "codec",
        "compacted",
        "decompressed_bytes_max",
        "fast_readers",
        "from_client",
        "level",
        "log_append_time",
        "max_decompressed_message_bytes",
        "max_message_bytes",
        "record_errors_max",
        "records_named_max",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "zstd_allowed",
    )

    def __init__(
        self,
        *,
        compacted: bool = False,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = INT64_MAX,
        timestamp_after_max_ms: int = _AN_HOUR_MS,
        codec: int | None = None,
        level: int | None = None,
        max_decompressed_message_bytes: int = 2_147_483_639,
        max_message_bytes: int = 1_048_588,
        segment_bytes: int = 1_073_741_824,
        from_client: bool = True,
        zstd_allowed: bool = True,
        decompressed_bytes_max: int | None = None,
        fast_readers: bool = True,
        record_errors_max: int = RECORD_ERRORS_MAX,
        records_named_max: int = RECORDS_NAMED_MAX,
    ) -> None:
        self.compacted = compacted
        """cleanup.policy contains "compact": every record needs a key."""
        self.log_append_time = log_append_time
        """message.timestamp.type is LogAppendTime."""
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.codec = codec
        """The codec of compression.type; None for "producer", which keeps that of the batch."""
        self.level = level
        """compression.<codec>.level; None for Kafka's default."""
        self.max_decompressed_message_bytes = max_decompressed_message_bytes
        """Bytes of the largest record in a compressed batch."""
        self.max_message_bytes = max_message_bytes
        self.segment_bytes = segment_bytes
        self.from_client = from_client
        """The batch is from a producer, not from the broker: check counts and sequences, refuse control batches."""
        self.zstd_allowed = zstd_allowed
        """The Produce request's version is 7 or above."""
        self.fast_readers = fast_readers
        """Whether `oncelog.wire.walk` may use its faster readers."""
        if decompressed_bytes_max is None:
            decompressed_bytes_max = max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * max_message_bytes)
        self.decompressed_bytes_max = decompressed_bytes_max
        self.record_errors_max = record_errors_max
        self.records_named_max = records_named_max
