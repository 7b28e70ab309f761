"""What appending to a log gives."""

from __future__ import annotations


class AppendResult:
    """Where a batch is in the log."""

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "must_flush",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        must_flush: bool,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 where the records keep the producer's time."""
        self.log_start_offset = log_start_offset
        self.must_flush = must_flush
        """Whether ``PartitionLog.flush`` must return before the append is acknowledged."""
        self.duplicate = duplicate
        """Whether the batch was in the log already, at these offsets."""
