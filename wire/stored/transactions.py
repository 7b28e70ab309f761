"""Records of ``__transaction_state``: the last state of each transactional id.

Source: the transaction coordinator's record definitions, ``TransactionLog``, KIP-98, KIP-890.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, api_key=0, kind="coordinator-key", versions="0", flexible="none"):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, api_key=0, kind="coordinator-value", versions="0-1", flexible="1+"):
    """Timestamps and the timeout in milliseconds; -1 for no id or epoch."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


KEY_TYPES: dict[int, type[Message]] = {TransactionLogKey.API_KEY: TransactionLogKey}
VALUE_TYPES: dict[int, type[Message]] = {TransactionLogValue.API_KEY: TransactionLogValue}
