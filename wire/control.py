"""Control batches: transaction markers, and KRaft's control records.

A control batch has attribute bit 5 set. Kafka writes one record in each. Source:
``ControlRecordType``, ``EndTransactionMarker``, ``MemoryRecordsBuilder``; KIP-98, KIP-595.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from oncelog.wire.batch import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Control record types: the second int16 of a control record's key (``ControlRecordType``).
ABORT_MARKER = 0
COMMIT_MARKER = 1
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

_control_key = Struct(">hh")
_end_transaction_value = Struct(">hi")


def control_batch(
    control_type: int,
    value: Buffer,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """A batch of one control record. Its key is an int16 version, 0, and the int16 type.

    The value of an end-transaction marker begins with an int16 version (``end_transaction_marker``); other values are
    the message alone.
    """
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
    )
    builder.append(timestamp, _control_key.pack(0, control_type), value)
    return builder.build()


def end_transaction_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """The control batch that ends a transaction in one partition (``EndTransactionMarker``)."""
    return control_batch(
        COMMIT_MARKER if commit else ABORT_MARKER,
        _end_transaction_value.pack(0, coordinator_epoch),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
    )


def read_control_type(key: Buffer) -> int:
    """The type in a control record's key, which may be an unknown one. Raises DecodeError."""
    if memoryview(key).nbytes < _control_key.size:
        raise DecodeError("control record key is cut short")
    version, control_type = _control_key.unpack_from(key)
    if version < 0:
        raise DecodeError(f"control record key has version {version}")
    return int(control_type)


def read_coordinator_epoch(value: Buffer) -> int:
    """The coordinator epoch in an end-transaction marker's value. Raises DecodeError."""
    if memoryview(value).nbytes < _end_transaction_value.size:
        raise DecodeError("end transaction marker is cut short")
    version, epoch = _end_transaction_value.unpack_from(value)
    if version < 0:
        raise DecodeError(f"end transaction marker has version {version}")
    return int(epoch)
