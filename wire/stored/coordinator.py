"""Keys and values of the coordinators' records: a type or version (int16), then the fields.

Source: ``CoordinatorRecordSerde``. A reader that meets a type it does not know skips the record; a value in a version
it does not know is an error (KIP-915), but for a transaction coordinator, which skips it too (``TransactionLog.read``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import Buffer, Message

_INT16 = struct.Struct(">h")


def encode_key(key: Message) -> bytes:
    return _INT16.pack(key.API_KEY) + key.encode(0)


def encode_value(value: Message, version: int) -> bytes:
    return _INT16.pack(version) + value.encode(version)


def decode_key(data: Buffer, types: Mapping[int, type[Message]]) -> Message | None:
    """The key; None for a type that is not among ``types``. Raises DecodeError."""
    if len(data) < _INT16.size:
        raise DecodeError("a record's key is too short for its type")
    found = types.get(_INT16.unpack_from(data)[0])
    return None if found is None else found.decode(data, 0, _INT16.size)


def decode_value(data: Buffer, value_type: type[Message]) -> Message:
    """The value of a record whose key says what it is. Raises DecodeError, also for a version not known."""
    version = _version(data)
    if not value_type.MIN_VERSION <= version <= value_type.MAX_VERSION:
        raise DecodeError(f"{value_type.__name__} of version {version} is not known")
    return value_type.decode(data, version, _INT16.size)


def is_known_version(data: Buffer, value_type: type[Message]) -> bool:
    """Whether a value's version is one that can be decoded. Raises DecodeError."""
    return value_type.MIN_VERSION <= _version(data) <= value_type.MAX_VERSION


def _version(data: Buffer) -> int:
    if len(data) < _INT16.size:
        raise DecodeError("a record's value is too short for its version")
    return int(_INT16.unpack_from(data)[0])
