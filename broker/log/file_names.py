"""The names of a segment's files. Source: Kafka's ``LogFileUtils``."""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def offset_name(offset: int) -> str:
    """An offset as file names have it: 20 digits."""
    return f"{offset:020d}"


def offset_of_name(name: str) -> int | None:
    """The offset at the beginning of a file's name; None if there is none."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None
