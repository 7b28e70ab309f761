"""InitProducerId (22): a producer id and epoch, for an idempotent or a transactional producer.

Version 3 lets a producer bump its own epoch (KIP-360), 4 may return PRODUCER_FENCED, 5
TRANSACTION_ABORTABLE (KIP-890), 6 is for two-phase commit (KIP-939) and unstable.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, boolean, int16, int32, int64, string


class InitProducerIdRequest(
    Request["InitProducerIdResponse"],
    api_key=22,
    kind="request",
    versions="0-6",
    flexible="2+",
    latest_version_unstable=True,
):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api_key=22, kind="response", versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
