"""Types of message fields, beside Python's own."""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to decode. A memoryview must be one-dimensional with single bytes as items, as ``memoryview(bytes)`` is."""

Uuid: TypeAlias = bytes
"""16 bytes, big-endian."""

UUID_SIZE = 16
ZERO_UUID: Uuid = bytes(UUID_SIZE)

_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_+/", b"+/..")


class SizedRange(Protocol):
    """Bytes that are not in memory, such as a range of a log file; only their number is known."""

    @property
    def size(self) -> int: ...


Records: TypeAlias = Buffer | SizedRange
"""The type of a ``records()`` field to encode; a decoded one is always a memoryview."""


def uuid_to_text(uuid: Uuid) -> str:
    """Kafka's text form: 22 characters of URL-safe base64 without padding (``org.apache.kafka.common.Uuid``)."""
    return b2a_base64(uuid).translate(_TO_URL_SAFE)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The reverse of ``uuid_to_text``. Raises ValueError for anything but 16 bytes of URL-safe base64."""
    try:
        # `base64.urlsafe_b64decode` would ignore characters outside the alphabet.
        uuid = a2b_base64(
            text.rstrip("=").encode("ascii").translate(_FROM_URL_SAFE) + b"==", strict_mode=True
        )
    except (Error, UnicodeEncodeError) as error:
        raise ValueError(f"not a UUID in base64: {text!r}") from error
    if len(uuid) != UUID_SIZE:
        raise ValueError(f"not a UUID of {UUID_SIZE} bytes: {text!r}")
    return uuid


def wrapped_int64(value: int) -> int:
    """``value`` as Java's ``long`` overflows."""
    return (value + 2**63) % 2**64 - 2**63
