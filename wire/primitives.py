"""Types that messages are made of, beside Python's own."""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to read from; a memoryview must be one-dimensional, of single bytes (as ``memoryview(bytes)`` is)."""

Uuid: TypeAlias = bytes
"""16 bytes, the most significant first."""

UUID_SIZE = 16
ZERO_UUID: Uuid = bytes(UUID_SIZE)

_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_+/", b"+/..")


class SizedRange(Protocol):
    """Bytes that are not in memory: only their number is known here (a range of a log file)."""

    @property
    def size(self) -> int: ...


Records: TypeAlias = Buffer | SizedRange
"""What a ``records()`` field may hold when it is encoded; decoding always gives a memoryview."""


def uuid_to_text(uuid: Uuid) -> str:
    """Kafka's text form: 22 characters of URL-safe base64 without padding (``org.apache.kafka.common.Uuid``)."""
    return b2a_base64(uuid).translate(_TO_URL_SAFE)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The reverse of ``uuid_to_text``. Raises ValueError for anything but 16 bytes of URL-safe base64."""
    try:
        # Not `base64.urlsafe_b64decode`: that passes over characters that are not in the alphabet.
        uuid = a2b_base64(
            text.rstrip("=").encode("ascii").translate(_FROM_URL_SAFE) + b"==", strict_mode=True
        )
    except (Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a UUID in base64: {text!r}") from error
    if len(uuid) != UUID_SIZE:
        raise ValueError(f"not a UUID of {UUID_SIZE} bytes: {text!r}")
    return uuid
