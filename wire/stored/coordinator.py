"""Encodes and decodes the coordinators' records: the key after an int16 type, the value after an int16 version.

Source: ``CoordinatorRecordSerde``. A reader skips records of an unknown type. A value of an unknown version is an error
(KIP-915), but a transaction coordinator skips it too (``TransactionLog.read``).
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
    """The key; None if its type is not in ``types``. Raises DecodeError."""
    if len(data) < _INT16.size:
        raise DecodeError("a record's key is too short for its type")
    found = types.get(_INT16.unpack_from(data)[0])
    return None if found is None else found.decode(data, 0, _INT16.size)


def decode_value(data: Buffer, value_type: type[Message]) -> Message:
    """The value of a record; ``value_type`` follows from its key. Raises DecodeError, also for an unknown version."""
    version = _version(data)
    if not value_type.MIN_VERSION <= version <= value_type.MAX_VERSION:
        raise DecodeError(f"{value_type.__name__} of version {version} is not known")
    return value_type.decode(data, version, _INT16.size)


def is_known_version(data: Buffer, value_type: type[Message]) -> bool:
    """Whether the value's version is known. Raises DecodeError."""
    return value_type.MIN_VERSION <= _version(data) <= value_type.MAX_VERSION


def _version(data: Buffer) -> int:
    if len(data) < _INT16.size:
        raise DecodeError("a record's value is too short for its version")
    return int(_INT16.unpack_from(data)[0])
